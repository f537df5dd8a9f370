"""All replicas of a workload share one resource claim.

What it does
------------
Finds workloads that run more than one pod of a template at a time, and DaemonSets, whose template
refers to a ResourceClaim by its name. The counts of all objects around the template are
multiplied: in a JobSet the `replicas` of its parts and the `parallelism` of their Jobs, in a
LeaderWorkerSet the `replicas` and the `size` of its groups, in a RayCluster the `numOfHosts` of
its workers and their `replicas`, within `minReplicas` and `maxReplicas`, in a SparkApplication the
`instances` of its executors, and the `replicas` of a Deployment, of a part of an MPIJob or
PyTorchJob, or of any other custom resource. A count that is not written is one, and other fields
do not count, as `numNodes` of a TrainJob, whose runtime has the template.

If the claim is among the manifests of the same run, or in the cluster, it must have a device class
of GPUs, and no parameters that share the devices, as NVIDIA's time-slicing and MPS do. A claim that
is not known is only a note: it may be for a network that all pods are to share.

Why it matters
--------------
The claim is allocated once. All replicas use the same devices, and run on the node that has them:
the second pod adds load to the first one's GPU, and neither knows. The pods of a DaemonSet stay
Pending on every other node. With a ResourceClaimTemplate, Kubernetes makes a claim for each pod.

References
----------
- https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/
"""

from rules.base.json_values import as_text, display
from rules.base.text_matching import has_placeholder
from rules.base.traits import CLAIM_IN_CONTAINER
from rules.gpu.claims import (
    CLAIM_NAME_FIELD,
    CLAIMS_FIELD,
    TEMPLATE_NAME_FIELD,
    declared_claims,
    is_gpu_class,
    used_claims,
)
from rules.inventory.inventory import ResourceClaim
from rules.rule import Action, Context, Finding, Findings, Pod, define_rule
from rules.workloads.pod_counts import pods_of_template


def check(pod: Pod, context: Context) -> Findings:
    """Yield each claim that the pods of a template share."""
    is_daemon = pod.object.kind == "DaemonSet"
    count = pods_of_template(pod)
    if (count < 2 and not is_daemon) or pod.is_partial or pod.is_component:  # noqa: PLR2004
        return
    used = used_claims(pod)
    for index, entry in declared_claims(pod):
        name = as_text(entry.get(CLAIM_NAME_FIELD))
        if not name or has_placeholder(name) or as_text(entry.get("name")) not in used:
            continue
        known = context.inventory.find(ResourceClaim, name, pod.object.namespace)
        if known is not None and not _is_gpu_claim_for_one_pod(known, pod, context):
            continue
        who = "the pods of all nodes" if is_daemon else f"all {count} pods"
        yield Finding(
            path=(*pod.path, CLAIMS_FIELD, index, CLAIM_NAME_FIELD),
            key=f"{CLAIMS_FIELD}.{as_text(entry.get('name'))}.{CLAIM_NAME_FIELD}",
            message=(
                f"{who} share the one ResourceClaim {display(name)}: they get the same "
                "devices, and run on their node"
            ),
            action=Action.AUDIT if known is None else Action.WARN,
            help=f"write {TEMPLATE_NAME_FIELD} and a ResourceClaimTemplate, "
            "if each pod is to have devices of its own",
        )


def _is_gpu_claim_for_one_pod(claim: ResourceClaim, pod: Pod, context: Context) -> bool:
    """Return whether the devices of the claim are GPUs, and nothing says how pods share them."""
    has_gpus = any(is_gpu_class(name, pod.profile, context.inventory) for name in claim.classes)
    return has_gpus and not claim.is_shared


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(CLAIM_IN_CONTAINER,))

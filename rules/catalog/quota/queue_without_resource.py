"""The Kueue queue of a workload has no quota of the GPU that its pods ask for.

What it does
------------
Follows the label `kueue.x-k8s.io/queue-name` of a workload of any kind to the LocalQueue of its
namespace and to the ClusterQueue behind it. Finds GPU resources that the pods ask for and that
`coveredResources` of the ClusterQueue does not have, or of which all its flavors have a quota of
zero and can borrow none. Finds claims for GPUs if the ClusterQueue has
nothing but CPU, memory and the like: `deviceClassMappings` would count a device class as another
resource of the queue. The linter knows the queues in the manifests of the same run, and
`gpuward audit` those of the cluster. At admission nothing is said.

Of a CronJob the label of `jobTemplate` counts, because a CronJob gives its Jobs no label of its
own. Labels of a DaemonSet, a ReplicaSet or a ReplicationController itself do not count: Kueue does
not know these kinds. The label of a pod template counts where none of its workload does: Kueue then
queues the pods.

Not reported: pods in a cluster that Kueue does not hold back, because it admitted them before the
queue was changed, or does not queue them; resources that can be used only together with one that
the queue covers, such as `nvidia.com/gpumem` beside `nvidia.com/gpu`; and queues that cover a
resource which no profile knows and which looks like a GPU's. Kueue's configuration can count one
resource as another, and the queue then has a quota of that.

Why it matters
--------------
Kueue admits a workload only if the queue covers every resource that its pods ask for. Any other
waits for ever, with `resource nvidia.com/mig-1g.5gb unavailable in ClusterQueue` in its status.
Other queues of the cohort do not help: only what a queue covers can be borrowed.

Without a mapping that fits, older releases of Kueue count the devices of a claim nowhere, and newer
ones do not admit the workload.

Where Kueue is configured to ignore resources that queues do not cover (`quotaCheckStrategy`), the
workload runs, and no quota counts its GPUs.

References
----------
- https://kueue.sigs.k8s.io/docs/concepts/cluster_queue/
- https://kueue.sigs.k8s.io/docs/tasks/run/run_cronjobs/
- https://github.com/kubernetes-sigs/kueue/issues/4848
- https://github.com/kubernetes-sigs/kueue/issues/10504
- kubernetes-sigs/kueue, `pkg/dra/claims.go`, `pkg/scheduler/flavorassigner/flavorassigner.go`,
  `pkg/controller/jobframework/reconciler.go` (`FindAncestorJobManagedByKueue`),
  `pkg/controller/jobs` (the kinds that it knows), `pkg/controller/jobs/pod/pod_webhook.go`
"""

from typing import NamedTuple

from rules.base.json_values import as_text, display
from rules.base.traits import CLAIM_IN_CONTAINER, GPU_RESOURCE, KNOWN_QUEUES
from rules.gpu.claims import (
    CLAIMS_FIELD,
    declared_claims,
    device_classes,
    is_gpu_class,
    used_claims,
)
from rules.gpu.devices import path_of_first_request, requested_resources
from rules.gpu.quotas import cluster_queue_of
from rules.inventory.inventory import ClusterQueue, Inventory
from rules.profile.profile import Profile
from rules.rule import Action, Context, Finding, Findings, Pod, define_rule

_NON_DEVICE_RESOURCES = frozenset({"cpu", "memory", "pods", "ephemeral-storage"})


class _UnknownResources(NamedTuple):
    """Resources of a queue that no profile knows: their domains, and whether one is like a GPU."""

    domains: frozenset[str]
    looks_like_gpu: bool


def check(pod: Pod, context: Context) -> Findings:
    """Yield each GPU resource of the pod that its queue does not cover."""
    known = cluster_queue_of(pod, context.inventory)
    if known is None:
        return
    name, target, queue = known
    # A queue can have very many, and is asked for every pod.
    unknown = context.inventory.compute_once(_unknown_resources, (target, pod.profile))
    for resource in requested_resources(pod):
        if not _may_cover(queue, resource, unknown, pod.profile):
            yield Finding(
                path=path_of_first_request(pod, resource),
                key=f"queue.{resource}",
                message=f"the ClusterQueue {display(target)} behind the queue "
                f"{display(name)} has no quota of {resource}: Kueue admits no workload that "
                "asks for it",
                help=f"ask for what the queue covers, or add {resource} to the ClusterQueue",
            )
    if all(map(_is_non_device_resource, queue.resources)):
        yield from _findings_of_uncounted_claims(pod, context, target)


def _findings_of_uncounted_claims(pod: Pod, context: Context, queue: str) -> Findings:
    """Yield each claim for GPUs, where the queue covers nothing that a device could count as."""
    used = used_claims(pod)
    for index, entry in declared_claims(pod):
        name = as_text(entry.get("name"))
        classes = device_classes(entry, context.inventory, pod.object.namespace)
        if name in used and any(
            is_gpu_class(each, pod.profile, context.inventory) for each in classes
        ):
            yield Finding(
                path=(*pod.path, CLAIMS_FIELD, index),
                key=f"queue.claim.{name}",
                message=f"the ClusterQueue {display(queue)} covers no resource that the devices of "
                f"the claim {display(name)} can be counted as: Kueue counts them nowhere, or "
                "admits no workload with them",
                help="map the device class to a resource by deviceClassMappings in Kueue's "
                "configuration, and add the resource to the ClusterQueue",
            )


def _is_non_device_resource(resource: str) -> bool:
    return resource in _NON_DEVICE_RESOURCES or resource.startswith("hugepages-")


def _may_cover(
    queue: ClusterQueue, resource: str, unknown: _UnknownResources, profile: Profile
) -> bool:
    known = profile.resource(resource)
    if resource in queue.resources:
        return queue.most.get(resource) != 0
    return (
        (known is not None and not queue.resources.isdisjoint(known.companions))
        or unknown.looks_like_gpu
        or resource.partition("/")[0] in unknown.domains
    )


def _unknown_resources(inventory: Inventory, queue: tuple[str, Profile]) -> _UnknownResources:
    """Return the resources of the ClusterQueue of this name that no profile knows."""
    name, profile = queue
    found = inventory.find(ClusterQueue, name)
    unknown = [r for r in (found.resources if found else ()) if profile.resource(r) is None]
    return _UnknownResources(
        frozenset(domain for domain, slash, _ in (r.partition("/") for r in unknown) if slash),
        any("gpu" in resource or "accelerator" in resource for resource in unknown),
    )


RULE = define_rule(
    check,
    action=Action.WARN,
    since="0.1",
    needs=(GPU_RESOURCE | CLAIM_IN_CONTAINER, KNOWN_QUEUES),
    needs_resources=True,
)

"""A GPU pod for the KAI scheduler, or its claim, names its queue where KAI does not look.

What it does
------------
Finds pods with `schedulerName: kai-scheduler` that have `kai.scheduler/queue` as an annotation and
not as a label, that have the former label `runai/queue` or a misspelt one alone, or an empty label,
unless the workload that makes them has the label. An annotation of that workload counts like one of
the pod. Pods without any are for the default queue. Of RayJobs, RayClusters and RayServices the key
alone shows that they are for KAI: KubeRay writes the name of the scheduler into their pods.

Finds also a ResourceClaim for GPUs that such a pod names, if the claim does not have the label of
the pod's queue. The linter knows the claims in the manifests of the same run, and `gpuward audit`
those of the cluster. Claims that Kubernetes makes of a template need no label.

Why it matters
--------------
KAI reads the queue from a label of the pod, or of the object that owns it. It ignores the
annotation, and since version 0.6.0 the former label: the pod is scheduled in the queue
`default-queue`, with that queue's quota and priority, and stays Pending where there is no such
queue. A pod whose claim has the label of no queue, or of another one, is never scheduled.

KAI can be installed with another key of the label (`queueLabelKey`). Suppress the rule there.

References
----------
- https://github.com/kai-scheduler/KAI-Scheduler/tree/main/docs/quickstart
- https://github.com/kai-scheduler/KAI-Scheduler/pull/932
- https://docs.ray.io/en/latest/cluster/kubernetes/k8s-ecosystem/kai-scheduler.html
- ray-project/kuberay, `ray-operator/controllers/ray/batchscheduler/kai-scheduler`
- kai-scheduler/KAI-Scheduler, `docs/migrationguides/v0.6.0/README.md`,
  `pkg/podgrouper/podgrouper/plugins/defaultgrouper/default_grouper.go`,
  `pkg/scheduler/plugins/dynamicresources/dynamicresources.go`
"""

from rules.base.json_values import as_text, display
from rules.base.text_matching import nearest_word
from rules.base.traits import GPU, KAI_QUEUE_LABEL
from rules.gpu.claims import CLAIM_NAME_FIELD, CLAIMS_FIELD, declared_claims
from rules.gpu.devices import pod_requests_gpu
from rules.inventory.inventory import ResourceClaim
from rules.rule import Action, Context, Finding, Findings, Pod, define_rule

_MAX_CHARACTERS = 60
# Before KAI was a project of its own.
_FORMER_QUEUE_LABEL = "runai/queue"
_SCHEDULER = "kai-scheduler"
_RAY_GROUP = "ray.io"
# In the names of the device classes that KAI takes for those of GPUs.
_GPU_WORD = "gpu"
_DEFAULT_QUEUE = "default-queue"
FAULT = f"{KAI_QUEUE_LABEL} is an annotation, which KAI ignores: the pod goes to the default queue"
FORMER_FAULT = (
    f"the label {_FORMER_QUEUE_LABEL} is ignored by KAI since version 0.6.0: the pod goes to the "
    "default queue"
)
EMPTY_FAULT = f"the label {KAI_QUEUE_LABEL} is empty: KAI never schedules a pod of no queue"
ADVICE = f"write the label {KAI_QUEUE_LABEL}"


def check(pod: Pod, context: Context) -> Findings:
    """Yield the pod if KAI does not learn its queue, and each claim of another queue."""
    is_placed_by_kuberay = pod.object.group == _RAY_GROUP and not pod.spec.get("schedulerName")
    if pod.scheduler != _SCHEDULER and not is_placed_by_kuberay:
        return
    if not pod.is_complete or not pod_requests_gpu(pod):
        return
    if not is_placed_by_kuberay:
        yield from _findings_of_claims(pod, context)
    holders = [*([pod.owner_metadata] if pod.owner_metadata else []), pod.metadata_view]
    for metadata in holders:  # that of what makes the pod comes first
        if KAI_QUEUE_LABEL in metadata.labels:
            if metadata.labels[KAI_QUEUE_LABEL] == "":
                yield Finding(
                    path=(*metadata.path, "labels", KAI_QUEUE_LABEL),
                    key=f"labels.{KAI_QUEUE_LABEL}",
                    message=EMPTY_FAULT,
                    help="write the name of a queue, or remove the label for the default queue",
                )
            return
    yield from _findings_of_key(pod)


def _findings_of_key(pod: Pod) -> Findings:
    """Yield the key by which the pod, or what makes it, names its queue in vain."""
    holders = [pod.metadata_view, *([pod.owner_metadata] if pod.owner_metadata else [])]
    for metadata in holders:
        if KAI_QUEUE_LABEL in metadata.annotations:
            yield Finding(
                path=(*metadata.path, "annotations", KAI_QUEUE_LABEL),
                key=f"annotations.{KAI_QUEUE_LABEL}",
                message=FAULT,
                help=ADVICE,
            )
            return
    for metadata in holders:
        if _FORMER_QUEUE_LABEL in metadata.labels:
            yield Finding(
                path=(*metadata.path, "labels", _FORMER_QUEUE_LABEL),
                key=f"labels.{_FORMER_QUEUE_LABEL}",
                message=FORMER_FAULT,
                help=f"{ADVICE}: {as_text(metadata.labels[_FORMER_QUEUE_LABEL])}",
            )
            return
        for key in metadata.labels:
            if len(key) <= _MAX_CHARACTERS and nearest_word(key, (KAI_QUEUE_LABEL,)):
                yield Finding(
                    path=(*metadata.path, "labels", key),
                    key=f"labels.{key}",
                    message=f"the label {display(key)} is not the one that KAI reads: the pod goes "
                    "to the default queue",
                    help=f"{ADVICE}: {as_text(metadata.labels[key])}",
                )
                return


def _findings_of_claims(pod: Pod, context: Context) -> Findings:
    """Yield each claim for GPUs that the pod names and that is not of the pod's queue."""
    queue = as_text({**pod.labels, **pod.owner_labels}.get(KAI_QUEUE_LABEL)) or _DEFAULT_QUEUE
    for index, entry in declared_claims(pod):
        name = as_text(entry.get(CLAIM_NAME_FIELD))
        claim = context.inventory.find(ResourceClaim, name, pod.object.namespace) if name else None
        if claim is None or claim.kai_queue == queue:
            continue
        if any(_GPU_WORD in each.lower() for each in claim.classes):
            has = f"the label {KAI_QUEUE_LABEL}: {display(claim.kai_queue)}"
            fault = f"{has}, and the pod is of the queue {display(queue)}"
            yield Finding(
                path=(*pod.path, CLAIMS_FIELD, index, CLAIM_NAME_FIELD),
                key=f"claim.{as_text(entry.get('name'))}",
                message=f"the ResourceClaim {display(name)} has "
                f"{fault if claim.kai_queue else f'no label {KAI_QUEUE_LABEL}'}: KAI never "
                "schedules the pod",
                help=f"give the claim the label {KAI_QUEUE_LABEL}: {queue}, or use a template of "
                "claims",
            )


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(GPU,))

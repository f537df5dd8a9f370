"""A GPU pod for the KAI scheduler names its queue where KAI does not look.

What it does
------------
Finds pods with `schedulerName: kai-scheduler` that have `kai.scheduler/queue` as an annotation and
not as a label, unless the workload that makes them has the label. Pods without either are for the
default queue.

Why it matters
--------------
KAI reads the queue from a label of the pod, or of the object that owns it. It ignores the
annotation: the pod is scheduled in the queue `default-queue`, with that queue's quota and priority,
and stays Pending where there is no such queue.

References
----------
- https://github.com/kai-scheduler/KAI-Scheduler/tree/main/docs/quickstart
- https://github.com/kai-scheduler/KAI-Scheduler/pull/932
"""

from rules.base.traits import CUSTOM_SCHEDULER, GPU
from rules.gpu.devices import pod_requests_gpu
from rules.rule import Action, Context, Finding, Findings, Pod, define_rule

QUEUE_LABEL = "kai.scheduler/queue"
# Before KAI was a project of its own.
_FORMER_QUEUE_LABEL = "runai/queue"
_SCHEDULER = "kai-scheduler"
FAULT = f"{QUEUE_LABEL} is an annotation, which KAI ignores: the pod goes to the default queue"
ADVICE = f"write the label {QUEUE_LABEL}"


def check(pod: Pod, _context: Context) -> Findings:
    """Yield the pod if KAI does not learn its queue."""
    if pod.scheduler != _SCHEDULER or not pod.is_complete or not pod_requests_gpu(pod):
        return
    labels = {*pod.labels, *pod.owner_labels}
    if QUEUE_LABEL in labels or _FORMER_QUEUE_LABEL in labels:
        return
    if QUEUE_LABEL in pod.annotations:
        yield Finding(
            path=(*pod.metadata_path, "annotations", QUEUE_LABEL),
            key=f"annotations.{QUEUE_LABEL}",
            message=FAULT,
            help=ADVICE,
        )


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(CUSTOM_SCHEDULER, GPU))

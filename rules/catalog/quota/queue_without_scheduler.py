"""A GPU pod has a queue of the KAI scheduler, and is left to the default scheduler.

What it does
------------
Finds pods that request a GPU, that have the label `kai.scheduler/queue`, or whose workload has it,
and whose `schedulerName` is missing or `default-scheduler`.

Not reported: pods of KubeRay's kinds, of Volcano's Job and of Knative's Service, whose controllers
name the scheduler; pods that name another scheduler, because KAI can be installed with another name
(`schedulerName`); pods that name their node. In other custom resources the rule only notes it, as
their controllers may name the scheduler.

Parts of a card by `gpu-fraction` or `gpu-memory` are the subject of `scheduler-name`.

Why it matters
--------------
KAI looks only at pods that name it. The default scheduler places the pod on any free GPU at once,
whatever is left of its queue, and no quota of the queue counts the GPU. No event says so.

Fix safety
----------
The fix names `kai-scheduler`. It is made only where the policy allows it: the pod may then have to
wait for its queue, and where KAI is not installed any more, or has another name, for ever.

References
----------
- https://github.com/kai-scheduler/KAI-Scheduler/tree/main/docs/quickstart
- kai-scheduler/KAI-Scheduler, `pkg/common/constants/constants.go`,
  `pkg/podgrouper/pod_controller.go`,
  `pkg/podgrouper/podgrouper/plugins/defaultgrouper/default_grouper.go`
"""

from rules.base.json_values import as_text, display, put
from rules.base.traits import GPU, KAI_QUEUE, KAI_QUEUE_LABEL
from rules.gpu.devices import pod_requests_gpu
from rules.in_process.components import KIND
from rules.in_process.expression import (
    OBJECT,
    REQUEST,
    all_of,
    choose,
    entry,
    get,
    not_,
    text,
)
from rules.in_process.nodes import scheduler
from rules.in_process.statement import Statement, shown
from rules.objects.pod import DEFAULT_SCHEDULER
from rules.placement.gpu_nodes import may_be_placed_elsewhere
from rules.rule import Action, Context, Finding, Findings, Fix, Pod, define_rule

_SCHEDULER = "kai-scheduler"
_RAY_GROUP = "ray.io"
FIELD = "schedulerName"
ADVICE = f"write {FIELD}: {_SCHEDULER} into the pod's spec"


def check(pod: Pod, _context: Context) -> Findings:
    """Yield the pod if it has a queue and the default scheduler."""
    of_owner, of_pod = (as_text(of.get(KAI_QUEUE_LABEL)) for of in (pod.owner_labels, pod.labels))
    queue = of_owner or of_pod
    if not queue or pod.scheduler != DEFAULT_SCHEDULER or not pod_requests_gpu(pod):
        return
    if may_be_placed_elsewhere(pod) or pod.object.group == _RAY_GROUP:
        return
    if pod.spec.get("nodeName") and not pod.exists:
        return
    path = (*pod.path, FIELD)
    yield Finding(
        path=path,
        key=f"{FIELD}.queue",
        message=_message(display(queue)),
        help=ADVICE,
        fix=Fix(f"set {FIELD}: {_SCHEDULER}", (put(path, _SCHEDULER),)),
        action=Action.WARN if pod.is_final else Action.AUDIT,
    )


def _message(queue: object) -> str:
    return (
        f"the pod is of the queue {queue} of KAI and is left to the default scheduler: it does not "
        "wait for the queue, and no quota of the queue counts its GPUs"
    )


def in_process() -> tuple[Statement, ...]:
    """`check` in CEL."""
    of_pod, of_owner = (
        entry(get(metadata, "labels", {}), KAI_QUEUE_LABEL, "")
        for metadata in (OBJECT.metadata, OBJECT.makerMetadata)
    )
    queue = choose((of_owner != "", of_owner), otherwise=of_pod)
    is_new_and_placed = all_of(
        REQUEST.operation == "CREATE", get(OBJECT.spec, "nodeName", "") != ""
    )
    where = all_of(
        queue != "",
        scheduler() == DEFAULT_SCHEDULER,
        not_(is_new_and_placed),
        KIND != "PodTemplate",  # of which `check` only notes it
        OBJECT.requestsGpu,
    )
    return (Statement("pod", where, text(_message(shown(queue))), ADVICE),)


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(GPU, KAI_QUEUE))

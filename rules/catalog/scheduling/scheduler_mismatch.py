"""A pod chooses a scheduler that cannot place what it asks for.

What it does
------------
Finds pods whose `schedulerName` is neither the default nor any scheduler that the profile names
for the resources (or annotations) by which they request GPUs. In a managed ACK cluster that is the
default scheduler itself. `scheduler-name` checks pods with a missing or default name, unless they
run already: a running pod that the default scheduler placed is reported here.

Why it matters
--------------
Only the scheduler of a GPU system knows which card has room for a share. With another scheduler
the pod may stay Pending, or reach a node although no card was chosen for it.

References
----------
- https://github.com/Project-HAMi/HAMi/issues/661
- https://github.com/Project-HAMi/HAMi/issues/1162
"""

from rules.base.json_values import display
from rules.base.traits import CUSTOM_SCHEDULER, GPU_ANNOTATION, GPU_RESOURCE, NODE_NAME
from rules.objects.pod import DEFAULT_SCHEDULER
from rules.placement.gpu_nodes import matching_resource
from rules.rule import Action, Context, Finding, Findings, Pod, define_rule

NAMED_FAULT, NAME_ADVICE = "sets schedulerName: ", "write schedulerName: "
OMIT_ADVICE = "leave schedulerName out"
PLACED_FAULT, WHERE = "the default scheduler has placed it", " where the pod is made"


def check(pod: Pod, _context: Context) -> Findings:
    """Yield the pod if its scheduler cannot place what it requests."""
    candidates = pod.profile.schedulers
    is_default = pod.scheduler == DEFAULT_SCHEDULER
    if not candidates or (is_default and not pod.is_placed):
        return
    wanted = [(scheduler, matching_resource(pod, scheduler)) for scheduler in candidates]
    wanted = [(scheduler, reason) for scheduler, reason in wanted if reason is not None]
    capable = {
        name for scheduler, _ in wanted for name in (scheduler.name, *scheduler.alternatives)
    }
    if not wanted or pod.scheduler in capable:
        return
    scheduler, reason = wanted[0]
    advice = f"{NAME_ADVICE}{scheduler.name}"
    if scheduler.name == DEFAULT_SCHEDULER:
        advice = OMIT_ADVICE
    names = " or ".join((scheduler.name, *scheduler.alternatives))
    fault, where = f"{NAMED_FAULT}{display(pod.scheduler)}", ""
    if is_default:
        fault, where = PLACED_FAULT, WHERE
    yield Finding(
        path=(*pod.path, "schedulerName"),
        key="schedulerName",
        message=f"the pod asks for {display(reason)}, which {names} must place, and {fault}",
        help=f"{advice}{where}",
    )


RULE = define_rule(
    check,
    action=Action.WARN,
    since="0.1",
    needs=(CUSTOM_SCHEDULER | NODE_NAME, GPU_RESOURCE | GPU_ANNOTATION),
)

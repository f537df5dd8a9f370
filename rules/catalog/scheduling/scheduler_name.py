"""A pod needs the scheduler of its GPU system and is left to the default one.

What it does
------------
Finds pods that ask for a resource (or carry an annotation) which, as the profile says, a
scheduler of its own must place, and whose `schedulerName` is missing or
`default-scheduler`. Another custom scheduler is never replaced; a pod that two profiles
want to give to different schedulers is left alone, and so is one that names its node,
belongs to a DaemonSet, or waits at a scheduling gate.

Why it matters
--------------
The default scheduler does not know how the shares of a GPU are laid out on the cards. Pods
that were left to it have been seen to stay Pending without a hint of the reason.

Fix safety
----------
`schedulerName` is set unasked: the profile states which scheduler it is, and by the time
a webhook sees a pod, a missing name and the default one cannot be told apart.

References
----------
- https://github.com/Project-HAMi/HAMi/issues/661
- https://github.com/Project-HAMi/HAMi/blob/master/pkg/scheduler/webhook.go
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.context import Context
from rules.document import put
from rules.placement import left_alone, need
from rules.pod import DEFAULT_SCHEDULER, Pod
from rules.reading import shown
from rules.rule import Action, Finding, Fix, Rule
from rules.traits import DEVICE, FRACTION


def check(pod: Pod, _context: Context) -> Iterator[Finding]:
    """Yield the pod if one other scheduler than its own, the default one, must place it."""
    known = pod.profile.schedulers
    if not known or pod.scheduler != DEFAULT_SCHEDULER:
        return
    wanted = {
        scheduler.name: reason
        for scheduler in known
        if (reason := need(pod, scheduler)) is not None
    }
    if len(wanted) != 1 or DEFAULT_SCHEDULER in wanted or left_alone(pod):
        return
    [(name, reason)] = wanted.items()
    path = (*pod.path, "schedulerName")
    yield Finding(
        path,
        "schedulerName",
        f"the pod asks for {shown(reason)}, which {name} must place, "
        "and is left to the default scheduler",
        help=f"write schedulerName: {name} into the pod's spec",
        fix=Fix(f"set schedulerName: {name}", (put(path, name),), safe=True),
    )


RULE = Rule(
    name="scheduler-name",
    subject=Pod,
    action=Action.AUDIT,
    since="0.1",
    summary="a pod needs the scheduler of its GPU system and is left to the default one",
    check=check,
    needs=(DEVICE | FRACTION,),
)

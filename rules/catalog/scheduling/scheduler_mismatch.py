"""A pod chooses a scheduler that cannot place what it asks for.

What it does
------------
Finds pods whose `schedulerName` is neither the default nor any scheduler that the profile
names for the resources (or annotations) by which they ask for GPUs. A missing or default
name is the business of `scheduler-name`.

Why it matters
--------------
Only the scheduler of a GPU system knows which card has room for a share. With another one
the pod may stay Pending, or reach a node without a card having been chosen for it.

References
----------
- https://github.com/Project-HAMi/HAMi/issues/661
- https://github.com/Project-HAMi/HAMi/issues/1162
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.context import Context
from rules.placement import need
from rules.pod import DEFAULT_SCHEDULER, Pod
from rules.reading import shown
from rules.rule import Action, Finding, Rule
from rules.traits import DEVICE, FRACTION, SCHEDULER


def check(pod: Pod, _context: Context) -> Iterator[Finding]:
    """Yield the pod if nobody that can place it is its scheduler."""
    known = pod.profile.schedulers
    if not known or pod.scheduler == DEFAULT_SCHEDULER:
        return
    wanted = [(scheduler, need(pod, scheduler)) for scheduler in known]
    wanted = [(scheduler, reason) for scheduler, reason in wanted if reason is not None]
    able = {name for scheduler, _ in wanted for name in (scheduler.name, *scheduler.alternatives)}
    if not wanted or pod.scheduler in able:
        return
    scheduler, reason = wanted[0]
    fit = " or ".join((scheduler.name, *scheduler.alternatives))
    yield Finding(
        (*pod.path, "schedulerName"),
        "schedulerName",
        f"the pod asks for {shown(reason)}, which {fit} must place, "
        f"and sets schedulerName: {shown(pod.scheduler)}",
        help=f"write schedulerName: {scheduler.name}",
    )


RULE = Rule(
    name="scheduler-mismatch",
    subject=Pod,
    action=Action.WARN,
    since="0.1",
    summary="a pod chooses a scheduler that cannot place what it asks for",
    check=check,
    needs=(SCHEDULER, DEVICE | FRACTION),
)

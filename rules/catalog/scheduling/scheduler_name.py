"""A pod needs the scheduler of its GPU system and is left to the default one.

What it does
------------
Finds pods that request a resource (or carry an annotation) which, according to the profile,
another scheduler must place, and whose `schedulerName` is missing or `default-scheduler`. Another
custom scheduler is never replaced. Not reported: a pod for which the profile names several
schedulers; a pod that names its node; and kinds that keep placement elsewhere, such as Volcano's
Job and Knative's Service.

The rule warns where the profile says `required`: no webhook of the GPU platform sets the name, as
in clusters registered with ACK. Otherwise it only notes, whatever action the policy sets, because
the platform may set the name itself, as HAMi does. In custom resources it only notes as well: their
controllers may set the name.

Why it matters
--------------
The default scheduler does not know how the shares of a GPU are distributed over the cards. Users
have seen pods left to it stay Pending without a hint of the reason.

To name another scheduler, write a profile of your own: `extends` a built-in one, and give
`schedulers` a `name` and `resources`. The rule has no options.

Fix safety
----------
The fix sets `schedulerName` by default: the profile states which scheduler it is, and when a
webhook sees a pod, a missing name and the default one cannot be distinguished. It is also made in
pods that a scheduling gate holds, where the name cannot change later, and in those of DaemonSets.

References
----------
- https://github.com/Project-HAMi/HAMi/issues/661
- https://github.com/Project-HAMi/HAMi/blob/master/pkg/scheduler/webhook.go
"""

from collections.abc import Mapping
from typing import Any

from rules.base.json_values import display, put
from rules.base.traits import GPU_ANNOTATION, GPU_RESOURCE, PROFILE_SCHEDULERS
from rules.in_process.expression import OBJECT, Expression, all_of, any_of, choose, concat
from rules.in_process.statement import Mutation, add
from rules.objects.pod import DEFAULT_SCHEDULER
from rules.placement.gpu_nodes import matching_resource, scheduler_skip_reason
from rules.profile.profile import Profile
from rules.rule import Action, Context, Finding, Findings, Fix, Pod, define_rule


def check(pod: Pod, _context: Context) -> Findings:
    """Yield the pod if it has the default scheduler and exactly one other must place it."""
    candidates = pod.profile.schedulers
    if not candidates or pod.scheduler != DEFAULT_SCHEDULER:
        return
    wanted = {
        scheduler: reason
        for scheduler in candidates
        if (reason := matching_resource(pod, scheduler)) is not None
    }
    names = {scheduler.name for scheduler in wanted}
    if len(names) != 1 or DEFAULT_SCHEDULER in names or scheduler_skip_reason(pod):
        return
    (name,) = names
    reason = next(iter(wanted.values()))
    required = pod.is_final and any(scheduler.required for scheduler in wanted)
    path = (*pod.path, "schedulerName")
    yield Finding(
        path=path,
        key="schedulerName",
        message=f"the pod asks for {display(reason)}, which {name} must place, "
        "and is left to the default scheduler",
        help=f"write schedulerName: {name} into the pod's spec",
        fix=Fix(f"set schedulerName: {name}", (put(path, name),), safe=True),
        action=Action.WARN if required else Action.AUDIT,
    )


def in_process_fix(_options: Mapping[str, Any], profile: Profile) -> tuple[Mutation, ...]:
    """The fix in CEL."""
    from rules.in_process import mutation as words  # noqa: PLC0415  # no linter needs it
    from rules.in_process.nodes import scheduler  # noqa: PLC0415  # the same

    tests: dict[str, list[Expression]] = {}
    for each in profile.schedulers:
        tests.setdefault(each.name, []).append(words.is_about(each))
    if not tests:
        return ()
    schedulers = concat([choose((any_of(*t), [name]), otherwise=[]) for name, t in tests.items()])
    where = all_of(
        OBJECT.mayNameScheduler,
        scheduler() == DEFAULT_SCHEDULER,
        OBJECT.schedulers.size() == 1,
        OBJECT.schedulers[0] != DEFAULT_SCHEDULER,
    )
    change = [add("/spec/schedulerName", OBJECT.schedulers[0])]
    return (Mutation("pod", where, change, words={"schedulers": schedulers}),)


RULE = define_rule(
    check,
    action=Action.WARN,
    since="0.1",
    needs=(GPU_RESOURCE | GPU_ANNOTATION, PROFILE_SCHEDULERS),
)

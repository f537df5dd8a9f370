"""A GPU container only sleeps.

What it does
------------
Finds containers that request a GPU resource, or use a resource claim, and whose whole command is
`sleep` for an hour or longer, or `tail -f /dev/null`. A shell around it, a `trap` before it and
`& wait` behind it do not count. A command that does something else too is not reported. The rule is
off in the bundle `strict` too: people work in such pods.

Why it matters
--------------
The GPU is taken as long as the container sleeps, whether or not a user works with it by
`kubectl exec`. In a cluster with few GPUs such pods are often why others wait.

References
----------
- https://kubernetes.io/docs/tasks/debug/debug-application/get-shell-running-container/
"""

import re
from collections.abc import Sequence
from functools import cache

from rules.base.json_values import display
from rules.base.traits import CLAIM_IN_CONTAINER, GPU_RESOURCE
from rules.gpu.commands.of_containers import commands_of
from rules.gpu.devices import request_of
from rules.rule import Action, Container, Context, Finding, Findings, Pod, define_rule

# A longer command does more than sleep.
_MAX_CHARACTERS = 200
_IDLE_PATTERN = r"""
    (?: (?:\S*/)? (?:ba|da|a|z)?sh \s+ -[a-z]*c \s+ (?:--\s+)? )?
    (?: trap \s+ (?: : | (["']) (?:exit(?:\s+[0-9]+)?|:|) \1 )
        (?:\s+[A-Z0-9]+)+ \s* (?:;|&&|\n) \s* )?
    (?:exec\s+)?
    (?:\S*/)? (?P<idle>
        sleep \s+ (?:infinity|inf|(?P<number>[0-9]{1,12})(?P<unit>[smhd]?))
        | tail \s+ -[fF] \s+ /dev/null
    )
    (?:\s*&\s*wait)? [\s;]*"""
_SECONDS_BY_UNIT = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_MIN_SECONDS = 3600


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each GPU container whose command only waits."""
    for container, command in commands_of(c for c in pod.containers if _holds_devices(c)):
        idle = _sleep_command(command.texts)
        if idle:
            resource = request_of(container).first_name or "a resource claim"
            yield Finding(
                path=command.path(-1),
                key="command.idle",
                message=f"{container} holds {display(resource)} and only runs {display(idle)}: "
                "nobody else gets the GPU while it waits",
                container=container,
                help="delete the pod when nobody works in it, or start it without the GPU",
            )


def _holds_devices(container: Container) -> bool:
    return container.role == "app" and bool(request_of(container).first_name or container.claims)


def _sleep_command(texts: Sequence[str]) -> str:
    """Return the command by which `texts` sleep, if they do nothing else; otherwise ""."""
    if sum(map(len, texts)) > _MAX_CHARACTERS:
        return ""
    match = _compiled_idle_pattern().fullmatch(" ".join(texts).strip())
    if (
        not match
        or int(match["number"] or _MIN_SECONDS) * _SECONDS_BY_UNIT[match["unit"] or ""]
        < _MIN_SECONDS
    ):
        return ""
    return match["idle"]


@cache
def _compiled_idle_pattern() -> re.Pattern[str]:
    return re.compile(_IDLE_PATTERN, re.VERBOSE)


RULE = define_rule(
    check, action=Action.OFF, since="0.1", needs=(GPU_RESOURCE | CLAIM_IN_CONTAINER,)
)

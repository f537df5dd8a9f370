"""A GPU container only sleeps.

What it does
------------
Finds containers that request a GPU resource, or use a resource claim, and whose command ends with
`sleep`, or with `tail -f /dev/null`. A `sleep` in a loop between other commands is not reported.
The rule is off in the bundle `strict` too: people work in such pods. Of a pod it reads at most
100,000 characters.

Why it matters
--------------
The GPU is taken as long as the container sleeps, whether or not somebody works with it by
`kubectl exec`. In a cluster with few GPUs such pods are often why others wait.

References
----------
- https://kubernetes.io/docs/tasks/debug/debug-application/get-shell-running-container/
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from rules.base.json_access import display
from rules.finding import Action, Finding
from rules.gpu.commands import commands_of
from rules.gpu.devices import request_of
from rules.objects.container import Container
from rules.objects.pod import Pod
from rules.profile.context import Context
from rules.rule import define_rule
from rules.traits.bits import CLAIM, GPU_RESOURCE

# What is read of the end of a command, in characters.
_END = 200
_IDLE = r"(?:^|[\s;&|/])(?:sleep\s+[0-9a-z.]+|tail\s+-f\s+/dev/null)(?:\s*&\s*wait)?[\s;]*$"


def check(pod: Pod, _context: Context) -> Iterator[Finding]:
    """Yield each GPU container whose command ends by waiting."""
    for container, texts in commands_of(c for c in pod.containers if _holds_devices(c)):
        if not texts:
            continue
        end = " ".join(text for _, text in texts[-3:])[-_END:]
        match = _pattern().search(end)
        if match:
            asked = request_of(container).first or "a resource claim"
            yield Finding(
                path=texts[-1].path,
                key="command.idle",
                message=f"{container} holds {display(asked)} and ends with "
                f"{display(match[0].strip(' ;&|/'))}: nobody else gets the GPU while it waits",
                container=container,
                help="delete the pod when nobody works in it, or start it without the GPU",
            )


def _holds_devices(container: Container) -> bool:
    return container.role == "app" and bool(request_of(container).first or container.claims)


@cache
def _pattern() -> re.Pattern[str]:
    return re.compile(_IDLE)


RULE = define_rule(check, action=Action.OFF, since="0.1", needs=(GPU_RESOURCE | CLAIM,))

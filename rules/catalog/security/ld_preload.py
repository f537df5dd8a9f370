"""A variable may make the loader take a library from inside a GPU container.

What it does
------------
Finds `LD_PRELOAD`, `LD_AUDIT` and `LD_LIBRARY_PATH` in a container that holds a GPU, with
an entry that depends on the current folder or on `/proc`, or with a reference in place of
a value. Absolute paths and plain library names are fine, such as
`/usr/lib/libjemalloc.so.2`. In `LD_LIBRARY_PATH` empty entries and those that begin with `$`
are passed over: real manifests are full of `$LD_LIBRARY_PATH`, which nobody expands there.

Why it matters
--------------
Up to version 1.17.7 a hook of NVIDIA's container toolkit runs on the node, as root, in the
folder of the container's files, and obeys the image's variables (CVE-2025-23266); those of
the pod may reach it as well. `./x.so` or `/proc/self/cwd/x.so` is then the tenant's code.

What the image sets itself is not visible in a pod: only an updated toolkit stops that.

Fix safety
----------
The variable is removed only if the policy says `fix: true`: the program may need it.

References
----------
- https://nvidia.custhelp.com/app/answers/detail/a_id/5659
- https://www.wiz.io/blog/nvidia-ai-vulnerability-cve-2025-23266-nvidiascape
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.base.json_access import display
from rules.finding import Action, Finding, Fix
from rules.gpu.devices import requests_gpu
from rules.gpu.visibility import remove_edits
from rules.objects.container import Container
from rules.objects.pod import Pod
from rules.profile.context import Context
from rules.rule import define_rule
from rules.traits.bits import GPU, LD_VARIABLE

SEARCH_PATH = "LD_LIBRARY_PATH"
# What stands between the entries of each, see ld.so(8).
SEPARATORS = {"LD_PRELOAD": ": ", "LD_AUDIT": ":", SEARCH_PATH: ":;"}


def check(pod: Pod, _context: Context) -> Iterator[Finding]:
    """Yield each variable that leads the loader into the container's own files."""
    for container in pod.containers:
        for variable in SEPARATORS:
            if variable in container.env and requests_gpu(container):
                value = container.value_of(variable)
                if value is None or any(map(_depends, entries(variable, value))):
                    yield _finding(container, variable, value)


def entries(variable: str, value: str) -> list[str]:
    """The entries of `value` that the rule judges."""
    for separator in SEPARATORS[variable]:
        value = value.replace(separator, "\n")
    judged = [entry for entry in value.split("\n") if entry]
    if variable == SEARCH_PATH:
        return [f"{entry}/" for entry in judged if not entry.startswith("$")]
    return judged


def _depends(entry: str) -> bool:
    """Whether `entry` leads elsewhere with every process; a name without `/` is searched for."""
    return entry.startswith(("$", "/proc/")) or ("/" in entry and not entry.startswith("/"))


def _finding(container: Container, variable: str, value: str | None) -> Finding:
    index = container.env[variable][-1][0]
    field = "valueFrom" if value is None else "value"
    setting = "by reference" if value is None else f"to {display(value)}"
    message = (
        f"{container} holds a GPU and sets {variable} {setting}, by which an outdated "
        "container toolkit may run the container's own code on the node"
    )
    advice = f"write absolute paths in {variable}, or remove it"
    fix = Fix(f"remove {variable}", remove_edits(container, variable))
    path = (*container.path, "env", index, field)
    return Finding(
        path=path, key=variable, message=message, container=container, help=advice, fix=fix
    )


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(LD_VARIABLE, GPU))

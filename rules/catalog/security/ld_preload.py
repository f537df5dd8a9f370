"""A variable may make the loader take a library from inside a GPU container.

What it does
------------
Finds `LD_PRELOAD`, `LD_AUDIT` and `LD_LIBRARY_PATH` in a container that requests a GPU, if the
value is a `valueFrom` reference, or if an entry depends on the current folder or on `/proc`, also
by `/dev/fd`, or has a `..`, which may lead there. In `LD_PRELOAD` and `LD_AUDIT` an entry that
begins with `$` is found too. Absolute paths and plain library names are fine, such as
`/usr/lib/libjemalloc.so.2`. In `LD_LIBRARY_PATH`, empty entries and those that begin with `$` are
ignored: many real manifests contain `$LD_LIBRARY_PATH`, which nothing expands there. A prefix in
`envFrom` that a key can complete to one of these variables is found as well.

Why it matters
--------------
Up to version 1.17.7 a hook of NVIDIA's container toolkit runs on the node, as root, in the folder
of the container's files, and obeys the image's variables (CVE-2025-23266). The pod's variables
may reach it as well. It may then load `./x.so` or `/proc/self/cwd/x.so`, which is the tenant's
code.

Not found: what the image itself sets, or a ConfigMap in `envFrom` without a prefix, because the pod
does not show it. Only an updated toolkit prevents that.

Fix safety
----------
The fix removes the variable only if the policy says `fix: true`: the program may need it.

References
----------
- https://nvidia.custhelp.com/app/answers/detail/a_id/5659
- https://www.wiz.io/blog/nvidia-ai-vulnerability-cve-2025-23266-nvidiascape
"""

from rules.base.json_values import display
from rules.base.traits import GPU, GPU_VARIABLE, LD_VARIABLE
from rules.gpu.devices import requests_gpu
from rules.gpu.visibility import prefix_findings, remove_edits
from rules.in_process.expression import (
    Expression,
    all_of,
    any_of,
    choose,
    expression,
    get,
    has,
    text,
)
from rules.in_process.statement import CONTAINER, Statement, shown
from rules.in_process.variables import prefix_statement
from rules.rule import Action, Container, Context, Finding, Findings, Fix, Pod, define_rule

HOLDS = " holds a GPU and"
BY_REFERENCE = "by reference"
EFFECT = ", by which an outdated container toolkit may run the container's own code on the node"
SEARCH_PATH_VARIABLE = "LD_LIBRARY_PATH"
# The characters that separate the entries of each variable, see ld.so(8).
SEPARATORS_BY_VARIABLE = {"LD_PRELOAD": ": ", "LD_AUDIT": ":", SEARCH_PATH_VARIABLE: ":;"}


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each variable by which the loader may take a library from the container's files."""
    for container in filter(requests_gpu, pod.containers):
        for variable in SEPARATORS_BY_VARIABLE:
            subject = f"{container}{HOLDS}"
            yield from prefix_findings(container, variable, subject=subject, effect=EFFECT)
            if variable in container.env:
                value = container.env_value(variable)
                if value is None or any(map(_depends_on_process, checked_entries(variable, value))):
                    yield _finding(container, variable, value)


def checked_entries(variable: str, value: str) -> list[str]:
    """The entries of `value` that the rule checks; in a search path each with a `/` at the end."""
    for separator in SEPARATORS_BY_VARIABLE[variable]:
        value = value.replace(separator, "\n")
    parts = [entry for entry in value.split("\n") if entry]
    if variable == SEARCH_PATH_VARIABLE:
        read = (entry for entry in parts if not entry.startswith("$") or "/.." in entry)
        return [entry if entry.endswith("/") else f"{entry}/" for entry in read]
    return parts


def _depends_on_process(entry: str) -> bool:
    """Return whether the file that `entry` names depends on the process that loads it.

    The loader searches for a name without `/` in its own directories, so such a name is fine.
    """
    if not entry.startswith("/"):
        return entry.startswith("$") or "/" in entry
    return entry.startswith(_LEADING_TO_PROCESS) or "/.." in entry


def _finding(container: Container, variable: str, value: str | None) -> Finding:
    setting = BY_REFERENCE if value is None else f"to {display(value)}"
    message = _message(container, variable, setting)
    fix = Fix(f"remove {variable}", remove_edits(container, variable))
    path = container.env_value_path(variable)
    if value is None:
        path = (*container.env_path(variable), "valueFrom")
    return Finding(
        path=path,
        key=variable,
        message=message,
        container=container,
        help=_advice(variable),
        fix=fix,
    )


def _message(container: object, variable: str, setting: object) -> str:
    return f"{container}{HOLDS} sets {variable} {setting}{EFFECT}"


def _advice(variable: str) -> str:
    return f"write absolute paths in {variable}, or remove it"


# /dev/fd and /dev/stdin are links to /proc/self/fd. Slashes and dots may stand before each name.
_LEADING_TO_PROCESS = (
    *("/proc/", "/dev/fd", "/dev/std"),
    *("//", "/./", "/dev//", "/dev/."),
)
# Longer values count as such that depend on the process: to search them costs too much.
_MAX_VALUE = 500
# `_depends_on_process` of some entry of a value.
_ABSOLUTE = r"/(?:proc/|dev/(?:fd|std|[./])|/|\./)"
_ENTRIES = {
    "LD_PRELOAD": rf"(?:^|[: \n])(?:\$|{_ABSOLUTE}|[^/$: \n][^/: \n]*/)|/\.\.",
    "LD_AUDIT": rf"(?:^|[:\n])(?:\$|{_ABSOLUTE}|[^/$:\n][^/:\n]*/)|/\.\.",
    SEARCH_PATH_VARIABLE: rf"(?:^|[:;\n])(?:{_ABSOLUTE}|/(?:proc|\.)(?:[:;\n]|$)|[^/$:;\n])|/\.\.",
}


def in_process() -> tuple[Statement, ...]:
    """`check` in CEL."""
    prefixes = (
        prefix_statement(variable, EFFECT, CONTAINER.requestsGpu, subject=HOLDS)
        for variable in SEPARATORS_BY_VARIABLE
    )
    return (*map(_statement, SEPARATORS_BY_VARIABLE), *prefixes)


def _statement(variable: str) -> Statement:
    entries = get(CONTAINER.raw, "env", []).filter(lambda e: e.name == variable)
    last = expression([entries]).filter(lambda es: es.size() > 0).map(lambda es: es[es.size() - 1])

    def may_depend_on_process(t: Expression) -> Expression:
        return any_of(t.size() > _MAX_VALUE, t.matches(_ENTRIES[variable]))

    def is_fault(e: Expression) -> Expression:
        value = expression([get(e, "value", "")])
        return any_of(has(e, "valueFrom"), value.exists(may_depend_on_process))

    def setting(e: Expression) -> Expression:
        value = shown(get(e, "value", ""))
        return choose((has(e, "valueFrom"), BY_REFERENCE), otherwise=text(f"to {value}"))

    return Statement(
        "container",
        all_of(CONTAINER.requestsGpu, last.exists(is_fault)),
        text(_message(CONTAINER.text, variable, last.map(setting)[0])),
        _advice(variable),
        leaves_out=f"a value of more than {_MAX_VALUE:,} characters counts as a relative path",
    )


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(LD_VARIABLE | GPU_VARIABLE, GPU))

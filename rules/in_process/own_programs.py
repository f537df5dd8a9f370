"""Twin of `rules.gpu.own_programs`: whether a container runs the program of its image, in CEL."""

from collections.abc import Iterable

from rules.gpu.own_programs import CODE_PATTERN, CODE_VARIABLES, HOOKS_AND_PROBES, PARENT
from rules.in_process.patterns import matches_any
from rules.in_process.statement import cel
from rules.in_process.volumes import clean_path


def runs_own_program(container: str, programs: Iterable[str]) -> str:
    """`runs_own_program` of the CEL `container`."""
    command = f"{container}.?command.orValue([])"
    is_code = (
        f"m.mountPath.contains({cel(PARENT)})"
        f" || {clean_path('m.mountPath')}.matches({cel(CODE_PATTERN)})"
    )
    commands = ("".join(f".?{key}" for key in (*path, "exec")) for path in HOOKS_AND_PROBES)
    tests = (
        f"{command}.size() == 0 || {command}[0] in {cel(sorted(programs))}",
        f"{container}.?envFrom.orValue([]).size() == 0",
        f"!{container}.?env.orValue([]).exists(e, {matches_any('e.name', CODE_VARIABLES)})",
        f"!{container}.?volumeMounts.orValue([]).exists(m, {is_code})",
        *(f"!{container}{path}.hasValue()" for path in commands),
    )
    return " && ".join(f"({test})" for test in tests)

"""Twin of `rules.gpu.own_programs`: whether a container runs the program of its image, in CEL."""

from collections.abc import Iterable

from rules.gpu.own_programs import CODE_PATTERN, CODE_VARIABLES, HOOKS_AND_PROBES, PARENT
from rules.in_process.expression import (
    Expression,
    all_of,
    any_of,
    get,
    has,
    is_in,
    not_,
    string,
)
from rules.in_process.patterns import matches_any
from rules.in_process.volumes import clean_path
from rules.profile.platforms.makers import AGENT_PROGRAM_PATTERN, AGENT_SCRIPT_PATTERN


def runs_own_program(container: Expression, programs: Iterable[str]) -> Expression:
    """`runs_own_program` of `container`, as it was written."""
    command = get(container, "command", [])
    env, mounts = get(container, "env", []), get(container, "volumeMounts", [])
    return all_of(
        any_of(command.size() == 0, is_in(command[0], sorted(programs))),
        get(container, "envFrom", []).size() == 0,
        not_(env.exists(lambda e: matches_any(e.name, CODE_VARIABLES))),
        not_(mounts.exists(lambda m: _may_be_code(m.mountPath))),
        *(not_(has(container, ".".join((*path, "exec")))) for path in HOOKS_AND_PROBES),
    )


def runs_program_of_agent(container: Expression) -> Expression:
    """`runs_program_of_agent` of `container`, as it was written."""
    command, args = get(container, "command", []), get(container, "args", [])
    hooks = (get(container, ".".join((*path, "exec.command")), []) for path in HOOKS_AND_PROBES)
    return all_of(_is_of_agent(command, command + args), *(_is_of_agent(h, h) for h in hooks))


def _is_of_agent(command: Expression, words: Expression) -> Expression:
    return any_of(
        command.size() == 0,
        string(command[0]).matches(AGENT_PROGRAM_PATTERN),
        words.join(" ").matches(AGENT_SCRIPT_PATTERN),
    )


def _may_be_code(path: Expression) -> Expression:
    return any_of(path.contains(PARENT), clean_path(path).matches(CODE_PATTERN))

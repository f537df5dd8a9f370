"""Containers that run the program of their image, and no code that their author chose."""

import re
from collections.abc import Collection, Mapping
from typing import Any

from rules.base.json_values import as_object, as_text
from rules.base.text_matching import matches_any
from rules.gpu.volumes import clean_path
from rules.objects.container import Container
from rules.profile.platforms.makers import AGENT_PROGRAM_PATTERN, AGENT_SCRIPT_PATTERN

# From where code is run: the folders of programs and libraries, what the loader reads, and what
# these are in.
CODE_PATTERN = (
    r"^/(?:$|(?:bin|sbin|lib[^/]*|usr|opt|proc)(?:/|$)|etc(?:/ld\.so|/alternatives(?:/|$)|$))"
)
PARENT = ".."
# By these the author of a container chooses code: ld.so(8), bash(1), iconv_open(3), python(1),
# perlrun(1), config(5ssl), libraries that CUDA loads for profilers, DCGM's program for diagnoses.
CODE_VARIABLES = (
    *("LD_*", "GCONV_PATH", "PATH", "ENV", "BASH*", "SHELLOPTS", "PS4", "PYTHON*", "PERL*"),
    *("OPENSSL_*", "*INJECTION*", "*_BIN_PATH"),
)
# In which fields of a container, beside its own, a command may be.
HOOKS_AND_PROBES = (
    ("lifecycle", "postStart"),
    ("lifecycle", "preStop"),
    ("livenessProbe",),
    ("readinessProbe",),
    ("startupProbe",),
)


def runs_own_program(container: Container, programs: Collection[str]) -> bool:
    """Return whether `container` runs only the program of its image or one of `programs`.

    Its author may choose neither by a variable nor by a volume what is loaded or run, and no hook
    or probe may run a command.
    """
    raw = container.raw
    return (
        _names_program(raw.get("command"), programs)
        and not raw.get("envFrom")
        and not any(matches_any(CODE_VARIABLES, name) for name in container.env)
        and not any(_is_code(as_text(m.get("mountPath"))) for _, m in container.mounts)
        and not any(_has_command(raw, path) for path in HOOKS_AND_PROBES)
    )


def runs_program_of_agent(container: Container) -> bool:
    """Return whether `container`, with another maker's agent, runs that agent.

    Makers' manifests name many programs, and mount libraries of the node for them. A hook or a
    probe may run no other program either.
    """
    raw = container.raw
    hooks = (_command(raw, path) for path in HOOKS_AND_PROBES)
    return _is_of_agent(raw.get("command"), raw.get("args")) and all(map(_is_of_agent, hooks))


def _is_of_agent(command: Any, args: Any = None) -> bool:
    if not isinstance(command, list) or not command:
        return True
    if re.search(AGENT_PROGRAM_PATTERN, as_text(command[0])):
        return True
    script = " ".join(map(as_text, (*command, *(args if isinstance(args, list) else ()))))
    return re.search(AGENT_SCRIPT_PATTERN, script) is not None


def _names_program(command: Any, programs: Collection[str]) -> bool:
    return not command or (isinstance(command, list) and as_text(command[0]) in programs)


def _is_code(path: str) -> bool:
    # Where `..` leads depends on the links of the image.
    return PARENT in path or re.search(CODE_PATTERN, clean_path(path)) is not None


def _has_command(raw: Mapping[str, Any], path: tuple[str, ...]) -> bool:
    return _hook(raw, path).get("exec") is not None


def _command(raw: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    return as_object(_hook(raw, path).get("exec")).get("command")


def _hook(raw: Mapping[str, Any], path: tuple[str, ...]) -> Mapping[str, Any]:
    for key in path:
        raw = as_object(raw.get(key))
    return raw

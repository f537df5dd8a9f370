"""The commands of containers, as far as rules read them."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rules.base.json_values import Path, as_object, as_text
from rules.base.traits import PROGRAM_WORDS
from rules.objects.container import Container

_COMMAND_FIELDS = ("command", "args")
# What the kubelet runs in a container besides its command: hooks and probes.
EXEC_PATHS: tuple[tuple[str, ...], ...] = (
    *(("lifecycle", hook, "exec") for hook in ("postStart", "preStop")),
    *((f"{kind}Probe", "exec") for kind in ("liveness", "readiness", "startup")),
)
# Of a pod, together. Longer texts are programs rather than commands, and to search all that a pod
# can have would take seconds.
MAX_COMMAND_CHARACTERS = 100_000


class Command:
    """The command of a container: `texts` are the entries of `command` and `args`, in order.

    `raw`, at `path`, is the container, or the `exec` of a hook or a probe.
    """

    def __init__(self, raw: Mapping[str, Any], path: Path) -> None:
        self._path = path
        self._places: list[tuple[str, int]] = []
        self.texts: list[str] = []
        for field in _COMMAND_FIELDS:
            listed = raw.get(field)
            for index, text in enumerate(listed if isinstance(listed, list) else ()):
                if isinstance(text, str):
                    self._places.append((field, index))
                    self.texts.append(text)

    def path(self, number: int) -> Path:
        """The path of the text with this number."""
        return (*self._path, *self._places[number])

    def __iter__(self) -> Iterator[tuple[Path, str]]:
        """The texts with their paths, which most rules never need."""
        for number, text in enumerate(self.texts):
            yield self.path(number), text


def commands_of(containers: Iterable[Container]) -> Iterator[tuple[Container, Command]]:
    """The command of each of `containers`, up to a bound; without those of hooks and probes.

    A container whose command does not fit in what those before it have left is skipped.
    """
    alone = ((container, (Command(container.raw, container.path),)) for container in containers)
    for container, commands in _bounded(alone):
        if commands is not None:
            yield container, commands[0]


def bounded_commands(
    containers: Iterable[Container],
) -> Iterator[tuple[Container, Sequence[Command] | None]]:
    """Everything that runs in each of `containers`, also by hooks and probes: for bypasses.

    None for a container whose commands do not fit in what those before it have left.
    """
    return _bounded((container, _all_commands(container)) for container in containers)


def _bounded(
    commands_by_container: Iterable[tuple[Container, Sequence[Command]]],
) -> Iterator[tuple[Container, Sequence[Command] | None]]:
    left = MAX_COMMAND_CHARACTERS
    for container, commands in commands_by_container:
        length = sum(len(text) for command in commands for text in command.texts)
        if length <= left:
            left -= length
            yield container, commands
        else:
            yield container, None


def _all_commands(container: Container) -> Sequence[Command]:
    return tuple(
        Command(raw, (*container.path, *path)) for path, raw in _command_holders(container.raw)
    )


def _command_holders(raw: Mapping[str, Any]) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """The container `raw` and its hooks and probes that run a command, with their paths in it."""
    yield (), raw
    for path in EXEC_PATHS:
        if path[0] in raw:
            found: Any = raw
            for field in path:
                found = as_object(found.get(field))
            if found:
                yield path, found


def gpu_program(raw: Mapping[str, Any], words: Sequence[str] = PROGRAM_WORDS) -> str:
    """The first of `words` that what runs in the container `raw` has; empty if it has none.

    By default these are programs for GPUs.
    """
    for _, holder in _command_holders(raw):
        for field in _COMMAND_FIELDS:
            listed = holder.get(field)
            for text in listed if isinstance(listed, list) else ():
                for word in words:
                    if word in as_text(text):
                        return word
    return ""


_REFERENCE_PATTERN = r"\$\(([^()$]*)\)"
# Many mounts may refer to one long value, so a longer result counts as unknown.
MAX_EXPANDED_CHARACTERS = 256


def expand_variables(container: Container, text: str) -> str | None:
    """`text` with the values of the variables to which it refers as `$(NAME)`.

    None if the pod does not show the result: a value is a reference or refers to others, or the
    text has a `$$`. None also if the result has more than `MAX_EXPANDED_CHARACTERS` characters.
    """
    if "$" not in text:
        return text
    if len(text) > MAX_EXPANDED_CHARACTERS or "$$" in text:
        return None
    parts: list[str] = []
    length = end = 0
    for reference in re.finditer(_REFERENCE_PATTERN, text):
        value = container.env_value(reference[1])
        if value is None or "$" in value:
            return None
        length += len(value)
        if length > MAX_EXPANDED_CHARACTERS:
            return None
        parts += (text[end : reference.start()], value)
        end = reference.end()
    rest = text[end:]
    return None if "$(" in rest else "".join((*parts, rest))

"""The commands of containers, as far as rules read them."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rules.base.json_values import Path, as_text
from rules.base.traits import PROGRAM_WORDS
from rules.objects.container import Container

_COMMAND_FIELDS = ("command", "args")
# Of a pod, together. Longer texts are programs rather than commands, and to search all that a pod
# can have would take seconds.
MAX_COMMAND_CHARACTERS = 100_000


class Command:
    """What a container runs. `texts` are the entries of `command` and `args`, in order."""

    def __init__(self, container: Container) -> None:
        self._path = container.path
        self._places: list[tuple[str, int]] = []
        self.texts: list[str] = []
        for field in _COMMAND_FIELDS:
            listed = container.raw.get(field)
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
    """The command of each of `containers`, up to a bound.

    A container whose command does not fit in what those before it have left is skipped.
    """
    for container, command in bounded_commands(containers):
        if command is not None:
            yield container, command


def bounded_commands(containers: Iterable[Container]) -> Iterator[tuple[Container, Command | None]]:
    """The same with None for a container that `commands_of` skips: for rules about bypasses."""
    left = MAX_COMMAND_CHARACTERS
    for container in containers:
        command = Command(container)
        length = sum(map(len, command.texts))
        if length <= left:
            left -= length
            yield container, command
        else:
            yield container, None


_REFERENCE_PATTERN = r"\$\(([^()$]*)\)"
# Many mounts may refer to one long value, so a longer result counts as unknown.
MAX_EXPANDED_CHARACTERS = 256


def gpu_program(raw: Mapping[str, Any]) -> str:
    """The program for GPUs that the container `raw` names in its command; empty if none."""
    for field in _COMMAND_FIELDS:
        listed = raw.get(field)
        for text in listed if isinstance(listed, list) else ():
            for word in PROGRAM_WORDS:
                if word in as_text(text):
                    return word
    return ""


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

"""The commands of containers, as far as rules read them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rules.base.json_values import Path
from rules.objects.container import Container

_FIELDS = ("command", "args")
# Of a pod, together. Longer texts are programs rather than commands, and to search all that a pod
# can have would take seconds.
MAX_CHARACTERS = 100_000


class Command:
    """What a container runs. `texts` are the entries of `command` and `args`, in order."""

    def __init__(self, container: Container) -> None:
        self._path = container.path
        self._places: list[tuple[str, int]] = []
        self.texts: list[str] = []
        for field in _FIELDS:
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


def bounded_commands(
    containers: Iterable[Container],
) -> Iterator[tuple[Container, Command | None]]:
    """The same with None for a container that `commands_of` skips: for rules about bypasses."""
    left = MAX_CHARACTERS
    for container in containers:
        command = Command(container)
        length = sum(map(len, command.texts))
        if length <= left:
            left -= length
            yield container, command
        else:
            yield container, None

"""The commands of containers, as far as rules read them."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rules.base.json_patch import Path
from rules.objects.container import Container

_FIELDS = ("command", "args")
# Of a pod, together. Longer texts are programs rather than commands, and to search all that a pod
# can have would take seconds.
MAX_CHARACTERS = 100_000


class CommandText(NamedTuple):
    """An entry of `command` or `args`, and its path."""

    path: Path
    text: str


def commands_of(
    containers: Iterable[Container],
) -> Iterator[tuple[Container, list[CommandText]]]:
    """The entries of command and arguments of each of `containers`, up to a bound.

    A container whose commands do not fit in what those before it have left is skipped.
    """
    for container, texts in bounded_commands(containers):
        if texts is not None:
            yield container, texts


def bounded_commands(
    containers: Iterable[Container],
) -> Iterator[tuple[Container, list[CommandText] | None]]:
    """The same with None for a container that `commands_of` skips: for rules about bypasses."""
    left = MAX_CHARACTERS
    for container in containers:
        texts = _texts(container)
        length = sum([len(text) for _, text in texts])
        if length <= left:
            left -= length
            yield container, texts
        else:
            yield container, None


def _texts(container: Container) -> list[CommandText]:
    texts, path = [], container.path
    for field in _FIELDS:
        listed = container.raw.get(field)
        for index, text in enumerate(listed if isinstance(listed, list) else ()):
            if isinstance(text, str):
                texts.append(CommandText((*path, field, index), text))
    return texts

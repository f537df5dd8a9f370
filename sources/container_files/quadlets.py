"""The settings of containers in units of Podman's Quadlet.

Source: https://docs.podman.io/en/latest/markdown/podman-systemd.unit.5.html
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

from rules.gpu.commands.container_tools import RunOption, run_options
from rules.objects.object_ref import ObjectRef
from rules.profile.profile import Profile
from sources.container_files.settings import LocatedSetting, setting_of_option

_SECTION_PATTERN = re.compile(r"\[([^\[\]]+)\]")
# Keys of a container, and the options of `podman run` that they stand for
_OPTION_BY_KEY = {
    "AddDevice": "--device",
    "Environment": "--env",
    "Mount": "--mount",
    "Volume": "--volume",
}
_ARGUMENTS_KEY = "PodmanArgs"


class _Line(NamedTuple):
    """A key with its value, and the place of its first line."""

    key: str
    value: str
    start: int
    end: int


def quadlet_settings(text: str, file: ObjectRef, profile: Profile) -> Iterator[LocatedSetting]:
    """The settings of the container of a unit that give it a GPU."""
    for line in _container_lines(text):
        for option in _options(line):
            setting = setting_of_option(option, "the container of the unit", file, profile)
            if setting:
                yield LocatedSetting(setting, line.start, line.end, line.start)


def _options(line: _Line) -> Iterator[RunOption]:
    words = [line.value] if line.key == "Volume" else _words(line.value)
    if line.key == _ARGUMENTS_KEY:
        yield from run_options(["podman", "run", *words])
    elif option := _OPTION_BY_KEY.get(line.key):
        for word in words:
            # A device behind a dash need not exist.
            value = word.removeprefix("-") if line.key == "AddDevice" else word
            yield from run_options(["podman", "run", option, value])


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # a quote that does not end
        return text.split()


def _container_lines(text: str) -> list[_Line]:
    """The lines of the section of the container that count: an empty value takes back its key's."""
    found: dict[str, list[_Line]] = {}
    section = ""
    for start, end, line in _logical_lines(text):
        if match := _SECTION_PATTERN.fullmatch(line):
            section = match[1]
            continue
        key, equals, value = (part.strip() for part in line.partition("="))
        if section != "Container" or not equals:
            continue
        lines = found.setdefault(key, [])
        if value:
            lines.append(_Line(key, value, start, end))
        else:
            lines.clear()
    return sorted(chain.from_iterable(found.values()), key=attrgetter("start"))


def _logical_lines(text: str) -> Iterator[tuple[int, int, str]]:
    """The lines without comments, with those that they continue; and where each begins and ends."""
    offset = 0
    parts: list[str] = []
    begin = end = 0
    for raw in text.split("\n"):
        start, offset = offset, offset + len(raw) + 1
        line = raw.strip()
        if not line or line.startswith(("#", ";")):
            continue
        if not parts:
            begin = start + len(raw) - len(raw.lstrip())
            end = start + len(raw.rstrip())
        parts.append(line.removesuffix("\\"))
        if not line.endswith("\\"):
            yield begin, end, "".join(parts)
            parts = []
    if parts:
        yield begin, end, "".join(parts)

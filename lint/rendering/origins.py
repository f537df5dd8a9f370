"""Where a finding in a rendering is from: the place in a template, a values file or a manifest."""

from __future__ import annotations

import os
from typing import NamedTuple, Protocol

from kubeyaml import Document
from lint.excerpts import Span
from reports.findings import LocatedFinding
from rules.base.json_values import Path
from sources.manifests import File
from sources.sources import MAX_BYTES, Source

_MAX_LINE = 2_000  # characters that are shown


class Origin(NamedTuple):
    """A place in a file: the one that a finding is about, or one near it.

    `document` and `path` are the place in a manifest, whose comments the rendering does not have.
    They are only given if the manifest is certainly the one that was rendered.
    """

    file: File
    span: Span
    document: Document | None = None
    path: Path = ()


class Work:
    """The steps that may be spent on finding origins in a run; without any left, they are coarse.

    A step takes a few microseconds.
    """

    def __init__(self, steps: int = 3_000_000) -> None:
        self._left = steps

    def spend(self, steps: int) -> bool:
        """Take `steps`; whether there were as many."""
        self._left -= steps
        return self._left >= 0


class OriginFinder(Protocol):
    """Finds the origins of the findings in one rendering."""

    def find(self, located: LocatedFinding) -> Origin | None:
        """The origin of a finding in the rendering; None if no file can be named."""


class SourceFiles:
    """The files that renderings are from, each read once."""

    def __init__(self) -> None:
        self._files: dict[str, File | None] = {}

    def read(self, name: str) -> File | None:
        """The file called `name`; None if it cannot be read."""
        if name not in self._files:
            self._files[name] = _read(name)
        return self._files[name]


def line_span(file: File, number: int) -> Span:
    """The text of the line `number`, from 1, without its indentation and list marker."""
    text, start = file.source.text, file.line_start(number)
    end = text.find("\n", start, start + _MAX_LINE)
    line = text[start : end if end >= 0 else start + _MAX_LINE].partition(" #")[0].rstrip()
    shown = line.lstrip().removeprefix("- ").lstrip()
    column = len(line) - len(shown)
    return Span(start + column, start + len(line), number, column + 1)


def _read(name: str) -> File | None:
    try:
        if not os.path.isfile(name):
            return None
        with open(name, "rb") as file:
            content = file.read(MAX_BYTES + 1)
        return File(Source(name, content.decode())) if len(content) <= MAX_BYTES else None
    except (OSError, UnicodeDecodeError):
        return None

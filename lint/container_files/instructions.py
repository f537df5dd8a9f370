"""Split a Dockerfile into its instructions.

No package that is still maintained reads Dockerfiles without a program of another language, and
little is needed: https://docs.docker.com/reference/dockerfile/
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

_ESCAPE = re.compile(r"#\s*escape\s*=\s*([\\`])", re.IGNORECASE)
_HEREDOC = re.compile(r"<<-?\s*([\"']?)(\w+)\1")
_WITH_HEREDOC = ("RUN", "COPY", "ADD")


class Instruction(NamedTuple):
    """An instruction; `offsets` are where its lines begin in `text` and in the file."""

    word: str
    text: str
    offsets: list[tuple[int, int]]

    @property
    def start(self) -> int:
        """The offset in the file at which the instruction begins."""
        return self.offsets[0][1]

    def place(self, index: int) -> int:
        """The offset in the file of the character at `index` of `text`."""
        at, start = self.offsets[bisect_right(self.offsets, index, key=lambda pair: pair[0]) - 1]
        return start + index - at


def instructions(text: str) -> Iterator[Instruction]:
    """The instructions of a Dockerfile, without comments, and without here-documents."""
    first = _ESCAPE.match(text)
    escape = first[1] if first else "\\"
    parts: list[str] = []
    offsets: list[tuple[int, int]] = []
    length = offset = 0
    waiting: list[str] = []  # the words that end here-documents
    for line in text.splitlines(keepends=True):
        begin, offset = offset, offset + len(line)
        content = line.strip()
        if waiting:
            if content == waiting[0]:
                waiting.pop(0)
            continue
        if content.startswith("#") or not content:
            continue
        begin += len(line) - len(line.lstrip())
        is_continued = content.endswith(escape)
        content = f"{content[:-1]} " if is_continued else content
        offsets.append((length, begin))
        parts.append(content)
        length += len(content)
        if not is_continued:
            instruction = _instruction(parts, offsets)
            yield instruction
            if instruction.word in _WITH_HEREDOC:
                waiting = [match[2] for match in _HEREDOC.finditer(instruction.text)]
            parts, offsets, length = [], [], 0
    if parts:
        yield _instruction(parts, offsets)


def _instruction(parts: list[str], offsets: list[tuple[int, int]]) -> Instruction:
    text = "".join(parts)
    return Instruction(next(iter(text.split(maxsplit=1)), "").upper(), text, offsets)

"""Split a Dockerfile into its instructions.

No package that is still maintained reads Dockerfiles without a program of another language, and
little is needed: https://docs.docker.com/reference/dockerfile/. Tests hold it against BuildKit.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import takewhile
from typing import NamedTuple

from sources.container_files.dockerfile_words import Variables, Word, expand, words_of

_DIRECTIVE_PATTERN = re.compile(
    r"#\s*(?P<name>syntax|escape|check)\s*=\s*(?P<value>.*\S)", re.IGNORECASE
)
_HEREDOC_PATTERN = re.compile(r"\d*<<(?P<without_tabs>-?)\s*(?P<word>[^<]+)")
# A builder takes the spaces behind `<<` for a part of the word.
_SPACES_OF_HEREDOC_PATTERN = re.compile(r"(?<!\S)(\d*<<-?)[ \t]+")
_INSTRUCTIONS_WITH_HEREDOC = ("RUN", "COPY", "ADD")


class Instruction(NamedTuple):
    """An instruction.

    - `text`: it without the ends of its lines; `offsets` are where its lines begin in `text` and in
      the file.
    - `escape`: the character of the file that takes its meaning from the next.
    - `behind_keyword`: the index in `text` behind the keyword.
    """

    keyword: str
    text: str
    offsets: list[tuple[int, int]]
    escape: str
    behind_keyword: int

    @property
    def start(self) -> int:
        """The offset in the file at which the instruction begins."""
        return self.offsets[0][1]

    @property
    def flags(self) -> list[str]:
        """The options between the keyword and the arguments, such as `--from=build`."""
        return [word.text for word in self._flags()]

    @property
    def arguments(self) -> list[Word]:
        """The words behind the options."""
        flags = sum(1 for _ in self._flags())
        return [*self._words()][flags:]

    def _words(self) -> Iterator[Word]:
        return words_of(self.text, self.escape, self.behind_keyword)

    def _flags(self) -> Iterator[Word]:
        return takewhile(lambda word: word.text.startswith("--"), self._words())

    def triggered(self) -> Instruction:
        """The instruction behind ONBUILD."""
        keyword = next(self._words(), Word("", len(self.text), len(self.text)))
        return self._replace(keyword=keyword.text.upper(), behind_keyword=keyword.end)

    def file_offset(self, index: int) -> int:
        """The offset in the file of the character at `index` of `text`."""
        at, start = self.offsets[bisect_right(self.offsets, index, key=lambda pair: pair[0]) - 1]
        return start + index - at


def instructions(text: str) -> Iterator[Instruction]:
    """The instructions of a Dockerfile, without comments, and without here-documents."""
    escape = _escape_of(text)
    parts: list[str] = []
    offsets: list[tuple[int, int]] = []
    length = offset = 0
    heredocs: list[_Heredoc] = []
    for line in _lines(text):
        begin, offset = offset, offset + len(line)
        content = line.rstrip("\r\n")
        if heredocs:
            if heredocs[0].ends_at(content):
                heredocs.pop(0)
            continue
        stripped = content.strip()
        if not stripped or stripped.startswith("#"):
            continue
        if not parts:
            begin += len(content) - len(content.lstrip("\N{BOM}" + _SPACES))
            content = content.lstrip("\N{BOM}" + _SPACES)
        unspaced = content.rstrip(" \t")
        is_continued = unspaced.endswith(escape) and not unspaced.endswith(escape * 2)
        content = unspaced[:-1] if is_continued else content
        offsets.append((length, begin))
        parts.append(content)
        length += len(content)
        if not is_continued:
            instruction = _instruction(parts, offsets, escape)
            yield instruction
            heredocs = [*_heredocs(instruction)]
            parts, offsets, length = [], [], 0
    if parts:
        yield _instruction(parts, offsets, escape)


_SPACES = " \t\v\f\r"


def _lines(text: str) -> Iterator[str]:
    start = 0
    while start < len(text):
        end = text.find("\n", start) + 1 or len(text)
        yield text[start:end]
        start = end


def _escape_of(text: str) -> str:
    """Return the character that a directive above the first instruction chooses."""
    for line in _lines(text.lstrip("\N{BOM}")):
        match = _DIRECTIVE_PATTERN.match(line.lstrip())
        if not match:
            break
        if match["name"].lower() == "escape":
            return "`" if match["value"] == "`" else "\\"
    return "\\"


def _instruction(parts: list[str], offsets: list[tuple[int, int]], escape: str) -> Instruction:
    text = "".join(parts)
    keyword = next(words_of(text, escape), Word("", 0, 0))
    return Instruction(keyword.text.upper(), text, offsets, escape, keyword.end)


class _Heredoc(NamedTuple):
    """A here-document: the word at its end, and whether tabs may stand before it."""

    word: str
    without_tabs: bool

    def ends_at(self, line: str) -> bool:
        """Return whether it ends at the line."""
        return (line.lstrip("\t") if self.without_tabs else line) == self.word


def _heredocs(instruction: Instruction) -> Iterator[_Heredoc]:
    """The here-documents that follow the instruction."""
    made = instruction.triggered() if instruction.keyword == "ONBUILD" else instruction
    if made.keyword not in _INSTRUCTIONS_WITH_HEREDOC or "<<" not in instruction.text:
        return
    text = _SPACES_OF_HEREDOC_PATTERN.sub(r"\1", instruction.text)
    for word in words_of(text, "\\"):
        match = _HEREDOC_PATTERN.fullmatch(word.text)
        end = expand(match["word"], Variables(), "\\") if match else None
        if match and end:
            yield _Heredoc(end, bool(match["without_tabs"]))

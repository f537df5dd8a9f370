"""Manifests in other texts: code blocks of Markdown, and here-documents of scripts.

Every function is linear in its input.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from sources.sources import Source, SourcePart, declares_object

_FENCE_PATTERN = re.compile(r"(?P<indent>[ \t>]*)(?P<fence>`{3,}|~{3,})[ \t]*(?P<language>[\w+-]*)")
_MANIFEST_LANGUAGES = frozenset({"", "yaml", "yml", "json", "kubernetes", "k8s"})
_HEREDOC_PATTERN = re.compile(r"<<-?[ \t]*([\"']?)([A-Za-z_]\w*)\1")
_MAX_LINE_CHARACTERS = 1_000  # characters of a line in which a here-document may begin


class _TextBlock(NamedTuple):
    """Lines of a text: the number of the first one, from 0, and those up to the end of the block.

    `language` is the one that a code block of Markdown states.
    """

    first_line: int
    lines: list[str]
    language: str = ""


def manifests_in_markdown(source: Source) -> Iterator[Source]:
    """The manifests in the code blocks of `source`, and in here-documents of these."""
    for block in _code_blocks(source.text.splitlines(keepends=True)):
        language = block.language.lower()
        inner = [
            manifest
            for heredoc in _heredocs(block.lines)
            for manifest in _manifest_in_block(
                source, heredoc._replace(first_line=block.first_line + heredoc.first_line)
            )
        ]
        yield from inner
        # Without a language, a block with here-documents has commands.
        if language in _MANIFEST_LANGUAGES and not (inner and not language):
            yield from _manifest_in_block(source, block)


def manifests_in_script(source: Source) -> Iterator[Source]:
    """The manifests in the here-documents of the script `source`."""
    if "<<" in source.text:
        for block in _heredocs(source.text.splitlines(keepends=True)):
            yield from _manifest_in_block(source, block)


def _manifest_in_block(source: Source, block: _TextBlock) -> Iterator[Source]:
    text = "".join(map(_without_tabs, block.lines))
    if declares_object(text):  # blocks show all kinds of YAML
        part = SourcePart(line_offset=block.first_line)
        yield Source(source.name, text, is_embedded=True, part=part)


def _without_tabs(line: str) -> str:
    """`line` with blanks for the tabs, and for the signs of quotations, that it begins with.

    `<<-` ignores such tabs. No column moves.
    """
    content = line.lstrip(" \t>")
    indent = line[: len(line) - len(content)]
    return " " * len(indent) + content if "\t" in indent or ">" in indent else line


def _code_blocks(lines: list[str]) -> Iterator[_TextBlock]:
    block: _TextBlock | None = None
    fence = ""
    for number, line in enumerate(lines):
        if block is None:
            if opening := _FENCE_PATTERN.match(line):
                fence = opening["fence"]
                block = _TextBlock(number + 1, [], opening["language"])
        elif _closes_fence(line, fence):
            yield block
            block = None
        else:
            block.lines.append(line)
    if block is not None:
        yield block


def _closes_fence(line: str, fence: str) -> bool:
    content = line.strip(" \t>\r\n")
    return content.startswith(fence) and not content.strip(fence[0])


def _heredocs(lines: list[str]) -> Iterator[_TextBlock]:
    block: _TextBlock | None = None
    waiting: list[str] = []  # the words that end here-documents
    for number, line in enumerate(lines):
        if not waiting:
            if "<<" in line and not line.lstrip().startswith("#"):
                waiting = [
                    match[2] for match in _HEREDOC_PATTERN.finditer(line[:_MAX_LINE_CHARACTERS])
                ]
                block = _TextBlock(number + 1, [])
        elif line.strip() == waiting[0]:
            waiting.pop(0)
            if block is not None:
                yield block
            block = _TextBlock(number + 1, [])
        elif block is not None:
            block.lines.append(line)

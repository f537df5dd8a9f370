"""Cut a large file into sources: some of its documents each, or some items of a List."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from lint.large_files import lists
from lint.large_files.json_lists import JsonList
from lint.large_files.lists import ListError
from lint.large_files.text_stream import TextStream, TooLargeError
from lint.large_files.yaml_lists import YamlList
from sources.sources import (
    LARGE,
    MAX_BYTES,
    Input,
    Part,
    Source,
    StandardInput,
    UnreadableSource,
    UnreadFile,
    may_be_large,
)

MAX_STREAM = 1 << 30
_ANCHOR = re.compile(rb"(?:[:?-][ \t\r\n]+|[\[{,][ \t]*)&\w")


def in_parts(inputs: Iterable[Input]) -> Iterator[Input]:
    """`inputs` with several sources in place of a large one."""
    for given in inputs:
        if isinstance(given, StandardInput):
            yield from _cut(given, given.stream)
        elif isinstance(given, UnreadFile) and may_be_large(given):
            yield from _cut_file(given)
        else:
            yield given


def _cut_file(given: UnreadFile) -> Iterator[Input]:
    if (refused := given.refusal()) is not None:
        yield refused
        return
    try:
        with open(given.name, "rb") as file:
            yield from _cut(given, file.read)
    except OSError as error:
        yield UnreadableSource(given.name, (error.strerror or str(error)).lower())


def _cut(given: UnreadFile | StandardInput, read: Callable[[int], bytes]) -> Iterator[Input]:
    head = read(MAX_BYTES + 1)
    is_small = len(head) <= MAX_BYTES
    if len(head) < LARGE or (is_small and (_ANCHOR.search(head) or b"apiVersion" not in head)):
        yield given.source(head)
        return
    rest = iter((head,))
    stream = TextStream(lambda size: next(rest, b"") or read(size), MAX_STREAM)
    found = 0
    try:
        for source in _sources(given.name, stream):
            found += 1
            part = source.part and source.part._replace(is_first=found == 1)
            yield source._replace(part=part)
    except UnicodeDecodeError:
        yield UnreadableSource(given.name, "not UTF-8")
    except TooLargeError:
        yield UnreadableSource(given.name, f"the part beyond {MAX_STREAM >> 20} MiB")
    except ListError as error:
        if not found and is_small:
            yield given.source(head)
        else:
            yield UnreadableSource(given.name, f"from line {stream.line} on: {error}")


def _sources(name: str, stream: TextStream) -> Iterator[Source]:
    while True:
        stream.fill(LARGE)
        if not stream.text:
            return
        end = _end_of_documents(stream)
        if end:
            part = Part(lines=stream.line - 1)
            yield Source(name, stream.take(end), part=part)
            continue
        found = YamlList.begin(stream) or JsonList.begin(stream)
        if found is None:
            raise ListError(f"a document larger than {LARGE >> 20} MiB that is no List")
        yield from found.parts(name)


def _end_of_documents(stream: TextStream) -> int:
    """How much of the text is whole documents, as much as makes a part; 0 for none."""
    text = stream.text
    end = text.find("\n---", lists.PART, LARGE) + 1 or text.rfind("\n---", 1, lists.PART) + 1
    return end or (len(text) if stream.is_complete and len(text) < LARGE else 0)

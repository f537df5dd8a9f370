"""Reads YAML and JSON text as kubectl does, with the span in the text of every key and value.

`split` cuts a file into chunks of one document each; `read` turns a chunk into plain JSON data and
a tree of places.
"""

import re
from collections.abc import Iterator
from typing import Final

from kubeyaml.events import EventReader
from kubeyaml.model import Chunk, Document, Limits, YamlError

DEFAULT_LIMITS: Final = Limits()
BYTE_ORDER_MARK: Final = "\ufeff"
_SEPARATOR: Final = re.compile(r"^---(.*)$", re.MULTILINE)


def split(text: str) -> Iterator[Chunk]:
    """Cut a file at its lines that start with `---`, as kubectl does. Chunks may be empty.

    kubectl gives up at a separator line that holds more than a comment. Here such a line and what
    follows it, up to the next separator, are a chunk with an error.
    """
    start, line, error = 0, 1, None
    for match in _SEPARATOR.finditer(text):
        behind = match[1].strip()
        refused = behind and not behind.startswith("#")
        # Like kubectl, leave the separator in the chunk if nothing stands before it.
        if match.start() > start:
            yield Chunk(text[start : match.start()], start, line, error)
            line += text.count("\n", start, match.start())
            start, error = match.start(), None
            if not refused:
                start, line = match.end() + 1, line + 1
        if refused:
            error = YamlError("only a comment may follow --- on its line", match.start(1))
    if start < len(text):
        yield Chunk(text[start:], start, line, error)


def read(chunk: Chunk, limits: Limits = DEFAULT_LIMITS) -> Document | None:
    """Return the document of a chunk, or None if the chunk is empty or holds only comments.

    Raises YamlError if kubectl would refuse the text, at a second document after `...`, which
    kubectl would drop without a word, and beyond the limits.
    """
    if chunk.error is not None:
        raise chunk.error
    marked = chunk.text.startswith(BYTE_ORDER_MARK)
    reader = EventReader(chunk.text[marked:], chunk.start + marked, limits)
    reader.run()
    if not reader.values or reader.places[0].start == reader.places[0].end:
        return None
    return Document(
        reader.values[0], reader.places[0], chunk.start, chunk.line, tuple(reader.duplicates)
    )

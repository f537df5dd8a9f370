"""Read YAML and JSON text as kubectl does, with the position of every key and value in the text.

`decode` gives the text in the bytes of a file. `split` cuts a file into chunks of one document
each. `read` turns a chunk into plain JSON data and a tree of places (`kubeyaml.model.Place`).
"""

import json
import re
from collections.abc import Iterator
from typing import Final

from kubeyaml.composer import Composer
from kubeyaml.model import Chunk, Document, Limits, Place, YamlError

DEFAULT_LIMITS: Final = Limits()
BYTE_ORDER_MARK: Final = "\ufeff"
_SEPARATOR: Final = "---"
_JSON_DECODER: Final = json.JSONDecoder()
_JSON_START_PATTERN: Final = re.compile(r"\s*\{")


def split(text: str) -> Iterator[Chunk]:
    """Cut the text of a file into documents, as kubectl does.

    Chunks may be empty. kubectl stops at a separator line that has more than a comment behind the
    `---`. Here such a line and the text up to the next separator are a chunk with an `error`. In a
    file that begins with `{`, kubectl also reads JSON objects that nothing separates.
    """
    chunks = _split_at_separators(text)
    if not text.lstrip().startswith("{"):
        return chunks
    return (piece for chunk in chunks for piece in _split_json(chunk))


def _split_at_separators(text: str) -> Iterator[Chunk]:
    start, line, error = 0, 1, None
    for begin, end in _separators(text):
        suffix = text[begin + len(_SEPARATOR) : end].strip()
        is_refused = suffix and not suffix.startswith("#")
        # Like kubectl, leave the separator in the chunk if no text precedes it.
        if begin > start:
            yield Chunk(text[start:begin], start, line, error)
            line += text.count("\n", start, begin)
            start, error = begin, None
            if not is_refused:
                start, line = end + 1, line + 1
        if is_refused:
            why = "only a comment may follow --- on its line"
            error = YamlError(why, begin + len(_SEPARATOR))
    if start < len(text):
        yield Chunk(text[start:], start, line, error)


def _separators(text: str) -> Iterator[tuple[int, int]]:
    """Yield the span of each line that begins with a separator, without its line break."""
    is_first = text.startswith(_SEPARATOR)
    begin = 0 if is_first else text.find("\n" + _SEPARATOR) + 1
    while begin or is_first:
        is_first = False
        end = text.find("\n", begin)
        end = len(text) if end < 0 else end
        yield begin, end
        begin = text.find("\n" + _SEPARATOR, end) + 1


def _split_json(chunk: Chunk) -> Iterator[Chunk]:
    """Cut a chunk between its JSON objects; what is not JSON stays in one piece."""
    text, begin, line = chunk.text, 0, chunk.line
    ends = _ends_of_json_objects(text) if chunk.error is None else iter(())
    for end in ends:
        yield Chunk(text[begin:end], chunk.start + begin, line)
        line += text.count("\n", begin, end)
        begin = end
    if begin == 0 or text[begin:].strip():
        yield Chunk(text[begin:], chunk.start + begin, line, chunk.error)


def _ends_of_json_objects(text: str) -> Iterator[int]:
    """The end of each JSON object that the text begins with."""
    end = 0
    while (match := _JSON_START_PATTERN.match(text, end)) is not None:
        try:
            _, end = _JSON_DECODER.raw_decode(text, match.end() - 1)
        except (ValueError, RecursionError):
            return
        yield end


def read(chunk: Chunk, limits: Limits = DEFAULT_LIMITS) -> Document | None:
    """Return the document of a chunk, or None if the chunk is empty or has only comments.

    Raises YamlError if kubectl would refuse the text, if the document exceeds `limits`, and if a
    second document follows a `...` line: kubectl ignores that document silently.
    """
    return _document_of(chunk, _run_composer(chunk, limits))


def _run_composer(chunk: Chunk, limits: Limits) -> Composer:
    """The composer that has read the chunk. Raises YamlError."""
    if chunk.error is not None:
        raise chunk.error
    has_mark = chunk.text.startswith(BYTE_ORDER_MARK)
    composer = Composer(chunk.text[has_mark:], chunk.start + has_mark, limits)
    composer.run()
    return composer


def _document_of(chunk: Chunk, composer: Composer) -> Document | None:
    """The document of a chunk, whose text the composer has read here or elsewhere."""
    if composer.place is None:
        return None
    base = chunk.start + chunk.text.startswith(BYTE_ORDER_MARK)
    place = Place(composer.place, base)
    if place.start == place.end:
        return None
    end = chunk.start + len(chunk.text)
    shift = base - composer.base
    duplicates = tuple(d._replace(key_start=d.key_start + shift) for d in composer.duplicates)
    return Document(composer.value, place, chunk.start, end, chunk.line, duplicates)


class CachedReader:
    """Reads chunks as `read` does, and equal ones once: what it returns shares their values.

    Renderings of one base have most of their text in common. The memory is for up to `size`
    characters; later texts are read each time.
    """

    def __init__(self, size: int) -> None:
        self._left = size
        self.known: dict[str, Composer] = {}
        """the texts that were read, with what has read them"""

    def read(self, chunk: Chunk) -> Document | None:
        """The document of a chunk, or None if it has none. Raises YamlError."""
        composer = self.known.get(chunk.text) if chunk.error is None else None
        if composer is None:
            composer = _run_composer(chunk, DEFAULT_LIMITS)
            if len(chunk.text) <= self._left:
                self._left -= len(chunk.text)
                self.known[chunk.text] = composer
        return _document_of(chunk, composer)


class ReaderOfKnown:
    """Reads chunks as `read` does, but for those that a CachedReader knows. It keeps nothing."""

    def __init__(self, cached: CachedReader) -> None:
        self._known = cached.known

    def read(self, chunk: Chunk) -> Document | None:
        """The document of a chunk, or None if it has none. Raises YamlError."""
        composer = self._known.get(chunk.text) if chunk.error is None else None
        return _document_of(chunk, composer or _run_composer(chunk, DEFAULT_LIMITS))


_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_GIT_CRYPT = b"\0GITCRYPT\0"


class EncodingError(ValueError):
    """The bytes are not UTF-8; the message says why, and how to write them anew."""


def decode(content: bytes) -> str:
    """The text in `content`. Raises EncodingError if it is not UTF-8."""
    if content.startswith(_GIT_CRYPT):
        raise EncodingError("encrypted by git-crypt: git-crypt unlock decrypts it")
    if _is_utf_16(content):
        raise EncodingError(
            "UTF-16, as `>` of Windows PowerShell writes it: write it as UTF-8, such as with "
            "`| Out-File -Encoding utf8`"
        )
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise EncodingError(f"not UTF-8 (byte {error.start}): write it as UTF-8") from error


def _is_utf_16(content: bytes) -> bool:
    """Return whether `content` begins like UTF-16: with its mark, or half a character of ASCII."""
    return content.startswith(_UTF_16) or content[:2].count(0) == 1

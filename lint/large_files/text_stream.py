"""A text that is read as far as it is needed, and forgotten when it has been used."""

from __future__ import annotations

import codecs
from collections.abc import Callable

_BLOCK = 1 << 20


class TooLargeError(Exception):
    """The stream has more bytes than may be read."""


class TextStream:
    """UTF-8 text from `read`, which returns up to so many bytes.

    `text` is what has been read and not yet taken. It begins at the line `line` of the stream,
    behind `columns` characters of that line. `fill` raises UnicodeDecodeError for other text, and
    TooLargeError when more than `limit` bytes have been read.
    """

    def __init__(self, read: Callable[[int], bytes], limit: int) -> None:
        self.text = ""
        self.line = 1
        self.columns = 0
        self.is_complete = False
        self._read = read
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._left = limit

    def fill(self, size: int) -> None:
        """Read until `text` has `size` characters, or to the end."""
        blocks = [self.text]
        length = len(self.text)
        while length < size and not self.is_complete:
            content = self._read(_BLOCK)
            self._left -= len(content)
            if self._left < 0:
                raise TooLargeError
            self.is_complete = not content
            blocks.append(self._decode(content, final=self.is_complete))
            length += len(blocks[-1])
        self.text = "".join(blocks)

    def take(self, length: int) -> str:
        """Remove the first `length` characters of `text`, and return them."""
        taken, self.text = self.text[:length], self.text[length:]
        last = taken.rfind("\n")
        self.line += taken.count("\n")
        self.columns = len(taken) - last - 1 if last >= 0 else self.columns + len(taken)
        return taken

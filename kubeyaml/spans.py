"""The spans of scalars where libyaml's marks are wrong. All offsets count from the text's start."""

import re
from typing import Final

_COLON: Final = re.compile(r"(?:\s|(?<=\s)#.*)*+:")
_KEEP_BREAKS: Final = re.compile(r"(?:[!&]\S*|\s|#.*)*+[|>][0-9]*\+")
_BREAKS: Final = "\r\n\x85\u2028\u2029"


def empty_value_start(text: str, start: int, key_end: int) -> int:
    """Return where an empty value is, whose key ends at `key_end` if it has one.

    In flow style, and after `? key`, libyaml reports the start of the next token instead.
    """
    in_place = start > key_end and text[start - 1] == ":"
    if in_place or key_end < 0:
        return start
    colon = _COLON.match(text, key_end)
    return colon.end() if colon else key_end


def block_scalar_end(text: str, start: int, end: int) -> int:
    """Return the end of a block scalar; libyaml reports the end of the blank lines after it."""
    body = text[start:end]
    if _KEEP_BREAKS.match(body):
        return start + len(body.removesuffix("\n").removesuffix("\r"))
    return start + len(body.rstrip(_BREAKS))

r"""The escape `\'` in double quotes, which kubectl's parser reads and libyaml refuses.

A character that the text does not have takes the place of the backslash, so that every offset stays
the same, and is taken out of the values again.
"""

import re
from typing import Any, Final

# In a run of backslashes, each pair is one escaped backslash.
_ESCAPES: Final = r"\\\\|(\\)'"
# Of the characters that Unicode leaves to private use.
_CANDIDATES: Final = range(0xE000, 0xE040)


def mark_quotes(text: str) -> tuple[str, str]:
    r"""A character that is not in `text`, and `text` with it in place of the backslash of `\'`.

    The character is empty if the text has no such escape, and if no character is free: libyaml
    then refuses the text.
    """
    marker = _unused_character(text) if "\\'" in text else ""
    if not marker:
        return "", text
    return marker, re.sub(_ESCAPES, lambda match: f"{marker}'" if match[1] else match[0], text)


def _unused_character(text: str) -> str:
    # An escape such as `\ue000` would bring the character into a value.
    present, lower = set(text), text.lower()
    free = (c for c in _CANDIDATES if chr(c) not in present and f"{c:x}" not in lower)
    return next(map(chr, free), "")


def unmark(event: Any, marker: str) -> Any:
    """The scalar `event` with the value that it has in the text as written."""
    if marker in event.value:
        event.value = event.value.replace(marker, "" if event.style == '"' else "\\")
    return event

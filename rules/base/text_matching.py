"""Patterns in which `*` matches any characters, placeholders, and misspelt words."""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from rules.base.caching import MAX_ENTRIES, MAX_KEY_CHARACTERS


def matches(pattern: str, text: str) -> bool:
    """Return whether `text` matches `pattern`, in which each `*` matches any characters, or none.

    Takes time linear in both lengths, because tenants write the texts.
    """
    if "*" not in pattern:
        return text == pattern
    first, *middle, last = pattern.split("*")
    if not text.startswith(first) or len(text) < len(first) + len(last):
        return False
    position, end = len(first), len(text) - len(last)
    for piece in middle:
        start = text.find(piece, position, end)
        if start < 0:
            return False
        position = start + len(piece)
    return text.endswith(last)


def matches_any(patterns: Iterable[str], text: str) -> bool:
    """Return whether `text` matches one of `patterns`."""
    if type(patterns) is tuple and len(text) <= MAX_KEY_CHARACTERS:
        return _matches_any_cached(patterns, text)
    return any(matches(pattern, text) for pattern in patterns)


@lru_cache(maxsize=MAX_ENTRIES)
def _matches_any_cached(patterns: tuple[str, ...], text: str) -> bool:
    return any(matches(pattern, text) for pattern in patterns)


def is_found(pattern: str, text: str) -> bool:
    r"""Return whether the regular expression `pattern` is found in `text`, as API servers find it.

    There, `$` is the end of a text alone. In Python, it is also the place before a line break at
    the end, so `\Z` takes its place: `pattern` has no `$` that is a character.
    """
    return re.search(pattern.replace("$", r"\Z"), text) is not None


def has_placeholder(value: str) -> bool:
    """Return whether `value` contains a template's placeholder: `${POOL}` or `{{ .pool }}`."""
    return "$" in value or "{{" in value


# A word in which more letters differ is another word.
MAX_TYPOS = 2
MAX_COMPARED_NAMES = 500
"""Names of objects with which a misspelt one is compared."""
_SEPARATORS_PATTERN = r"[^a-z0-9]+"


def nearest_word(word: str, known: Iterable[str]) -> str | None:
    """The first of `known` that `word` may be meant for; None if none is near.

    A word that differs only in case and punctuation is nearer than one of other letters.
    """
    words = list(known)
    letters = _letters(word)
    for other in words:
        if letters == _letters(other):
            return other
    for slips in range(1, MAX_TYPOS + 1):
        for other in words:
            if slips < len(other) - 1 and has_few_typos(slips, letters, _letters(other)):
                return other
    return None


def nearest_name(name: str, known: Sequence[str]) -> str | None:
    """The first of the names of objects `known` that `name` may be meant for; None if none is near.

    None too if there are more than MAX_COMPARED_NAMES: to compare them takes long for every pod.
    """
    return nearest_word(name, known) if len(known) <= MAX_COMPARED_NAMES else None


def has_few_typos(slips: int, one: str, other: str) -> bool:
    """Return whether at most `slips` mistakes turn `one` into `other`.

    A mistake is to insert, remove or change a letter, or to exchange two neighbours.
    """
    if not slips:
        return one == other
    length, other_length = len(one), len(other)
    if not -slips <= length - other_length <= slips:
        return False
    # Called too often for a call of min.
    end = length if length < other_length else other_length  # noqa: FURB136
    same = 0
    while same < end and one[same] == other[same]:
        same += 1
    if same == end:  # one begins with the other
        return True
    one, other = one[same:], other[same:]
    ways = [(one[1:], other), (one, other[1:]), (one[1:], other[1:])]
    if one[:2] == other[1::-1]:
        ways.append((one[2:], other[2:]))
    return any(has_few_typos(slips - 1, *way) for way in ways)


def _letters(word: str) -> str:
    return re.sub(_SEPARATORS_PATTERN, "", word.lower())

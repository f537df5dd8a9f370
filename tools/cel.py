"""Tests of texts in CEL, the language of the API server's conditions."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator


def either(tests: Iterable[str]) -> str:
    """Whether one of `tests` holds, one a line."""
    return "\n|| ".join(test.replace("\n", "\n  ") for test in tests)


def holds(text: str, words: Collection[str]) -> Iterator[str]:
    """Tests of whether the CEL `text` has one of `words` in it."""
    for word in sorted(words):
        if not any(other in word for other in words if other != word):
            yield f"{text}.contains({json.dumps(word)})"


def begins(text: str, prefixes: Collection[str]) -> Iterator[str]:
    """Tests of whether the CEL `text` begins with one of `prefixes`."""
    for prefix in sorted(prefixes):
        if not any(prefix.startswith(other) for other in prefixes if other != prefix):
            yield f"{text}.startsWith({json.dumps(prefix)})"


def is_one_of(text: str, patterns: Collection[str]) -> Iterator[str]:
    """Tests of whether the CEL `text` fits one of `patterns`, as far as to their first `*`."""
    prefixes = {pattern.partition("*")[0] for pattern in patterns if "*" in pattern}
    names = sorted(p for p in patterns if "*" not in p and not p.startswith(tuple(prefixes)))
    if names:
        yield f"{text} in {json.dumps(names)}"
    yield from begins(text, prefixes)


def letters(patterns: Iterable[str]) -> set[str]:
    """With which letters `patterns` begin, to tell kinds of machines apart at little cost."""
    return {re.split("[^A-Za-z_]", pattern, maxsplit=1)[0] for pattern in patterns}

"""Build tests in CEL, the expression language of the API server's match conditions.

Each function yields CEL expressions. A parameter called `text` is a CEL expression of a string,
such as `variable.name`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator


def any_of(tests: Iterable[str]) -> str:
    """Return one expression that is true if any of `tests` is, with each test on its own line."""
    return "\n|| ".join(test.replace("\n", "\n  ") for test in tests)


def contains(text: str, words: Collection[str]) -> Iterator[str]:
    """Yield tests of whether `text` contains one of `words`.

    A word that contains another word of `words` needs no test of its own.
    """
    for word in sorted(words):
        if not any(other in word for other in words if other != word):
            yield f"{text}.contains({json.dumps(word)})"


def starts_with(text: str, prefixes: Collection[str]) -> Iterator[str]:
    """Yield tests of whether `text` starts with one of `prefixes`.

    A prefix that starts with another one of `prefixes` needs no test of its own.
    """
    for prefix in sorted(prefixes):
        if not any(prefix.startswith(other) for other in prefixes if other != prefix):
            yield f"{text}.startsWith({json.dumps(prefix)})"


def matches(text: str, patterns: Collection[str]) -> Iterator[str]:
    """Yield tests of whether `text` may match one of `patterns`, in which `*` is any text.

    Only the part of a pattern before its first `*` is tested.
    """
    prefixes = {pattern.partition("*")[0] for pattern in patterns if "*" in pattern}
    names = sorted(p for p in patterns if "*" not in p and not p.startswith(tuple(prefixes)))
    if names:
        yield f"{text} in {json.dumps(names)}"
    yield from starts_with(text, prefixes)


def leading_letters(patterns: Iterable[str]) -> set[str]:
    """Return the letters and underscores that each of `patterns` starts with.

    They are enough to tell the values of one node label apart, and cheap to test.
    """
    return {re.split("[^A-Za-z_]", pattern, maxsplit=1)[0] for pattern in patterns}

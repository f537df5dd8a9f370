"""Patterns of a profile, in CEL."""

import re
from collections.abc import Iterable

from rules.in_process.expression import Expression, all_of, any_of, expression, is_in

# Of a list without an element an API server does not know the type, and this fits nothing.
NOTHING = ("^$",)


def matches_any(text: Expression, patterns: Iterable[str]) -> Expression:
    """`rules.base.text_matching.matches_any`: whether `text` matches one of `patterns`."""
    patterns = tuple(patterns)
    names = [p for p in patterns if "*" not in p]
    tests = [is_in(text, names)] if names else []
    return any_of(*tests, *(_matches(text, p) for p in patterns if "*" in p))


def _matches(text: Expression, pattern: str) -> Expression:
    if pattern == "*":
        return expression(True)
    first, *middle, last = pattern.split("*")
    if middle:
        return text.matches(regex_of(pattern))
    tests = [text.startsWith(first)] if first else []
    tests += [text.endsWith(last)] if last else []
    if first and last:
        tests.append(text.size() >= len(first) + len(last))
    return all_of(*tests)


def stem_of(pattern: str) -> str:
    """Return the beginning that all texts have which `pattern` fits."""
    return pattern.partition("*")[0]


def regex_of(pattern: str) -> str:
    """Return a regular expression that fits what `pattern` fits."""
    return f"(?s)^{'.*'.join(map(re.escape, pattern.split('*')))}$"

"""Patterns of a profile, in CEL."""

import re
from collections.abc import Iterable

from rules.in_process.statement import any_of, cel

# Of a list without an element an API server does not know the type, and this fits nothing.
NOTHING = ("^$",)


def matches_any(text: str, patterns: Iterable[str]) -> str:
    """`rules.base.text_matching.matches_any`: whether the CEL `text` matches one of `patterns`."""
    patterns = tuple(patterns)
    names = [p for p in patterns if "*" not in p]
    tests = [f"{text} in {cel(names)}"] if names else []
    return any_of((*tests, *(_matches(text, p) for p in patterns if "*" in p)))


def _matches(text: str, pattern: str) -> str:
    if pattern == "*":
        return "true"
    first, *middle, last = pattern.split("*")
    if middle:
        return f"{text}.matches({cel(regex_of(pattern))})"
    tests = [f"{text}.startsWith({cel(first)})"] if first else []
    tests += [f"{text}.endsWith({cel(last)})"] if last else []
    if first and last:
        tests.append(f"{text}.size() >= {len(first) + len(last)}")
    return " && ".join(tests)


def stem_of(pattern: str) -> str:
    """Return the beginning that all texts have which `pattern` fits."""
    return pattern.partition("*")[0]


def regex_of(pattern: str) -> str:
    """A regular expression that fits what `pattern` fits."""
    return f"(?s)^{'.*'.join(map(re.escape, pattern.split('*')))}$"

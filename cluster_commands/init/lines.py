"""Lines of YAML, each with the evidence for it as a comment."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from kubeyaml.patch.layout import one_line

_WIDTH = 100
_BEHIND = "  # "


def line(text: str, why: str, indent: int = 0) -> str:
    """A line, with the reason for it."""
    return f"{' ' * indent}{text}{_BEHIND}{why}"


def without_evidence(text: str) -> str:
    """A line without the reason for it."""
    return text.partition(_BEHIND)[0].rstrip("\r\n")


def item(value: object, why: str, indent: int) -> str:
    """An item of a list."""
    return line(f"- {one_line(value)}", why, indent)


def commented(lines: Sequence[str]) -> list[str]:
    """Lines that are there to be uncommented: without the first `# ` they are YAML."""
    return [f"# {text}" for text in lines]


def note(text: str) -> list[str]:
    """A comment of its own, wrapped."""
    return [f"# {part}" for part in textwrap.wrap(text, _WIDTH - 2, break_on_hyphens=False)]


def section(key: str, certain: Sequence[str], possible: Sequence[str], indent: int) -> list[str]:
    """A key with its lines; those that are `possible` are commented out."""
    if not certain and not possible:
        return []
    head = f"{' ' * indent}{key}:"
    return [*([head] if certain else commented([head])), *certain, *commented(possible)]

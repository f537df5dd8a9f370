"""What an editor proposes while somebody types."""

from __future__ import annotations

import re

from lsprotocol.types import CompletionItem, CompletionItemKind, Position

from lint.language_server.policy_paths import place_of_text
from lint.language_server.policy_schema import Choice, choices
from lint.language_server.positions import Positions
from reports.findings import RULES

# The beginning of a comment that suppresses rules, up to the name of one.
_COMMENT = re.compile(r"#[ \t]*gpuward:[ \t]*ignore\[[^\]]*$")
_MAX_LINE = 500


def policy_completion(text: str, positions: Positions, position: Position) -> list[CompletionItem]:
    """The keys and values that may stand at the position of a policy."""
    found = choices(place_of_text(text, positions, position))
    return [_item(choice) for choice in dict.fromkeys(found)]


def comment_completion(text: str, positions: Positions, position: Position) -> list[CompletionItem]:
    """The names of rules, inside the brackets of a comment that suppresses one."""
    end = positions.offset(position)
    before = text[max(positions.line_start(position.line), end - _MAX_LINE) : end]
    if not _COMMENT.search(before):
        return []
    return [_item(Choice(name, rule.summary)) for name, rule in RULES.items()]


def _item(choice: Choice) -> CompletionItem:
    return CompletionItem(
        choice.text,
        kind=CompletionItemKind.Property if choice.is_key else CompletionItemKind.Value,
        documentation=choice.description or None,
        insert_text=f"{choice.text}: " if choice.is_key else None,
    )

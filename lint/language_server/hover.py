"""What an editor shows about the word under the cursor, and proposes while somebody types."""

from __future__ import annotations

import re

from lsprotocol.types import (
    CompletionItem,
    CompletionItemKind,
    Hover,
    MarkupContent,
    MarkupKind,
    Position,
    Range,
)

from lint.language_server.diagnostics import Analysis, Positions
from lint.language_server.policy_schema import (
    Choice,
    choices,
    describe,
    place_of_key,
    place_of_text,
)
from reports.explain import markdown
from reports.findings import RULES

# No rule has a longer name; further characters are not looked at.
_MAX_WORD = 80
_WORD = re.compile(r"[a-zA-Z0-9-]+")


def manifest_hover(analysis: Analysis, positions: Positions, position: Position) -> Hover | None:
    """The rules of the findings at the position, or of the name of a rule in a comment."""
    offset = positions.offset(position)
    rules = {}
    place: Range | None = None
    for found in analysis.found:
        start, end = map(found.file.original_offset, found.located.span[:2])
        if start <= offset <= end:
            rules[found.finding.rule] = found.located.rule
            place = positions.between(start, end)
    if rules:
        return _hover("\n\n---\n\n".join(map(markdown, rules.values())), place)
    return _rule_hover(analysis.text, positions, offset)


def policy_hover(text: str, positions: Positions, position: Position) -> Hover | None:
    """The rule that is named at the position of a policy, or what the key there means."""
    offset = positions.offset(position)
    if rule := _rule_hover(text, positions, offset):
        return rule
    place = place_of_key(text, positions, position)
    description = describe((*place.path, place.key)) if place.key else ""
    return _hover(description) if description else None


def _rule_hover(text: str, positions: Positions, offset: int) -> Hover | None:
    start = max(0, offset - _MAX_WORD)
    for word in _WORD.finditer(text, start, offset + _MAX_WORD):
        if word.start() <= offset <= word.end() and word[0] in RULES:
            return _hover(markdown(RULES[word[0]]), positions.between(word.start(), word.end()))
    return None


def _hover(text: str, place: Range | None = None) -> Hover:
    return Hover(MarkupContent(MarkupKind.Markdown, text), place)


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

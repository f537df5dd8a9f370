"""Texts about the word under the cursor, and proposals while a user types."""

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
    choices_at,
    describe_path,
    place_before,
    place_of_key,
)
from reports.explain import markdown
from reports.findings import RULE_BY_NAME

# No rule has a longer name; further characters are not looked at.
_MAX_WORD_CHARACTERS = 80
_WORD_PATTERN = re.compile(r"[a-zA-Z0-9-]+")


def manifest_hover(analysis: Analysis, positions: Positions, position: Position) -> Hover | None:
    """The rules of the findings at the position, or of the name of a rule in a comment."""
    offset = positions.offset(position)
    rules = {}
    place: Range | None = None
    for found in analysis.found:
        start, end = map(found.file.original_offset, found.located.span[:2])
        if start <= offset <= end:
            rules[found.finding.rule] = found.located.rule
            place = positions.range_between(start, end)
    if rules:
        return _markdown_hover("\n\n---\n\n".join(map(markdown, rules.values())), place)
    return _rule_hover(analysis.text, positions, offset)


def policy_hover(text: str, positions: Positions, position: Position) -> Hover | None:
    """The rule that is named at the position of a policy, or what the key there means."""
    offset = positions.offset(position)
    if rule := _rule_hover(text, positions, offset):
        return rule
    place = place_of_key(text, positions, position)
    description = describe_path((*place.path, place.key)) if place.key else ""
    return _markdown_hover(description) if description else None


def _rule_hover(text: str, positions: Positions, offset: int) -> Hover | None:
    start = max(0, offset - _MAX_WORD_CHARACTERS)
    for word in _WORD_PATTERN.finditer(text, start, offset + _MAX_WORD_CHARACTERS):
        if word.start() <= offset <= word.end() and word[0] in RULE_BY_NAME:
            return _markdown_hover(
                markdown(RULE_BY_NAME[word[0]]), positions.range_between(word.start(), word.end())
            )
    return None


def _markdown_hover(text: str, place: Range | None = None) -> Hover:
    return Hover(MarkupContent(MarkupKind.Markdown, text), place)


# The beginning of a comment that suppresses rules, up to the name of one.
_COMMENT_PATTERN = re.compile(r"#[ \t]*gpuward:[ \t]*ignore\[[^\]]*$")
_MAX_LINE_CHARACTERS = 500


def policy_completion(text: str, positions: Positions, position: Position) -> list[CompletionItem]:
    """The keys and values that may stand at the position of a policy."""
    found = choices_at(place_before(text, positions, position))
    return [_completion_item(choice) for choice in dict.fromkeys(found)]


def comment_completion(text: str, positions: Positions, position: Position) -> list[CompletionItem]:
    """The names of rules, inside the brackets of a comment that suppresses one."""
    end = positions.offset(position)
    before = text[max(positions.line_start(position.line), end - _MAX_LINE_CHARACTERS) : end]
    if not _COMMENT_PATTERN.search(before):
        return []
    return [_completion_item(Choice(name, rule.summary)) for name, rule in RULE_BY_NAME.items()]


def _completion_item(choice: Choice) -> CompletionItem:
    return CompletionItem(
        choice.text,
        kind=CompletionItemKind.Property if choice.is_key else CompletionItemKind.Value,
        documentation=choice.description or None,
        insert_text=f"{choice.text}: " if choice.is_key else None,
    )

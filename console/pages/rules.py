"""The pages of the rules: the catalogue, and what one rule does and why."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, NamedTuple

from policies.policy import Policy
from reports.explain import Example, example_of
from reports.findings import LEVEL_BY_ACTION, RULE_BY_NAME
from rules.all_rules import ALL_RULES
from rules.finding import Action
from rules.rule import Rule


class RuleRow(NamedTuple):
    """A rule of the catalogue. `action` is that of the policy in force."""

    name: str
    family: str
    summary: str
    action: str
    level: str
    since: str
    findings: int


class RulePage(NamedTuple):
    """A rule with its explanation: headings, each with blocks of text, and with an example.

    `diff` is what the fix changes in the example: the sign of each line, and the line.
    """

    row: RuleRow
    default: str
    sections: tuple[tuple[str, tuple[Block, ...]], ...]
    options: tuple[tuple[str, str], ...]
    example: Example | None
    diff: tuple[tuple[str, str], ...]


class Block(NamedTuple):
    """A paragraph, a list or an example. Each text is pieces, some of them code."""

    kind: str
    texts: tuple[tuple[tuple[bool, str], ...], ...]


def catalogue(
    policy: Policy, counts: Mapping[str, int], wanted: str
) -> list[tuple[str, list[RuleRow]]]:
    """The rules by family, of which `wanted` is in the name, the family or the summary."""
    actions = _actions(policy)
    rows = [
        _row(rule, actions, counts)
        for rule in ALL_RULES
        if all(
            word in f"{rule.name} {rule.family} {rule.summary}".lower()
            for word in wanted.lower().split()
        )
    ]
    rows.sort(key=lambda row: (row.family, row.name))
    return [(family, [*members]) for family, members in groupby(rows, lambda row: row.family)]


def rule_page(name: str, policy: Policy, counts: Mapping[str, int]) -> RulePage | None:
    """The page of a rule; None if there is no such rule."""
    rule = RULE_BY_NAME.get(name)
    if rule is None:
        return None
    found = ((heading, tuple(_blocks(text))) for heading, text in rule.documentation.items())
    example = example_of(name)
    changed = example.diff.splitlines() if example else []
    return RulePage(
        _row(rule, _actions(policy), counts),
        rule.action.word,
        tuple((heading, blocks) for heading, blocks in found if heading and blocks),
        tuple((key, _option(value)) for key, value in (rule.options or {}).items()),
        example,
        tuple((line[:1], line[1:]) for line in changed),
    )


def as_document(row: RuleRow) -> dict[str, Any]:
    """A rule as `gpuward rules --output json` writes it, with the action of the policy."""
    return {
        "name": row.name,
        "family": row.family,
        "action": row.action,
        "since": row.since,
        "summary": row.summary,
        "findings": row.findings,
    }


def _actions(policy: Policy) -> Mapping[str, Action]:
    return {active.rule.name: active.action for active in policy.rule_set().rules}


def _row(rule: Rule[Any], actions: Mapping[str, Action], counts: Mapping[str, int]) -> RuleRow:
    action = actions.get(rule.name, Action.OFF)
    level = LEVEL_BY_ACTION.get(action, "off")
    return RuleRow(
        rule.name,
        rule.family,
        rule.summary,
        action.word,
        level,
        rule.since,
        counts.get(rule.name, 0),
    )


def _option(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _blocks(text: str) -> Iterator[Block]:
    """Paragraphs, lists of lines that begin with `- `, and indented examples."""
    for part in re.split(r"\n\s*\n", text):
        lines = part.split("\n")
        if all(line.startswith("    ") for line in lines):
            yield Block("example", (((True, "\n".join(line[4:] for line in lines)),),))
            continue
        items: list[str] = []
        paragraph: list[str] = []
        for line in lines:
            if line.startswith("- "):
                items.append(line[2:].strip())
            elif items:
                items[-1] += f" {line.strip()}"
            else:
                paragraph.append(line.strip())
        if paragraph:
            yield Block("paragraph", (_pieces(" ".join(paragraph)),))
        if items:
            yield Block("list", tuple(map(_pieces, items)))


def _pieces(text: str) -> tuple[tuple[bool, str], ...]:
    """The text cut at backquotes: what is between two of them is code."""
    parts = text.split("`")
    return tuple((n % 2 == 1, part) for n, part in enumerate(parts) if part)

"""The command `gpuward explain RULE`, with an example; of a family, it lists the rules."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from policies.problems import did_you_mean
from reports.findings import LEVEL_BY_ACTION
from rules.all_rules import ALL_RULES
from rules.finding import Action
from rules.rule import Rule
from terminal import CommandParser, write_error


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    parser = CommandParser(
        prog="gpuward explain",
        description="Say what a rule does and why, or which rules a family has. `gpuward rules` "
        "lists rules and families.",
    )
    parser.add_argument("rule", metavar="RULE", help="the name of a rule, or of a family of rules")
    return parser


def main(arguments: list[str]) -> int:
    """Print what the named rule does and why, or the rules of a family; the exit status."""
    wanted = make_parser().parse_args(arguments).rule
    rules = {rule.name: rule for rule in ALL_RULES}
    if members := [rule for rule in ALL_RULES if rule.family == wanted]:
        sys.stdout.write(_family(wanted, members))
        return 0
    if wanted not in rules:
        hint = did_you_mean(wanted, rules, "gpuward rules lists all rules and families")
        write_error("gpuward", f"there is no rule {wanted!r}; {hint}")
        return 2
    sys.stdout.write(explanation(rules[wanted]))
    example = example_of(wanted)
    if example is not None:
        sys.stdout.write(f"\n{example_text(example)}")
    return 0


def _family(name: str, members: Sequence[Rule[Any]]) -> str:
    width = max(len(rule.name) for rule in members)
    lines = sorted(f"  {rule.name:<{width}}  {rule.summary}\n" for rule in members)
    return f"{name} is a family of rules. `gpuward explain RULE` explains one:\n\n{''.join(lines)}"


def explanation(rule: Rule[Any]) -> str:
    """The whole text about `rule`, as shown to people and written into the manual."""
    action = rule.action
    lead = (
        "off" if action is Action.OFF else f"{action.word} ({LEVEL_BY_ACTION[action]} when linting)"
    )
    parts = [f"{rule.name}: {rule.summary}", f"By default: {lead}. Since catalog {rule.since}."]
    for heading, text in rule.documentation.items():
        if heading and text:
            parts.append(f"{heading}\n{text}")
    if rule.options:
        defaults = ", ".join(
            f"{name}: {list(value) if isinstance(value, tuple) else value}"
            for name, value in rule.options.items()
        )
        parts.append(f"Defaults\n{defaults}")
    return "\n\n".join(parts) + "\n"


def markdown(rule: Rule[Any]) -> str:
    """Return the explanation as Markdown, under the name of the rule."""
    sections = rule.documentation.items()
    parts = [f"## {heading}\n\n{text}" for heading, text in sections if heading and text]
    return "\n\n".join([f"# {rule.name}", f"{rule.summary[:1].upper()}{rule.summary[1:]}.", *parts])


class Example(NamedTuple):
    """A manifest that a rule is about.

    `circumstances` are what the rule needs to know beside the manifest, such as a policy or other
    objects: words, and YAML. Most need nothing. `findings` are lines; `diff` is what `gpuward fix`
    changes.
    """

    title: str
    manifest: str
    circumstances: tuple[tuple[str, str], ...]
    findings: tuple[str, ...]
    diff: str


def example_of(rule: str) -> Example | None:
    """The example of the rule of this name; None if it has none."""
    raw: dict[str, Any] | None
    path = Path(__file__).with_name("examples.json")
    raw = json.loads(path.read_text(encoding="utf-8")).get(rule)
    if raw is None:
        return None
    circumstances = tuple((words, text) for words, text in raw["circumstances"])
    findings = tuple(raw["findings"])
    return Example(raw["title"], raw["manifest"], circumstances, findings, raw["diff"])


def example_text(example: Example) -> str:
    """The example as plain text."""
    parts = [f"Example: {example.title}", _indented(example.manifest)]
    for words, text in example.circumstances:
        parts += [words, _indented(text)]
    parts.append("\n".join(f"- {line}" for line in example.findings))
    if example.diff:
        parts += ["`gpuward fix` changes", _indented(example.diff)]
    return "\n\n".join(parts) + "\n"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.splitlines())

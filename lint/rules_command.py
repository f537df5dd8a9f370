"""The command `gpuward rules`."""

from __future__ import annotations

import argparse
import json
import sys
from itertools import groupby

from rules.all_rules import ALL_RULES
from terminal import CommandParser


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    parser = CommandParser(prog="gpuward rules", description="List the rules.")
    parser.add_argument(
        "--output", "-o", choices=("text", "json", "yaml"), default="text", help="default: text"
    )
    return parser


def main(arguments: list[str]) -> int:
    """List the rules by family; the exit status."""
    rules = sorted(ALL_RULES, key=lambda rule: (rule.family, rule.name))
    output = make_parser().parse_args(arguments).output
    if output != "text":
        entries = [
            {
                "name": rule.name,
                "family": rule.family,
                "action": rule.action.word,
                "since": rule.since,
                "summary": rule.summary,
            }
            for rule in rules
        ]
        if output == "json":
            sys.stdout.write(json.dumps(entries, indent=2) + "\n")
        else:
            import yaml  # noqa: PLC0415  # few ask for it

            yaml.dump(entries, sys.stdout, Dumper=yaml.CSafeDumper, sort_keys=False)
        return 0
    width = max(len(rule.name) for rule in rules)
    for family, members in groupby(rules, key=lambda rule: rule.family):
        sys.stdout.write(f"{family}\n")
        for rule in members:
            action = rule.action.word
            sys.stdout.write(f"  {rule.name:<{width}}  {action:<5}  {rule.summary}\n")
    return 0

"""The command `gpuward policy show`: what every rule does, and where that is from."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from kubeyaml import Document, line_and_column
from kubeyaml.writing import write
from lint.policy import Commands
from policies.effective import EffectiveRule, effective_policy, effective_rules
from policies.exceptions import as_patterns
from policies.loading import (
    POLICY_FILE,
    decode_policy,
    default_policy,
    load_policy,
    offset_of,
    parse_document,
    policy_content,
)
from rules.base.json_values import Json, Path
from sources.policy_file import nearest_policy
from terminal import printable

_DESCRIPTION = f"""\
Show the effective policy: what every rule does, and where that is from: the default, a bundle, or
a line of the policy. Without FILE, it is the nearest {POLICY_FILE}, as for `gpuward lint`."""


def add_command(commands: Commands) -> None:
    """Add the command to the parser of `gpuward policy`."""
    parser = commands.add_parser(
        "show",
        help="show what every rule does, and where that is from",
        description=_DESCRIPTION,
        epilog="exit status: 0 shown, 2 wrong usage, or a policy that cannot be used",
    )
    parser.add_argument("file", metavar="FILE", nargs="?", help="a policy, or a ConfigMap with one")
    parser.add_argument("--output", "-o", choices=("text", "yaml", "json"), default="text")
    parser.add_argument("--profile", metavar="NAME", action="append", default=[])
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    file = options.file or nearest_policy(os.getcwd())
    content, name = policy_content(file) if file else (b"", "")
    text = decode_policy(content, name)
    document = parse_document(text, name) if file else None
    if document is None:
        policy = default_policy(options.profile)
    else:
        policy = load_policy(text, name, options.profile)
    raw: Any = dict(document.value) if document and isinstance(document.value, dict) else {}
    if options.profile:
        own = {p["name"]: p for p in raw.get("profiles", ()) if not isinstance(p, str)}
        raw["profiles"] = [own.get(name, name) for name in options.profile]
    position = _Position(name, text, document)
    rules = list(effective_rules(policy, raw, position))
    whole = effective_policy(policy, raw, rules)
    shown = {"text": _text, "yaml": _yaml, "json": _json}[options.output]
    lines = shown(whole, rules, name, raw)
    if options.output == "text":
        lines = [*lines, *_exceptions(raw, position), *_gpu_exceptions(raw, position)]
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return 0


class _Position:
    """Where a path of the policy is in its file."""

    def __init__(self, name: str, text: str, document: Document | None) -> None:
        self._name = name
        self._text = text
        self._document = document

    def __call__(self, path: Path) -> str:
        if self._document is None:
            return self._name
        line, _ = line_and_column(self._text, offset_of(self._document, path))
        return printable(f"{self._name}:{line}")


def _json(
    whole: Mapping[str, Any], rules: list[EffectiveRule], name: str, raw: Mapping[str, Any]
) -> list[str]:
    described = {
        rule.active.rule.name: {
            "family": rule.active.rule.family,
            **rule.settings,
            "sources": {"action": "default", **rule.sources},
        }
        for rule in rules
    }
    extends = list(raw.get("extends", ()))
    result = {"file": name or None, "extends": extends, **whole, "rules": described}
    return [json.dumps(result, indent=2)]


def _yaml(
    whole: Mapping[str, Any], rules: list[EffectiveRule], name: str, raw: Mapping[str, Any]
) -> Iterator[str]:
    """A policy that acts in the same way and extends nothing; comments say what is from where."""
    yield f"# The effective policy of {printable(name) or 'the defaults'}{_bundles(raw)}."
    for key, value in whole.items():
        if key != "rules":
            yield from _yaml_lines({key: value}, flow=False)
            continue
        yield "rules:"
        for rule in rules:
            (line,) = _yaml_lines({rule.active.rule.name: rule.settings}, flow=True)
            yield f"  {line[1:-1]} # {_sources(rule)}"


def _yaml_lines(value: Json, *, flow: bool) -> list[str]:
    return write(value, flow=flow, width=10**6).rstrip("\n").split("\n")


def _text(
    whole: Mapping[str, Any], rules: list[EffectiveRule], name: str, raw: Mapping[str, Any]
) -> Iterator[str]:
    profiles = [p if isinstance(p, str) else p["name"] for p in whole["profiles"]]
    yield f"{printable(name) or 'default policy'}: profiles {', '.join(profiles)}{_bundles(raw)}"
    shown = ("catalog", "workloads", "onRuleError", "voidEveryContainer", "contact", "docsUrl")
    yield "; ".join(f"{k}: {printable(str(whole[k]))}" for k in shown if whole.get(k))
    width = max(len(rule.active.rule.name) for rule in rules)
    for family, members in groupby(rules, key=lambda rule: rule.active.rule.family):
        yield f"\n{family}"
        for rule in members:
            head = f"  {rule.active.rule.name:<{width}}  {rule.active.action.word:<5}"
            yield f"{head}  {'; '.join(_details(rule))}"


def _details(rule: EffectiveRule) -> Iterator[str]:
    """Where the action is from, and each other setting with where that is from."""
    yield rule.sources.get("action", "default")
    details = {k: v for k, v in rule.settings.items() if k not in {"action", "options"}}
    for key, value in {**details, **rule.settings.get("options", {})}.items():
        where = f" ({rule.sources[key]})" if key in rule.sources else ""
        yield f"{key}: {json.dumps(value)}{where}"


def _sources(rule: EffectiveRule) -> str:
    """Where the rule is from: one word if all is from one place."""
    sources = {"action": "default", **rule.sources}
    if len(set(sources.values())) == 1:
        return sources["action"]
    return ", ".join(f"{key}: {where}" for key, where in sources.items())


def _bundles(raw: Mapping[str, Any]) -> str:
    return f", extends {', '.join(raw['extends'])}" if raw.get("extends") else ""


def _gpu_exceptions(raw: Mapping[str, Any], position: _Position) -> Iterator[str]:
    for index, limits in enumerate(raw.get("gpuExceptions", ())):
        if index == 0:
            yield "\nGpuExceptions"
        where = position(("gpuExceptions", index))
        namespaces = ", ".join(as_patterns(limits["namespaces"]))
        approval = "without approval" if limits.get("approval") == "none" else "with approval"
        rules, days = ", ".join(limits["rules"]), limits["longestDays"]
        yield f"  {where}  {printable(f'{rules}: in {namespaces}, {days} days, {approval}')}"


def _exceptions(raw: Mapping[str, Any], position: _Position) -> Iterator[str]:
    for index, exception in enumerate(raw.get("exceptions", ())):
        if index == 0:
            yield "\nexceptions"
        match = json.dumps(exception["match"], ensure_ascii=False)
        until = f", until {exception['expires']}" if "expires" in exception else ""
        where = position(("exceptions", index))
        what = f"{', '.join(exception['rules'])}: {match}{until}: {exception['reason']}"
        yield f"  {where}  {printable(what)}"

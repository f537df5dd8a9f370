"""The command `gpuward policy show`: what every rule does, and where that is from."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from kubeyaml import Document, line_and_column
from kubeyaml.writing import write_yaml
from lint.options import add_profile_option
from lint.policy import Commands
from policies.effective import EffectiveRule, effective_policy, effective_rules
from policies.exceptions import as_patterns
from policies.loading import (
    POLICY_FILE,
    PolicyError,
    decode_policy,
    default_policy,
    load_policy_and_raw,
    offset_of,
    parse_document,
    read_policy_content,
    read_policy_file,
)
from policies.policy import FOLDER_KEY
from rules.base.json_values import Json, Path
from sources.policy_file import (
    FilePolicy,
    Policies,
    PolicyChoice,
    PolicyLayer,
    nearest_policy,
)
from terminal import printable

_DESCRIPTION = f"""\
Show the effective policy: what every rule does, and where that is from: the default, a bundle, or
a line of the policy. Of a manifest or a folder, show the policy that `gpuward lint` takes for it.
Without FILE, it is the nearest {POLICY_FILE}."""


def add_command(commands: Commands) -> None:
    """Add the command to the parser of `gpuward policy`."""
    parser = commands.add_parser(
        "show",
        help="show what every rule does, and where that is from",
        description=_DESCRIPTION,
        epilog="exit status: 0 shown, 2 wrong usage, or a policy that cannot be used",
    )
    parser.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        help="a policy, a ConfigMap with one, a manifest, or a folder",
    )
    parser.add_argument(
        "--output", "-o", choices=("text", "yaml", "json"), default="text", help="default: text"
    )
    add_profile_option(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    chosen = options.file or nearest_policy(os.getcwd())
    about = _PoliciesOfFile([], "")
    if chosen and not _is_policy(chosen):
        about = _policies_of_file(chosen, options.profile)
        chosen = about.chain[0].file
    content, name = read_policy_content(chosen) if chosen else (b"", "")
    text = decode_policy(content, name)
    document = parse_document(text, name) if chosen else None
    raw: dict[str, Any] = {}
    policy = default_policy(options.profile)
    if document is not None:
        policy, resolved = load_policy_and_raw(text, name, options.profile, read_policy_file)
        raw = dict(resolved)
    if about.found:
        policy = about.found.policy
        for index in about.chain[0].applied_settings:
            raw["profiles"] = raw["perPath"][index].get("profiles", raw.get("profiles", ["nvidia"]))
    if options.profile:
        own = {p["name"]: p for p in raw.get("profiles", ()) if not isinstance(p, str)}
        raw["profiles"] = [own.get(name, name) for name in options.profile]
    position = _PositionFinder(name, text, document)
    rules = [about.rule_with_source(rule, raw) for rule in effective_rules(policy, raw, position)]
    whole = effective_policy(policy, raw, rules)
    shown = {"text": _text, "yaml": _yaml, "json": _json}[options.output]
    lines = shown(whole, rules, name, raw)
    if options.output == "text":
        lines = [*about.heading_lines(raw), *lines, *_exceptions(raw, position)]
        lines += _gpu_exceptions(raw, position)
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return 0


def _is_policy(file: str) -> bool:
    """Return whether `file` is a policy, or a ConfigMap with one.

    Other files are manifests to be linted by a policy.
    """
    if os.path.isdir(file):
        return False
    if os.path.basename(file) == POLICY_FILE:
        return True
    content = read_policy_file(file)
    return re.search(rb"gpuward\.io/v1|ConfigMap", content) is not None


class _PoliciesOfFile:
    """The policies for a file, and those of their settings per path that are for it."""

    def __init__(
        self, chain: list[PolicyLayer], file: str, found: FilePolicy | None = None
    ) -> None:
        self.chain = chain
        self.found = found
        self._file = file

    def rule_with_source(self, rule: EffectiveRule, raw: Mapping[str, Any]) -> EffectiveRule:
        """The rule, with where its action is from if that is not the policy itself."""
        name, sources = rule.active.rule.name, dict(rule.sources)
        for one in self.chain[:1]:
            for index in one.applied_settings:
                if name in raw["perPath"][index].get("rules", {}):
                    sources["action"] = f"{one.file}, perPath {index + 1}"
        for one in self.chain[1:]:
            settings = one.policy.rules.get(name)
            if settings and not settings.suppressible:
                sources["action"] = f"{one.file} (suppressible: false)"
        return rule._replace(sources=sources)

    def heading_lines(self, raw: Mapping[str, Any]) -> Iterator[str]:
        """Yield the lines above the rules; none if there is no file."""
        if not self.chain:
            return
        first, *others = self.chain
        around = f"; around it: {', '.join(one.file for one in others)}" if others else ""
        yield printable(f"{self._file}: {first.file or 'no policy file'}{around}")
        for index in first.applied_settings:
            entry = raw["perPath"][index]
            keys = ", ".join(key for key in entry if key not in {"paths", FOLDER_KEY})
            yield printable(
                f"perPath {index + 1}: {', '.join(as_patterns(entry['paths']))}: {keys}"
            )
        if self.found and self.found.namespace:
            yield printable(f"namespace: {self.found.namespace}")


def _policies_of_file(file: str, profiles: list[str]) -> _PoliciesOfFile:
    if not os.path.lexists(file):
        raise PolicyError(f"{file}: there is no such file")
    policies = Policies(PolicyChoice(None, profiles))
    folder = file if os.path.isdir(file) else os.path.dirname(file)
    return _PoliciesOfFile(
        policies.policies_around(folder, file), file, policies.find(folder, file)
    )


class _PositionFinder:
    """A function that returns the file of the policy and the line of a path in it."""

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
    extends = [str(entry) for entry in raw.get("extends", ())]
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
    return write_yaml(value, flow=flow, width=10**6).rstrip("\n").split("\n")


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
    """Yield where the action is from, and each other setting with where that is from."""
    yield rule.sources.get("action", "default")
    details = {k: v for k, v in rule.settings.items() if k not in {"action", "options"}}
    for key, value in {**details, **rule.settings.get("options", {})}.items():
        where = f" ({rule.sources[key]})" if key in rule.sources else ""
        yield f"{key}: {json.dumps(value)}{where}"


def _sources(rule: EffectiveRule) -> str:
    """Return where the rule is from: one word if all is from one place."""
    sources = {"action": "default", **rule.sources}
    if len(set(sources.values())) == 1:
        return sources["action"]
    return ", ".join(f"{key}: {where}" for key, where in sources.items())


def _bundles(raw: Mapping[str, Any]) -> str:
    return f", extends {', '.join(map(str, raw['extends']))}" if raw.get("extends") else ""


def _gpu_exceptions(raw: Mapping[str, Any], position: _PositionFinder) -> Iterator[str]:
    for index, limits in enumerate(raw.get("gpuExceptions", ())):
        if index == 0:
            yield "\nGpuExceptions"
        where = position(("gpuExceptions", index))
        namespaces = ", ".join(as_patterns(limits["namespaces"]))
        approval = "without approval" if limits.get("approval") == "none" else "with approval"
        rules, days = ", ".join(limits["rules"]), limits["longestDays"]
        yield f"  {where}  {printable(f'{rules}: in {namespaces}, {days} days, {approval}')}"


def _exceptions(raw: Mapping[str, Any], position: _PositionFinder) -> Iterator[str]:
    for index, exception in enumerate(raw.get("exceptions", ())):
        if index == 0:
            yield "\nexceptions"
        match = json.dumps(exception["match"], ensure_ascii=False)
        until = f", until {exception['expires']}" if "expires" in exception else ""
        where = position(("exceptions", index))
        what = f"{', '.join(exception['rules'])}: {match}{until}: {exception['reason']}"
        yield f"  {where}  {printable(what)}"

"""The command `gpuward policy show`: what every rule does, and where that is from."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import groupby
from typing import Any

from kubeyaml.writing import write_yaml
from lint.options import add_profile_option
from lint.policy import Commands
from policies import POLICY_FILE
from policies.effective import (
    DescribePosition,
    EffectiveRule,
    effective_policy,
    effective_rules,
)
from policies.loading import (
    PolicyDocument,
    PolicyError,
    default_policy,
    load_policy_document,
    read_policy_content,
    read_policy_file,
)
from policies.policy_settings import PolicySettings
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
    document = PolicyDocument.parse(*read_policy_content(chosen)) if chosen else None
    if document is None:
        policy, settings = default_policy(options.profile), PolicySettings()
    else:
        policy, settings = load_policy_document(document, options.profile, read_policy_file)
    if about.found:
        policy = about.found.policy
        for index in about.chain[0].applied_settings:
            settings = settings._replace(
                profiles=settings.per_path[index].profiles or settings.profiles
            )
    if options.profile:
        own = {p["name"]: p for p in settings.profiles if not isinstance(p, str)}
        settings = settings._replace(
            profiles=tuple(own.get(name, name) for name in options.profile)
        )
    position = partial(_position, document)
    rules = [
        about.rule_with_source(rule, settings)
        for rule in effective_rules(policy, settings, position)
    ]
    whole = effective_policy(policy, settings, rules)
    shown = {"text": _text, "yaml": _yaml, "json": _json}[options.output]
    lines = shown(whole, rules, document.name if document else "", settings)
    if options.output == "text":
        lines = [*about.heading_lines(settings), *lines, *_exceptions(settings, position)]
        lines += _gpu_exceptions(settings, position)
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

    def rule_with_source(self, rule: EffectiveRule, settings: PolicySettings) -> EffectiveRule:
        """The rule, with where its action is from if that is not the policy itself."""
        name, sources = rule.active.rule.name, dict(rule.sources)
        for one in self.chain[:1]:
            for index in one.applied_settings:
                if name in settings.per_path[index].rules:
                    sources["action"] = f"{one.file}, perPath {index + 1}"
        for one in self.chain[1:]:
            own = one.policy.rules.get(name)
            if own and not own.suppressible:
                sources["action"] = f"{one.file} (suppressible: false)"
        return rule._replace(sources=sources)

    def heading_lines(self, settings: PolicySettings) -> Iterator[str]:
        """Yield the lines above the rules; none if there is no file."""
        if not self.chain:
            return
        first, *others = self.chain
        around = f"; around it: {', '.join(one.file for one in others)}" if others else ""
        yield printable(f"{self._file}: {first.file or 'no policy file'}{around}")
        for index in first.applied_settings:
            entry = settings.per_path[index]
            keys = ", ".join(key for key in entry.raw if key != "paths")
            yield printable(f"perPath {index + 1}: {', '.join(entry.path_patterns)}: {keys}")
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


def _position(document: PolicyDocument | None, path: Path) -> str:
    """Return the file of the policy and the line of `path` in it."""
    return printable(f"{document.name}:{document.line(path)}") if document else ""


def _json(
    whole: Mapping[str, Any], rules: list[EffectiveRule], name: str, settings: PolicySettings
) -> list[str]:
    described = {
        rule.active.rule.name: {
            "family": rule.active.rule.family,
            **rule.settings,
            "sources": {"action": "default", **rule.sources},
        }
        for rule in rules
    }
    extends = [base.name for base in settings.bases]
    result = {"file": name or None, "extends": extends, **whole, "rules": described}
    return [json.dumps(result, indent=2)]


def _yaml(
    whole: Mapping[str, Any], rules: list[EffectiveRule], name: str, settings: PolicySettings
) -> Iterator[str]:
    """A policy that acts in the same way and extends nothing; comments say what is from where."""
    yield f"# The effective policy of {printable(name) or 'the defaults'}{_bases(settings)}."
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
    whole: Mapping[str, Any], rules: list[EffectiveRule], name: str, settings: PolicySettings
) -> Iterator[str]:
    profiles = [p if isinstance(p, str) else p["name"] for p in whole["profiles"]]
    yield f"{printable(name) or 'default policy'}: profiles {', '.join(profiles)}{_bases(settings)}"
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


def _bases(settings: PolicySettings) -> str:
    names = ", ".join(base.name for base in settings.bases)
    return f", extends {names}" if names else ""


def _gpu_exceptions(settings: PolicySettings, position: DescribePosition) -> Iterator[str]:
    for index, (limits, _) in enumerate(settings.gpu_exceptions):
        if index == 0:
            yield "\nGpuExceptions"
        where = position(("gpuExceptions", index))
        namespaces = ", ".join(limits.namespaces)
        approval = "with approval" if limits.needs_approval else "without approval"
        rules, days = ", ".join(limits.rules), limits.max_days
        yield f"  {where}  {printable(f'{rules}: in {namespaces}, {days} days, {approval}')}"


def _exceptions(settings: PolicySettings, position: DescribePosition) -> Iterator[str]:
    for index, exception in enumerate(settings.exceptions):
        if index == 0:
            yield "\nexceptions"
        match = json.dumps(exception.raw["match"], ensure_ascii=False)
        until = f", until {exception.expires}" if exception.expires else ""
        where = position(("exceptions", index))
        what = f"{', '.join(exception.rules)}: {match}{until}: {exception.reason}"
        yield f"  {where}  {printable(what)}"

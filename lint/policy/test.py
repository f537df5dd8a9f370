"""The command `gpuward policy test`: whether a policy does what a suite of cases expects."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from kubeyaml.writing import write_yaml
from lint.options import add_profile_option
from lint.policy import Commands
from policies import POLICY_FILE
from policies.cases import (
    CIRCUMSTANCES_SUFFIX,
    EXPECTED_SUFFIX,
    Case,
    CaseError,
    difference_lines,
    stable_result,
)
from policies.loading import (
    PolicyDocument,
    default_policy,
    load_policy,
    load_policy_document,
    read_policy_content,
    read_policy_file,
)
from rules.base.json_values import as_object
from rules.catalog.index import CATALOG
from rules.engine.rule_set import RuleSet
from sources.policy_file import nearest_policy
from sources.sources import UsageError
from terminal import DOCS_URL, printable, reason_of

_DESCRIPTION = f"""\
Test a policy: evaluate each case as admission does, and compare with what it expects. A case is
NAME.yaml with NAME.expected.yaml beside it, and perhaps NAME.case.yaml:
<{DOCS_URL}/policy-tests.md>."""
_EPILOG = """exit status: 0 all as expected, 1 not as expected, 2 wrong usage or a policy that
cannot be used, 3 a case that cannot be read"""
_POLICY_HEADER = {"apiVersion": "gpuward.io/v1", "kind": "Policy"}


def add_command(commands: Commands) -> None:
    """Add the command to the parser of `gpuward policy`."""
    parser = commands.add_parser(
        "test",
        help="test a policy with cases: manifests and what is expected of them",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    parser.add_argument("paths", metavar="PATH", nargs="+", help="a folder with cases, or a case")
    parser.add_argument(
        "--policy", metavar="FILE", help=f"the policy to test; default: the nearest {POLICY_FILE}"
    )
    add_profile_option(parser)
    parser.add_argument(
        "--rule",
        metavar="RULE",
        dest="rules",
        action="append",
        default=[],
        help="only what this rule finds and fixes counts; repeatable",
    )
    parser.add_argument(
        "--update",
        action="store_true",
        help="write what the policy does into the expected files that differ or are missing",
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    suite = _CaseSuite(options)
    today = datetime.datetime.now(tz=datetime.UTC).date()
    counts = dict.fromkeys(("passed", "failed", "not evaluated", "written"), 0)
    for case in _cases(options.paths):
        try:
            got = case.actual_result(suite.rules_of(case), today)
            is_new = options.update and not case.has_expectation
            lines = ["new"] if is_new else difference_lines(case.expected, got, case.manifest)
        except CaseError as error:
            counts["not evaluated"] += 1
            sys.stdout.write(f"not evaluated: {printable(str(error))}\n")
            continue
        if lines and options.update:
            counts["written"] += 1
            _write_expected(case, got)
        else:
            counts["failed" if lines else "passed"] += 1
            _report_case(case, lines)
    if not any(counts.values()):
        raise UsageError(f"there are no cases in {' '.join(options.paths)}")
    sys.stdout.write(", ".join(f"{n} {what}" for what, n in counts.items() if n) + "\n")
    return 3 if counts["not evaluated"] else int(counts["failed"] > 0)


class _CaseSuite:
    """The policy that is tested, with what a case says instead."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._profiles: list[str] = options.profile
        self._rules = _checked_rule_names(options.rules)
        self._raw: Mapping[str, Any] = _POLICY_HEADER
        self._name = "the default policy"
        if file := options.policy or nearest_policy(os.getcwd()):
            document = PolicyDocument.parse(*read_policy_content(file))
            policy = load_policy_document(document, self._profiles, read_policy_file).policy
            self._raw, self._name = as_object(document.yaml.value), document.name
        else:
            policy = default_policy(self._profiles)
        self._rule_set = policy.rule_set()

    def rules_of(self, case: Case) -> RuleSet:
        """The rules for a case. Raises CaseError if what it says cannot be used."""
        given = case.circumstances
        rule_set = self._rule_set
        try:
            if "policy" in given:
                text = json.dumps({**self._raw, **given["policy"]})
                name = f"{case.file}: {self._name} with the policy of the case"
                rule_set = load_policy(text, name, self._profiles).rule_set()
            names = self._rules or _checked_rule_names(given.get("rules", ()))
        except (TypeError, ValueError, UsageError) as error:
            raise CaseError(f"{case.file}: {error}") from error
        return rule_set.restricted_to(names) if names else rule_set


def _checked_rule_names(names: list[str]) -> list[str]:
    unknown = set(names) - {rule.name for rule in CATALOG}
    if unknown:
        raise UsageError(f"there is no rule {min(unknown)!r}")
    return names


def _cases(paths: list[str]) -> Iterator[Case]:
    for path in paths:
        if not os.path.isdir(path):
            yield Case(path)
            continue
        for folder, folders, files in os.walk(path):
            folders.sort()
            for name in sorted(files):
                is_part = (
                    name.endswith((EXPECTED_SUFFIX, CIRCUMSTANCES_SUFFIX)) or name == POLICY_FILE
                )
                if name.endswith(".yaml") and not is_part:
                    yield Case(os.path.join(folder, name))


def _report_case(case: Case, lines: list[str]) -> None:
    if lines:
        sys.stdout.write(f"failed: {printable(case.file)}\n")
        sys.stdout.writelines(f"  {printable(line)}\n" for line in lines)


def _write_expected(case: Case, got: Mapping[str, Any]) -> None:
    text = write_yaml(stable_result(got))
    try:
        with open(case.expected_file, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except OSError as error:
        why = reason_of(error)
        raise UsageError(f"{case.expected_file}: cannot be written: {why}") from error
    sys.stdout.write(f"written: {printable(case.expected_file)}\n")

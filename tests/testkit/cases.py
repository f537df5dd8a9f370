"""Cases: manifests with what the rules must say of them and what their fixes must make of them.

`tests/cases/<rule>/<case>.yaml` is the manifest, whose first comment says what it shows.
Beside it stand `<case>.expected.yaml` (findings of that rule alone, and the fixed form),
and, where the case needs them, its circumstances in `<case>.case.yaml`:

    policy:    keys of a policy, as in a policy file
    namespace, user, operation:  as in the engine's Context
    pod_only:  why the case makes sense for bare Pods only
    built_in_only:  why it makes none in custom resources
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from kubeyaml import Chunk, read
from policies.loading import load_policy
from rules.base.json_patch import pointer
from rules.engine.fixing import FixResult, check, fix
from rules.engine.result import EvaluationResult
from rules.finding import Finding
from rules.policy import Policy, RuleSet
from rules.profile.context import Context
from tests.testkit.paths import CASES

TODAY = datetime.date(2030, 6, 15)


@dataclass(frozen=True)
class Case:
    """One case file of one rule."""

    rule: str
    file: Path

    @property
    def name(self) -> str:
        """`rule/case`, as pytest shows it."""
        return f"{self.rule}/{self.file.stem}"

    @property
    def title(self) -> str:
        """What the case shows: its leading comment."""
        lines = []
        for line in self.file.read_text(encoding="utf-8").splitlines():
            if not line.startswith("#"):
                break
            lines.append(line.lstrip("# "))
        return " ".join(lines)

    @property
    def manifest(self) -> Any:
        """The input, read anew."""
        document = read(Chunk(self.file.read_text(encoding="utf-8")))
        assert document is not None, f"{self.file} is empty"
        return document.value

    @cached_property
    def circumstances(self) -> dict[str, Any]:
        """Policy, namespace, user, operation, pod_only; where given."""
        file = self.file.with_suffix(".case.yaml")
        return yaml.safe_load(file.read_text(encoding="utf-8")) if file.exists() else {}

    @property
    def expected_file(self) -> Path:
        """Where the golden answer stands."""
        return self.file.with_suffix(".expected.yaml")

    @property
    def expected(self) -> dict[str, Any]:
        """The golden answer."""
        answer: dict[str, Any] = yaml.safe_load(self.expected_file.read_text(encoding="utf-8"))
        return answer

    @cached_property
    def policy(self) -> Policy:
        """The policy of the case."""
        keys = self.circumstances.get("policy", {})
        text = yaml.safe_dump({"apiVersion": "gpuward.io/v1", "kind": "Policy", **keys})
        return load_policy(text, self.name)

    @property
    def alone(self) -> RuleSet:
        """The rule of this case and no other."""
        return self.policy.rule_set().restricted_to([self.rule])

    @property
    def context(self) -> Context:
        """The circumstances in which the manifest is judged."""
        given = self.circumstances
        return Context(
            today=TODAY,
            namespace=given.get("namespace"),
            user=given.get("user"),
            operation=given.get("operation"),
        )

    def check(self, manifest: Any, rules: RuleSet | None = None) -> EvaluationResult:
        """What the case's rule, or `rules`, say of `manifest`."""
        return check(manifest, rules or self.alone, self.context)

    def fix(self, manifest: Any, rules: RuleSet | None = None) -> FixResult:
        """What the case's rule, or `rules`, make of `manifest`."""
        return fix(manifest, rules or self.alone, self.context)


def asking_all(rules: RuleSet) -> RuleSet:
    """The same rules, asked about everything, whatever traits they need."""
    eager = tuple(active._replace(needs=()) for active in rules.rules)
    return rules._replace(rules=eager)


def cases() -> list[Case]:
    """Every case there is."""
    files = sorted(CASES.glob("*/*.yaml"))
    return [Case(f.parent.name, f) for f in files if f.suffixes == [".yaml"]]


def described(finding: Finding) -> dict[str, Any]:
    """A finding as the golden files spell it."""
    description: dict[str, Any] = {
        "action": finding.action.name.lower(),
        "path": pointer(finding.path),
        "container": finding.container_name,
        "key": finding.key,
        "message": finding.message,
        "help": finding.help,
    }
    if finding.fix is not None:
        description["fix"] = finding.fix.title
        description["safe"] = finding.fix.safe
    return description


def answer(case: Case) -> dict[str, Any]:
    """What the product says now about a case, in the shape of its golden file."""
    manifest = case.manifest
    result = case.fix(manifest)
    findings = case.check(manifest).findings
    return {
        "findings": [described(finding) for finding in findings],
        "fixed": result.manifest if result.operations else None,
    }

"""Cases: manifests, each with the findings and the fixed manifest that a rule must produce.

The format is that of `gpuward policy test` (`policies/cases.py`).

`tests/cases/<rule>/<case>.yaml` is the manifest. Its first comment says what the case shows.
`<case>.expected.yaml` has the findings of that rule alone, and the fixed manifest; `clean-…` needs
none, because nothing is to be found in it.
`<case>.case.yaml` is optional and has the circumstances of the case:

    policy:    keys of a policy, as in a policy file
    namespace, user, operation, old_metadata, old_spec:  as in the engine's Context
    pod_only:  why the case applies to Pods and not to pod templates
    built_in_only:  why the case does not apply to custom resources
    inventory: manifests of other objects that the rules know
    all_nodes: whether its Nodes are all of the cluster
"""

from __future__ import annotations

import datetime
import marshal
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import yaml

from kubeyaml import Chunk, read
from policies.cases import CLEAN_PREFIX, NOTHING_FOUND
from policies.cases import describe_finding as describe
from policies.loading import load_policy
from policies.policy import Policy
from rules.engine.evaluation import EvaluationResult
from rules.engine.fixing import FixResult, check, fix
from rules.engine.rule_set import RuleSet
from rules.finding import Finding
from rules.inventory.inventory import Inventory
from rules.placement.selected_cards import add_shares_to_inventory
from rules.profile.context import Context
from rules.profile.profile import Profile
from rules.workloads.referred_objects import add_objects, new_builder
from tests.testkit.paths import CASES
from tests.testkit.settled_rules import acting

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
        """Return what the case shows: its leading comment."""
        lines = []
        for line in self.file.read_text(encoding="utf-8").splitlines():
            if not line.startswith("#"):
                break
            lines.append(line.lstrip("# "))
        return " ".join(lines)

    @property
    def manifest(self) -> Any:
        """The manifest, a new copy each time, so that the caller may change it."""
        return marshal.loads(self._manifest)  # noqa: S302  # written below

    @cached_property
    def _manifest(self) -> bytes:
        document = read(Chunk(self.file.read_text(encoding="utf-8")))
        assert document is not None, f"{self.file} is empty"
        return marshal.dumps(document.value)

    @cached_property
    def circumstances(self) -> dict[str, Any]:
        """The keys of `<case>.case.yaml` that the case sets."""
        file = self.file.with_suffix(".case.yaml")
        return _load(file) if file.exists() else {}

    @property
    def expected_file(self) -> Path:
        """The file with the expected result."""
        return self.file.with_suffix(".expected.yaml")

    @property
    def expected(self) -> dict[str, Any]:
        """The expected result: the findings and the fixed manifest."""
        return dict(NOTHING_FOUND) if self.is_clean else _load(self.expected_file)

    @property
    def is_clean(self) -> bool:
        """Return whether its name says that nothing is to be found; then no file says it."""
        return self.file.stem.startswith(CLEAN_PREFIX)

    @cached_property
    def policy(self) -> Policy:
        """The policy of the case."""
        return _policy(self.policy_text)

    @property
    def rules(self) -> RuleSet:
        """The rules that act in the test that asks, as the policy says."""
        return _rules(self.policy_text, acting())

    @property
    def alone(self) -> RuleSet:
        """A rule set with the rule of this case only."""
        return _alone(self.policy_text, acting(), self.rule)

    @cached_property
    def policy_text(self) -> str:
        """The policy of the case, as a file would have it."""
        keys = self.circumstances.get("policy", {})
        return yaml.safe_dump({"apiVersion": "gpuward.io/v1", "kind": "Policy", **keys})

    @cached_property
    def context(self) -> Context:
        """The context in which the rules check the manifest."""
        given = self.circumstances
        return Context(
            today=TODAY,
            namespace=given.get("namespace"),
            user=given.get("user"),
            operation=given.get("operation"),
            old_metadata=given.get("old_metadata"),
            old_spec=given.get("old_spec"),
            inventory=inventory_of(
                given.get("inventory", ()),
                self.policy.profile,
                has_all_nodes=given.get("all_nodes", False),
            ),
        )

    def check(self, manifest: Any, rules: RuleSet | None = None) -> EvaluationResult:
        """Check `manifest` with the case's rule, or with `rules`."""
        return check(manifest, rules or self.alone, self.context)

    def fix(self, manifest: Any, rules: RuleSet | None = None) -> FixResult:
        """Fix `manifest` with the case's rule, or with `rules`."""
        return fix(manifest, rules or self.alone, self.context)


def _load(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        error.add_note(f"`make cases RULES={file.parent.name}` writes it")
        raise
    content: dict[str, Any] = yaml.load(text, yaml.CSafeLoader)
    return content


@cache
def _policy(text: str) -> Policy:
    """The policy that `text` says: most cases share one."""
    return load_policy(text, "the policy of a case")


@cache
def _rules(text: str, _acting: tuple[str, ...]) -> RuleSet:
    return _policy(text).rule_set()


@cache
def _alone(text: str, acting_rules: tuple[str, ...], rule: str) -> RuleSet:
    return _rules(text, acting_rules).restricted_to([rule])


def inventory_of(
    manifests: Iterable[Any], profile: Profile, *, has_all_nodes: bool = False
) -> Inventory:
    """Return an inventory of the objects in `manifests`."""
    builder = new_builder(profile)
    builder.nodes.has_all = has_all_nodes
    for manifest in manifests:
        add_objects(builder, manifest, None)
        add_shares_to_inventory(builder, manifest, None)
    return builder.inventory()


def without_needs(rules: RuleSet) -> RuleSet:
    """Return `rules` such that each is run on every pod, whatever traits it needs."""
    active_rules = tuple(active._replace(needs=()) for active in rules.rules)
    return rules._replace(rules=active_rules)


@cache
def cases() -> tuple[Case, ...]:
    """All cases. Every test gets the same, so that each policy is loaded once."""
    files = sorted(CASES.glob("*/*.yaml"))
    return tuple(Case(f.parent.name, f) for f in files if f.suffixes == [".yaml"])


def describe_finding(finding: Finding) -> dict[str, Any]:
    """A finding as the golden files write it: the folder of the case names the rule."""
    return {key: value for key, value in describe(finding).items() if key != "rule"}


def current_result(case: Case) -> dict[str, Any]:
    """The result that the code produces now for a case, as its expected file writes it."""
    manifest = case.manifest
    result = case.fix(manifest)
    findings = case.check(manifest).findings
    return {
        "findings": [describe_finding(finding) for finding in findings],
        "fixed": result.manifest if result.operations else None,
    }

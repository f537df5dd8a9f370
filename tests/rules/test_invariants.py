"""The invariants that every rule obeys, checked over every case inside every kind of workload.

One test for each rule checks those of single cases, so that a case is evaluated once for all.

1. A case has exactly the findings and the fixed manifest of its golden file.
2. No rule raises an exception.
3. Fixing a fixed manifest changes nothing.
4. The JSON Patch of a fix leads to the fixed manifest.
5. Checking and fixing leave the input unchanged.
6. A pod gets the same findings and fixes in every kind of workload.
7. A finding points at an existing field or at a missing one directly below an existing field.
8. A rule reports the same alone as among all rules, except what another rule supersedes.
9. The identity of a finding does not depend on the order of the containers.
10. After fixing, every finding is either fixed or still reported.
11. No two findings about the same pod have the same container and key.
12. A fix creates no finding of a rule that ran earlier.
13. A rule has no findings where the traits that it needs are missing.
14. The findings that remain after fixing are those of a check of the fixed manifest.
15. The fast path reads a pod exactly as the search for pods does, or leaves it to the search.
16. Checking and fixing create no reference cycles.
17. The catalog lists every rule module once, and nothing else. The index says the same.
18. Every rule documents its behavior, reasons, references, options and fix safety.
19. Every rule has a failing and a clean case, and every case says what it shows.
20. Every case file belongs to a rule and to a case.
21. There are rules about pods.
22. A rule has fixes, safe fixes or none, as its group in the catalog says.
23. The catalog refuses a list of rules that cannot be right, and names the rule.
24. The API server accepts what a fix writes; a real one proves it in
    `tests/cluster/test_fixes_accepted.py`.
25. The linter and the webhook report the same about a pod; a real API server and webhook prove it
    in `tests/cluster/test_lint_admission_parity.py`.
26. A fix that knows what a check has found is the same as one that does not.
"""

from __future__ import annotations

import copy
import gc
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any
from zlib import crc32

import jsonpatch
import pytest

from rules.base.json_values import Path as Place
from rules.base.json_values import pointer, value_at
from rules.catalog.index import CATALOG
from rules.catalog.order import (
    OPT_IN_FIXES,
    ORDER,
    REPORTS,
    SAFE_FIXES,
    CatalogError,
    validated_order,
)
from rules.engine.bounds import StepLimit
from rules.engine.evaluation import EvaluationResult, pod_from_raw, well_formed_pod
from rules.engine.exceptions import suppress_nothing
from rules.engine.fixing import check, fix
from rules.engine.rule_set import ActiveRule
from rules.finding import Finding
from rules.gpu.devices import devices
from rules.objects.container import Container
from rules.objects.pod import Pod
from rules.relevance.traits import store_traits, traits_of, traits_of_container, traits_of_raw_pod
from rules.rule import Rule, load_module
from rules.workloads.discovery import find_subjects
from tests.testkit.cases import Case, cases, current_result, describe_finding, without_needs
from tests.testkit.for_every_case import check_all, for_every_case
from tests.testkit.full_pod import FULL_POD
from tests.testkit.paths import CASES, ROOT
from tests.testkit.workload_table import places

ALL = cases()
PODS = [case for case in ALL if case.manifest.get("kind") == "Pod"]
RULES = {rule.name: rule for rule in CATALOG}


class EvaluatedCase:
    """A case, and what its own rule and all rules say about it."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.manifest = case.manifest
        self.checked_alone = case.check(self.manifest)
        self.checked = case.check(self.manifest, case.rules)
        self.fixed_alone = case.fix(self.manifest)
        self.fixed = case.fix(self.manifest, case.rules)


Invariant = Callable[[EvaluatedCase], None]
INVARIANTS: dict[Invariant, frozenset[Case]] = {}
"""The invariants of single cases, each with the cases that obey it."""


def invariant_of(selection: Iterable[Case]) -> Callable[[Invariant], Invariant]:
    def add(invariant: Invariant) -> Invariant:
        INVARIANTS[invariant] = frozenset(selection)
        return invariant

    return add


def template(pod: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": pod.get("metadata", {}), "spec": pod["spec"]}


def workload(pod: dict[str, Any], kind: str, group: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": "holder", "namespace": pod.get("metadata", {}).get("namespace")}
    return {"apiVersion": group, "kind": kind, "metadata": metadata, "spec": spec}


WORKLOADS: Mapping[str, tuple[Place, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    "Deployment": (
        ("spec", "template"),
        lambda pod: workload(pod, "Deployment", "apps/v1", {"template": template(pod)}),
    ),
    "Job": (
        ("spec", "template"),
        lambda pod: workload(pod, "Job", "batch/v1", {"template": template(pod)}),
    ),
    "CronJob": (
        ("spec", "jobTemplate", "spec", "template"),
        lambda pod: workload(
            pod, "CronJob", "batch/v1", {"jobTemplate": {"spec": {"template": template(pod)}}}
        ),
    ),
    "RayCluster": (
        ("spec", "workerGroupSpecs", 1, "template"),
        lambda pod: workload(
            pod,
            "RayCluster",
            "ray.io/v1",
            {
                "workerGroupSpecs": [
                    {"groupName": "none", "template": {"spec": {"containers": []}}},
                    {"groupName": "some", "template": template(pod)},
                ]
            },
        ),
    ),
    "List": (("items", 0), lambda pod: {"apiVersion": "v1", "kind": "List", "items": [pod]}),
}


def applies_to_pod_templates(case: Case) -> bool:
    return "pod_only" not in case.circumstances


def described(result: EvaluationResult) -> list[dict[str, Any]]:
    return [describe_finding(finding) for finding in result.findings]


def relative_to_pod(finding: Finding, prefix: Place = ()) -> dict[str, Any]:
    """The facts that do not depend on the kind of workload; the path is relative to `prefix`."""
    assert finding.path[: len(prefix)] == prefix
    return {**describe_finding(finding), "path": pointer(finding.path[len(prefix) :])}


@for_every_case(ALL)
def test_a_case_gets_its_golden_result(case: Case) -> None:
    """Invariant 1."""
    assert current_result(case) == case.expected


@for_every_case(ALL)
def test_a_case_obeys_the_invariants(case: Case) -> None:
    """Those of single cases, which stand below."""
    evaluated = EvaluatedCase(case)
    check_all(
        {
            invariant.__name__: partial(invariant, evaluated)
            for invariant, selection in INVARIANTS.items()
            if case in selection
        }
    )


@invariant_of(ALL)
def no_rule_fails(evaluated: EvaluatedCase) -> None:
    """Invariant 2."""
    assert not evaluated.checked.failures
    assert not evaluated.fixed.remaining.failures


@invariant_of(ALL)
def fixing_the_fixed_changes_nothing(evaluated: EvaluatedCase) -> None:
    """Invariant 3."""
    case = evaluated.case
    if evaluated.fixed_alone.operations:
        assert case.fix(evaluated.fixed_alone.manifest).operations == []
    if evaluated.fixed.operations:
        assert case.fix(evaluated.fixed.manifest, case.rules).operations == []


@invariant_of(ALL)
def the_patch_leads_to_the_fixed_manifest(evaluated: EvaluatedCase) -> None:
    """Invariant 4."""
    for fixed in (evaluated.fixed_alone, evaluated.fixed):
        assert jsonpatch.apply_patch(evaluated.manifest, fixed.operations) == fixed.manifest


@invariant_of(ALL)
def the_input_stays_unchanged(evaluated: EvaluatedCase) -> None:
    """Invariant 5."""
    assert evaluated.manifest == evaluated.case.manifest


@invariant_of(case for case in PODS if applies_to_pod_templates(case))
def a_pod_gets_the_same_findings_in_every_workload(evaluated: EvaluatedCase) -> None:
    """Invariant 6."""
    case = evaluated.case
    expected = [relative_to_pod(finding) for finding in evaluated.checked_alone.findings]
    fixed: Any = evaluated.fixed_alone.manifest
    for kind in WORKLOADS:
        if kind != "RayCluster" or "built_in_only" not in case.circumstances:
            check_in_workload(case, kind, expected, fixed["spec"])


def check_in_workload(case: Case, kind: str, expected: list[dict[str, Any]], spec: Any) -> None:
    prefix, wrap = WORKLOADS[kind]
    wrapped = wrap(case.manifest)
    found = [relative_to_pod(finding, prefix) for finding in case.check(wrapped).findings]
    if kind == "RayCluster" and [f.get("safe") for f in found] != [f.get("safe") for f in expected]:
        # What the controller adds to the pod is unknown, so a fix may be less safe there.
        unsafe = [{**fact, "safe": False} for fact in expected]
        assert [{**fact, "safe": False} for fact in found] == unsafe, kind
        return
    assert found == expected, kind
    inner: Any = case.fix(wrapped).manifest
    for step in prefix:
        inner = inner[step]
    assert inner["spec"] == spec, kind


@invariant_of(ALL)
def a_finding_points_at_a_field_or_directly_below_one(evaluated: EvaluatedCase) -> None:
    """Invariant 7."""
    for finding in evaluated.checked.findings:
        node: Any = evaluated.manifest
        for depth, step in enumerate(finding.path, start=1):
            try:
                node = node[step]
            except (KeyError, IndexError):
                assert depth == len(finding.path), (
                    f"{finding.rule} points at {pointer(finding.path)}, but there is no "
                    f"{pointer(finding.path[:depth])}: point at the field at fault, or directly "
                    "below the last field that exists"
                )


@invariant_of(ALL)
def a_rule_reports_the_same_alone_and_among_all_rules(evaluated: EvaluatedCase) -> None:
    """Invariant 8."""
    all_findings = evaluated.checked.findings
    superseded = {
        (name, finding.container_name, finding.key)
        for finding in all_findings
        for name in RULES[finding.rule].supersedes
    }
    alone = [
        finding
        for finding in evaluated.checked_alone.findings
        if (finding.rule, finding.container_name, finding.key) not in superseded
    ]
    among_all = [finding for finding in all_findings if finding.rule == evaluated.case.rule]
    assert [describe_finding(f) for f in among_all] == [describe_finding(f) for f in alone]


@invariant_of(PODS)
def a_finding_keeps_its_identity_when_containers_are_reordered(evaluated: EvaluatedCase) -> None:
    """Invariant 9."""
    pod = evaluated.manifest
    spec = dict(pod["spec"])
    for role in ("initContainers", "containers", "ephemeralContainers"):
        if isinstance(spec.get(role), list):
            spec[role] = spec[role][::-1]
    if spec == pod["spec"]:
        return
    case = evaluated.case
    identities = {finding.identity for finding in evaluated.checked.findings}
    reordered = case.check({**pod, "spec": spec}, case.rules)
    assert {finding.identity for finding in reordered.findings} == identities


@invariant_of(ALL)
def every_finding_is_fixed_or_still_reported(evaluated: EvaluatedCase) -> None:
    """Invariant 10."""
    findings, result = evaluated.checked.findings, evaluated.fixed
    before = {finding.identity for finding in findings}
    after = {f.identity for f in (*result.fixed, *result.remaining.findings)}
    voided = {f.container_name for f in result.fixed if f.rule not in SILENT_BESIDE_VOID}
    silent = {
        f.identity
        for f in findings
        if f.rule in SILENT_BESIDE_VOID
        and (f.container_name in voided or (voided and f.rule == VOID_EVERYWHERE))
    }
    assert before - silent <= after


# A runtime class gives no container a GPU beside `void` in every container.
VOID_EVERYWHERE = "runtimeclass-nvidia-no-gpu"
# A zero is fine beside the `void` that another rule adds, and the toolkit then reads none of its
# other variables.
SILENT_BESIDE_VOID = frozenset({"zero-gpu", "gated-device-env", "imex-channels", VOID_EVERYWHERE})


@invariant_of(ALL)
def no_two_findings_share_container_and_key(evaluated: EvaluatedCase) -> None:
    """Invariant 11."""
    places_of_findings = Counter(
        (f.object_identity, f.stable_path, f.container_name, f.key)
        for f in evaluated.checked.findings
    )
    assert [place for place, number in places_of_findings.items() if number > 1] == []


@invariant_of(PODS)
def a_rule_has_no_findings_where_its_traits_are_missing(evaluated: EvaluatedCase) -> None:
    """Invariant 13. The engine does not run it there."""
    case = evaluated.case
    every_rule = without_needs(case.rules)
    # Traits are read alike in every built-in workload.
    wrapped = {kind: WORKLOADS[kind][1](evaluated.manifest) for kind in ("CronJob", "RayCluster")}
    for kind, manifest in {"Pod": evaluated.manifest, **wrapped}.items():
        expected = case.check(manifest, case.rules) if kind in wrapped else evaluated.checked
        found = case.check(manifest, every_rule)
        assert described(found) == described(expected), kind


@invariant_of(ALL)
def the_remaining_findings_are_those_of_the_fixed_manifest(evaluated: EvaluatedCase) -> None:
    """Invariant 14. Fixing reuses evaluated pods, which must not change the result."""
    case, fixed = evaluated.case, evaluated.fixed
    after = case.check(fixed.manifest, case.rules) if fixed.operations else evaluated.checked
    remaining = [(describe_finding(f), f.identity) for f in fixed.remaining.findings]
    assert remaining == [(describe_finding(f), f.identity) for f in after.findings]
    assert fixed.remaining.pod_paths == after.pod_paths


def suppress_about_half(finding: Finding, _rule: ActiveRule) -> bool:
    """Suppresses by the path, as comments do."""
    return crc32(pointer(finding.path).encode(errors="surrogatepass")) % 2 == 0


@invariant_of(ALL)
def a_fix_that_knows_the_findings_is_the_same(evaluated: EvaluatedCase) -> None:
    """Invariant 26. The linter fixes what it has checked before, and comments suppress some.

    It takes the same steps: the webhook, which checks nothing before, must not refuse as too large
    what the linter fixes.
    """
    manifest, rules, context = evaluated.manifest, evaluated.case.rules, evaluated.case.context
    for suppress in (suppress_nothing, suppress_about_half):
        known = check(manifest, rules, context, suppress)
        results = []
        for checked_before in (None, known):
            steps = CountedSteps()
            result = fix(manifest, rules, context, suppress, steps=steps, checked=checked_before)
            results.append(
                (
                    result.operations,
                    [describe_finding(finding) for finding in result.fixed],
                    [describe_finding(finding) for finding in result.remaining.findings],
                    result.remaining.suppressed,
                    result.remaining.failures,
                    steps.taken,
                )
            )
        unaware, aware = results
        assert aware == unaware


class CountedSteps(StepLimit):
    """A limit that says how many steps were taken."""

    taken = 0

    def take(self, steps: int) -> None:
        self.taken += steps
        super().take(steps)


def fast_path_reads(manifest: Any, case: Case) -> bool:
    """Return whether the fast path reads `manifest`.

    If so, check that the search finds the same pod.
    """
    profile = case.policy.profile
    plain = well_formed_pod(manifest)
    if plain is None:
        return False
    (pod,) = find_subjects(manifest, profile, "home")
    view = pod_from_raw(*plain, profile, "home")
    assert isinstance(pod, Pod)
    assert pod.spec is view.spec
    assert pod.metadata is view.metadata
    for fact in ("object", "path", "metadata_path", "stable_path", "layout"):
        assert getattr(view, fact) == getattr(pod, fact)
    store_traits(view, traits_of_raw_pod(*plain, profile))
    assert traits_of(view) == traits_of(pod)
    ours, theirs = ([traits_of_container(c) for c in one.containers] for one in (view, pod))
    assert ours == theirs
    found, expected = ([describe_devices(c) for c in one.containers] for one in (view, pod))
    assert found == expected
    return True


def describe_devices(container: Container) -> list[tuple[str, object, object]]:
    return [(name, device.limit, device.request) for name, device in devices(container).items()]


@invariant_of(PODS)
def the_fast_path_reads_a_pod_as_the_search_does(evaluated: EvaluatedCase) -> None:
    """Invariant 15. Here for the pods of the cases."""
    manifest = evaluated.manifest
    unreadable = evaluated.checked_alone.malformed_fields
    is_read = fast_path_reads(manifest, evaluated.case)
    assert is_read is (not unreadable and "metadata" in manifest)


@pytest.mark.parametrize(
    "value", [None, 0, "x", [], {}, [None], [{}], [{"x": 0}], {"x": 0}], ids=str
)
def test_the_fast_path_reads_a_broken_pod_or_leaves_it_to_the_search(value: Any) -> None:
    """Invariant 15. Here for pods in which one field has another value."""
    outcomes = set()
    for path in places(FULL_POD):
        manifest: Any = copy.deepcopy(FULL_POD)
        parent: Any = value_at(manifest, path[:-1])
        parent[path[-1]] = value
        outcomes.add(fast_path_reads(manifest, ALL[0]))
    assert outcomes == {True, False}


def test_no_fix_creates_a_finding_of_a_rule_that_ran_before() -> None:
    """Invariant 12. Its evaluations by all rules count for the coverage of the rules."""
    order = {rule.name: number for number, rule in enumerate(CATALOG)}
    for case in ALL:
        rules = case.rules
        before = {finding.identity for finding in case.check(case.manifest, rules).findings}
        result = case.fix(case.manifest)
        for finding in case.check(result.manifest, rules).findings:
            if finding.identity not in before:
                assert order[finding.rule] > order[case.rule], (case.name, finding.message)


def test_checking_and_fixing_create_no_reference_cycles() -> None:
    """Invariant 16. Requests would have to wait for the garbage collector."""
    manifests = [(case, case.manifest, case.rules) for case in ALL]
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        for case, manifest, rules in manifests:
            case.check(manifest, rules)
            case.fix(manifest, rules)
            assert gc.collect() == 0, case.name
    finally:
        gc.enable()
        gc.unfreeze()


def test_the_catalog_lists_every_module_and_nothing_else() -> None:
    """Invariant 17."""
    folder = ROOT / "rules" / "catalog"
    modules = {f"{f.parent.name}/{f.stem}" for f in folder.glob("*/*.py") if f.stem != "__init__"}
    assert modules == {f"{r.family}/{r.name.replace('-', '_')}" for r in CATALOG}
    assert len({rule.name for rule in CATALOG}) == len(CATALOG)


def test_the_index_says_of_every_rule_what_its_module_says() -> None:
    """Invariant 17."""
    for indexed, rule in zip(CATALOG, ORDER, strict=True):
        assert load_module(indexed).RULE is rule, "run make docs"
        assert indexed == rule._replace(check=indexed.check), "run make docs"


@pytest.mark.parametrize("rule", CATALOG, ids=lambda rule: rule.name)
def test_a_rule_is_documented(rule: Any) -> None:
    """Invariant 18."""
    documentation = rule.documentation
    headings = {"What it does", "Why it matters", "References"}
    if rule.options:
        headings.add("Options")
    if any("fix" in f for case in ALL if case.rule == rule.name for f in case.expected["findings"]):
        headings.add("Fix safety")
    assert headings <= {heading for heading, text in documentation.items() if text}
    assert rule.summary
    assert not rule.summary.endswith(".")
    for option in rule.options:
        assert f"`{option}`" in documentation["Options"]


@pytest.mark.parametrize("rule", CATALOG, ids=lambda rule: rule.name)
def test_a_rule_has_a_failing_and_a_clean_case(rule: Any) -> None:
    """Invariant 19."""
    own = [case for case in ALL if case.rule == rule.name]
    assert any(case.expected["findings"] for case in own)
    assert any(not case.expected["findings"] for case in own)
    for case in own:
        assert case.title, f"{case.name} does not say what it shows"
        assert case.is_clean is not case.expected_file.exists()


def test_every_case_file_belongs_to_a_rule() -> None:
    """Invariant 20."""
    assert {folder.name for folder in CASES.iterdir()} == set(RULES)
    inputs = {case.file.stem for case in ALL}
    for file in CASES.glob("*/*.*.yaml"):
        assert file.name.split(".")[0] in inputs, file


def test_there_are_rules_about_pods() -> None:
    """Invariant 21."""
    assert {rule.subject for rule in CATALOG} >= {Pod}


@pytest.mark.parametrize("rule", CATALOG, ids=lambda rule: rule.name)
def test_fixes_are_those_of_the_rules_group(rule: Any) -> None:
    """Invariant 22, derived from the golden files."""
    own = [case for case in ALL if case.rule == rule.name]
    fixable = [f for case in own for f in case.expected["findings"] if "fix" in f]
    assert bool(fixable) is (rule.name not in {report.name for report in REPORTS})
    if rule.name in {fixing.name for fixing in SAFE_FIXES}:
        assert any(finding["safe"] for finding in fixable)


FIRST, SECOND = OPT_IN_FIXES[:2]


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ((FIRST, SECOND, FIRST), f"{FIRST.name} is listed 2 times"),
        ((FIRST._replace(needs=()), SECOND), f"{FIRST.name} needs no trait"),
        ((FIRST, SECOND._replace(summary="")), f"{SECOND.name} has no docstring"),
        (
            (FIRST, SECOND._replace(supersedes=(FIRST.name,))),
            f"{SECOND.name} supersedes {FIRST.name}, which must be listed after it",
        ),
        (
            (FIRST._replace(supersedes=("no-such-rule",)), SECOND),
            f"{FIRST.name} supersedes no-such-rule, which must be listed after it",
        ),
    ],
    ids=["listed-twice", "without-needs", "without-docstring", "earlier-rule", "unknown-rule"],
)
def test_the_catalog_refuses_a_wrong_list(rules: tuple[Rule[Any], ...], message: str) -> None:
    """Invariant 23."""
    with pytest.raises(CatalogError, match=re.escape(message)):
        validated_order(rules[:1], rules[1:])


def test_the_catalog_accepts_a_right_list() -> None:
    """Invariant 23: the counterpart, so that the refusals above have no other reason."""
    superseding = FIRST._replace(supersedes=(SECOND.name,))
    assert validated_order((superseding,), (SECOND,)) == (superseding, SECOND)

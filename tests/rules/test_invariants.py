"""The laws that every rule obeys, over every case inside every kind of workload."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Mapping
from typing import Any

import jsonpatch
import pytest

from rules.base.json_patch import Path as Place
from rules.base.json_patch import pointer, value_at
from rules.catalog import CATALOG
from rules.engine.fast_path import pod_from_raw, well_formed_pod
from rules.finding import Finding
from rules.objects.pod import Pod
from rules.traits.extraction import raw_traits, traits_of
from rules.workloads.discovery import find_subjects
from tests.testkit.cases import Case, answer, asking_all, cases, described
from tests.testkit.full_pod import FULL_POD
from tests.testkit.paths import CASES, ROOT
from tests.testkit.workload_table import places

ALL = cases()
PODS = [case for case in ALL if case.manifest.get("kind") == "Pod"]
RULES = {rule.name: rule for rule in CATALOG}


def named(selection: list[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", selection, ids=[case.name for case in selection])


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


def portable(case: Case) -> bool:
    return "pod_only" not in case.circumstances


def facts(finding: Finding, prefix: Place = ()) -> dict[str, Any]:
    """What must not depend on the kind of workload, its path shortened by `prefix`."""
    assert finding.path[: len(prefix)] == prefix
    return {**described(finding), "path": pointer(finding.path[len(prefix) :])}


@named(ALL)
def test_a_case_gets_its_golden_answer(case: Case) -> None:
    assert answer(case) == case.expected


@named(ALL)
def test_no_rule_fails(case: Case) -> None:
    result = case.check(case.manifest, case.policy.rule_set())
    assert not result.failures
    assert not case.fix(case.manifest, case.policy.rule_set()).remaining.failures


@named(ALL)
def test_fixing_the_fixed_changes_nothing(case: Case) -> None:
    for rules in (case.alone, case.policy.rule_set()):
        once = case.fix(case.manifest, rules)
        assert case.fix(once.manifest, rules).operations == []


@named(ALL)
def test_the_patch_leads_to_the_fixed_form(case: Case) -> None:
    for rules in (case.alone, case.policy.rule_set()):
        fixed = case.fix(case.manifest, rules)
        assert jsonpatch.apply_patch(case.manifest, fixed.operations) == fixed.manifest


@named(ALL)
def test_the_input_is_left_untouched(case: Case) -> None:
    manifest = case.manifest
    before = copy.deepcopy(manifest)
    case.check(manifest)
    case.fix(manifest, case.policy.rule_set())
    assert manifest == before


@pytest.mark.parametrize("kind", WORKLOADS)
@named([case for case in PODS if portable(case)])
def test_a_pod_is_judged_alike_in_every_workload(case: Case, kind: str) -> None:
    prefix, wrap = WORKLOADS[kind]
    if kind == "RayCluster" and "built_in_only" in case.circumstances:
        return
    pod = case.manifest
    wrapped = wrap(pod)
    expected = [facts(finding) for finding in case.check(pod).findings]
    found = [facts(finding, prefix) for finding in case.check(wrapped).findings]
    if kind == "RayCluster" and [f.get("safe") for f in found] != [f.get("safe") for f in expected]:
        # What a controller adds to a pod is not to be seen, so a fix may be less safe there.
        unsafe = [{**fact, "safe": False} for fact in expected]
        assert [{**fact, "safe": False} for fact in found] == unsafe
        return
    assert found == expected
    inner: Any = case.fix(wrapped).manifest
    for step in prefix:
        inner = inner[step]
    assert inner["spec"] == case.fix(pod).manifest["spec"]  # type: ignore[call-overload, index]


@named(ALL)
def test_a_finding_points_at_a_field_or_directly_below_one(case: Case) -> None:
    for finding in case.check(case.manifest, case.policy.rule_set()).findings:
        node: Any = case.manifest
        for depth, step in enumerate(finding.path, start=1):
            try:
                node = node[step]
            except (KeyError, IndexError):
                assert depth == len(finding.path), pointer(finding.path)


@named(ALL)
def test_a_rule_says_the_same_alone_and_in_company(case: Case) -> None:
    together = case.check(case.manifest, case.policy.rule_set()).findings
    spoken = {
        (name, finding.container_name, finding.key)
        for finding in together
        for name in RULES[finding.rule].supersedes
    }
    alone = [
        finding
        for finding in case.check(case.manifest).findings
        if (finding.rule, finding.container_name, finding.key) not in spoken
    ]
    company = [finding for finding in together if finding.rule == case.rule]
    assert [described(f) for f in company] == [described(f) for f in alone]


@named(PODS)
def test_a_finding_keeps_its_identity_when_containers_change_places(case: Case) -> None:
    pod = case.manifest
    turned = copy.deepcopy(pod)
    for role in ("initContainers", "containers", "ephemeralContainers"):
        if isinstance(turned["spec"].get(role), list):
            turned["spec"][role].reverse()
    rules = case.policy.rule_set()
    identities = {finding.identity for finding in case.check(pod, rules).findings}
    assert {finding.identity for finding in case.check(turned, rules).findings} == identities


@named(ALL)
def test_every_finding_is_fixed_or_still_there(case: Case) -> None:
    rules = case.policy.rule_set()
    before = {finding.identity for finding in case.check(case.manifest, rules).findings}
    result = case.fix(case.manifest, rules)
    after = {f.identity for f in (*result.fixed, *result.remaining.findings)}
    assert before <= after


@named(ALL)
def test_no_two_findings_share_container_and_key(case: Case) -> None:
    findings = case.check(case.manifest, case.policy.rule_set()).findings
    marks = [(f.object_identity, f.stable_path, f.container_name, f.key) for f in findings]
    shared = {mark for mark in marks if marks.count(mark) > 1}
    assert not shared


def test_no_fix_creates_a_finding_of_a_rule_that_ran_before() -> None:
    order = {rule.name: number for number, rule in enumerate(CATALOG)}
    for case in ALL:
        rules = case.policy.rule_set()
        before = {finding.identity for finding in case.check(case.manifest, rules).findings}
        result = case.fix(case.manifest)
        for finding in case.check(result.manifest, rules).findings:
            if finding.identity not in before:
                assert order[finding.rule] > order[case.rule], (case.name, finding.message)


@pytest.mark.parametrize("kind", [None, *WORKLOADS])
@named(PODS)
def test_a_rule_is_silent_where_its_traits_are_missing(case: Case, kind: str | None) -> None:
    """It is not even asked there, so nothing may be found."""
    manifest = WORKLOADS[kind][1](case.manifest) if kind else case.manifest
    rules = case.policy.rule_set()
    asked = [described(finding) for finding in case.check(manifest, rules).findings]
    assert [described(f) for f in case.check(manifest, asking_all(rules)).findings] == asked


@named(ALL)
def test_what_remains_is_what_a_check_of_the_fixed_form_finds(case: Case) -> None:
    """Views and answers are used again while fixing; nobody may notice."""
    rules = case.policy.rule_set()
    fixed = case.fix(case.manifest, rules)
    after = case.check(fixed.manifest, rules)
    remaining = [(described(f), f.identity) for f in fixed.remaining.findings]
    assert remaining == [(described(f), f.identity) for f in after.findings]
    assert fixed.remaining.pods == after.pods


def glanced_at(manifest: Any, case: Case) -> bool:
    """Whether a glance was enough for `manifest`; then it must be as good as the search."""
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
    traits = traits_of(pod)
    assert raw_traits(*plain, profile) == (traits, [c.traits for c in pod.containers])
    return True


@named(PODS)
def test_a_pod_is_told_at_a_glance_as_by_a_search(case: Case) -> None:
    manifest = case.manifest
    unreadable = case.check(manifest).malformed_fields
    assert glanced_at(manifest, case) is (not unreadable and "metadata" in manifest)


@pytest.mark.parametrize(
    "value", [None, 0, "x", [], {}, [None], [{}], [{"x": 0}], {"x": 0}], ids=str
)
def test_a_broken_pod_is_told_at_a_glance_or_searched(value: Any) -> None:
    judged = set()
    for path in places(FULL_POD):
        manifest: Any = copy.deepcopy(FULL_POD)
        parent: Any = value_at(manifest, path[:-1])
        parent[path[-1]] = value
        judged.add(glanced_at(manifest, ALL[0]))
    assert judged == {True, False}


def test_no_judgement_leaves_anything_to_the_garbage_collector() -> None:
    """What refers to itself is freed by it alone, in pauses that requests have to wait for."""
    manifests = [(case, case.manifest, case.policy.rule_set()) for case in ALL]
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
    folder = ROOT / "rules" / "catalog"
    modules = {f"{f.parent.name}/{f.stem}" for f in folder.glob("*/*.py") if f.stem != "__init__"}
    assert modules == {f"{r.family}/{r.name.replace('-', '_')}" for r in CATALOG}
    assert len({rule.name for rule in CATALOG}) == len(CATALOG)


@pytest.mark.parametrize("rule", CATALOG, ids=lambda rule: rule.name)
def test_a_rule_explains_itself(rule: Any) -> None:
    written = rule.documentation
    headings = {"What it does", "Why it matters", "References"}
    if rule.options:
        headings.add("Options")
    if any("fix" in f for case in ALL if case.rule == rule.name for f in case.expected["findings"]):
        headings.add("Fix safety")
    assert headings <= {heading for heading, text in written.items() if text}
    assert rule.summary
    assert not rule.summary.endswith(".")
    for option in rule.options:
        assert f"`{option}`" in written["Options"]


@pytest.mark.parametrize("rule", CATALOG, ids=lambda rule: rule.name)
def test_a_rule_has_a_failing_and_a_clean_case(rule: Any) -> None:
    own = [case for case in ALL if case.rule == rule.name]
    assert any(case.expected["findings"] for case in own)
    assert any(not case.expected["findings"] for case in own)
    for case in own:
        assert case.title, f"{case.name} does not say what it shows"
        if case.file.stem.startswith("clean"):
            assert not case.expected["findings"]


def test_no_case_is_an_orphan() -> None:
    assert {folder.name for folder in CASES.iterdir()} == set(RULES)
    inputs = {case.file.stem for case in ALL}
    for file in CASES.glob("*/*.*.yaml"):
        assert file.name.split(".")[0] in inputs, file


def test_every_kind_of_subject_is_judged() -> None:
    assert {rule.subject for rule in CATALOG} >= {Pod}

"""Tests that no input of a tenant makes a rule, the search for pods or a fix raise."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.loading import default_policy, load_policy
from rules.base.json_values import Path, value_at
from rules.catalog.index import CATALOG
from rules.engine.evaluation import EvaluationResult
from rules.engine.fixing import check, fix
from rules.profile.context import Context
from rules.workloads.discovery import find_subjects
from tests.testkit.cases import TODAY, cases, without_needs
from tests.testkit.full_pod import FULL_CONTAINER, FULL_POD
from tests.testkit.workload_table import PROFILE, places, pods_in, unreadable_in

CONTEXT = Context(TODAY)
RULES = default_policy().rule_set()
ALL_FIXES = load_policy(
    "apiVersion: gpuward.io/v1\nkind: Policy\nvoidEveryContainer: true\nprofiles: [hami, amd]\n"
    "rules:\n" + "".join(f"  {rule.name}: {{fix: true}}\n" for rule in CATALOG),
    "all-fixes.yaml",
).rule_set()

KEYS = st.sampled_from(
    [
        *("apiVersion", "kind", "metadata", "spec", "template", "templates", "items", "name"),
        *("containers", "initContainers", "ephemeralContainers", "container", "sidecars"),
        *("env", "envFrom", "prefix", "value", "valueFrom", "configMapKeyRef", "key", "image"),
        *("resources", "limits", "requests", "claims", "nvidia.com/gpu", "aliyun.com/gpu-mem"),
        *("volumes", "volumeMounts", "hostPath", "path", "mountPath", "subPath", "annotations"),
        *("labels", "affinity", "nodeAffinity", "nodeSelector", "nodeSelectorTerms", "operator"),
        *("requiredDuringSchedulingIgnoredDuringExecution", "matchExpressions", "values"),
        *("tolerations", "effect", "securityContext", "capabilities", "add", "privileged", "hard"),
        *("schedulerName", "nodeName", "runtimeClassName", "driver", "trainer", "predictor"),
    ]
)
WORDS = st.sampled_from(
    [
        *("", "all", "void", "none", "0", "1", "0.5", "-1", "1e30", "1Gi", "${N}", "{{ n }}"),
        *("NVIDIA_VISIBLE_DEVICES", "nvidia.com/gpu", "$(X)", "/dev/nvidia0", "In", "Exists"),
        *("SYS_ADMIN", "/var/run/nvidia-container-devices/all", "/", "..", "Pod", "v1", "*"),
        *("nvidia/cuda:12", "metadata.name", "kube-system", "\u2028", "\x00", "\ud800"),
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | WORDS | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | WORDS, inner, max_size=4),
    max_leaves=12,
)
QUOTA = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "spec": {"hard": {"requests.nvidia.com/gpu": "1.5", "nvidia.com/gpu": 1}},
}
ORIGINALS = [FULL_POD, QUOTA] + [
    {"apiVersion": version, "kind": kind, "metadata": FULL_POD["metadata"], "spec": {field: value}}
    for version, kind, field, value in (
        ("batch/v1", "Job", "template", FULL_POD),
        ("x/v1", "X", "groups", [{"name": "a", "template": FULL_POD}]),
        ("sparkoperator.k8s.io/v1beta2", "SparkApplication", "driver", FULL_CONTAINER),
        ("trainer.kubeflow.org/v1alpha1", "TrainJob", "trainer", FULL_CONTAINER),
        (
            "argoproj.io/v1alpha1",
            "Workflow",
            "templates",
            [{"name": "a", "container": FULL_CONTAINER, "sidecars": [FULL_CONTAINER]}],
        ),
        (
            "serving.kserve.io/v1beta1",
            "InferenceService",
            "predictor",
            {"model": FULL_CONTAINER, "nodeSelector": {}},
        ),
    )
]


def summary(result: EvaluationResult) -> list[Any]:
    found = [(f.identity, f.message, f.path, f.action, f.fixable) for f in result.findings]
    return [found, [unreadable.path for unreadable in result.malformed_fields]]


def evaluate_without_failure(manifest: Any) -> None:
    before = copy.deepcopy(manifest)
    for rules in (RULES, ALL_FIXES):
        result = check(manifest, rules, CONTEXT)
        assert not result.failures
        # A rule that is skipped because a trait is missing has no findings there.
        everything = check(manifest, without_needs(rules), CONTEXT)
        assert summary(everything) == summary(result)
        fixed = fix(manifest, rules, CONTEXT)
        assert not fixed.remaining.failures
        # Fixing reuses evaluated pods, which must not change the result.
        assert summary(fixed.remaining) == summary(check(fixed.manifest, rules, CONTEXT))
        for subject in result.malformed_fields:
            value_at(manifest, subject.path)
    assert manifest == before


@settings(deadline=None)
@given(JSON)
def test_no_json_makes_anything_fail(manifest: Any) -> None:
    evaluate_without_failure(manifest)


@settings(deadline=None)
@given(st.sampled_from(["Pod", "Deployment", "List", "X", "ResourceQuota"]), JSON, JSON)
def test_no_object_makes_anything_fail(kind: str, metadata: Any, spec: Any) -> None:
    head = {"apiVersion": "v1", "kind": kind, "metadata": metadata}
    evaluate_without_failure({**head, "spec": spec, "items": spec})
    evaluate_without_failure({**head, "spec": {"template": {"spec": {"containers": spec}}}})


PLACES = [places(original) for original in ORIGINALS]


@settings(max_examples=300, deadline=None)
@given(st.data(), st.integers(0, len(ORIGINALS) - 1))
@pytest.mark.slow
def test_no_replaced_part_of_a_pod_makes_anything_fail(data: st.DataObject, number: int) -> None:
    manifest = copy.deepcopy(ORIGINALS[number])
    for path in data.draw(st.lists(st.sampled_from(PLACES[number]), min_size=1, max_size=4)):
        try:
            parent: Any = value_at(manifest, path[:-1])
            value_at(parent, path[-1:])
        except (LookupError, TypeError):
            continue  # an earlier change has removed it
        if not isinstance(parent, str):  # of a text, parts are its characters
            parent[path[-1]] = data.draw(JSON)
    evaluate_without_failure(manifest)


@pytest.mark.parametrize("wrong", [["In"], {"a": "b"}], ids=["list", "object"])
def test_no_list_or_object_in_place_of_a_text_makes_a_rule_fail(wrong: Any) -> None:
    for path in PLACES[0]:
        if path and isinstance(value_at(FULL_POD, path), str):
            manifest = copy.deepcopy(FULL_POD)
            parent: Any = value_at(manifest, path[:-1])
            parent[path[-1]] = wrong
            assert not check(manifest, RULES, CONTEXT).failures, path
            assert not check(manifest, ALL_FIXES, CONTEXT).failures, path


def test_a_long_command_hides_those_of_no_other_container() -> None:
    share = {"resources": {"limits": {"aliyun.com/gpu-mem": 2}}}
    long = {**share, "name": "long", "args": ["x" * 100_001]}
    short = {**share, "name": "short", "args": ["--rmm-managed-memory"]}
    spec = {"containers": [long, short]}
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    found = check(manifest, RULES.restricted_to(["managed-memory"]), CONTEXT).findings
    assert [finding.path for finding in found] == [("spec", "containers", 1, "args", 0)]


@pytest.mark.parametrize(
    ("padding", "folder", "paths"),
    [
        ([50_000, 50_000], {"hostPath": {"path": "/run"}}, [("args",)]),
        ([50_000, 1], {"hostPath": {"path": "/run"}}, [("args", 0)]),
        ([50_000, 50_000], {"emptyDir": {}}, []),
    ],
    ids=["too-long", "short", "nothing-of-the-node"],
)
def test_no_padding_hides_a_command_that_starts_containers_with_gpus(
    padding: list[int], folder: dict[str, Any], paths: list[Path]
) -> None:
    mounts = [{"name": "run", "mountPath": "/run"}]
    containers: list[dict[str, Any]] = [
        *({"name": f"pad-{n}", "command": ["x" * length]} for n, length in enumerate(padding)),
        {"name": "start", "args": ["docker run --gpus all cuda"], "volumeMounts": mounts},
        {"name": "idle"},
    ]
    spec = {"containers": containers, "volumes": [{"name": "run", **folder}]}
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    found = check(manifest, RULES.restricted_to(["run-gpu-command"]), CONTEXT).findings
    assert [finding.path for finding in found] == [
        ("spec", "containers", 2, *path) for path in paths
    ]


@pytest.mark.parametrize("number", range(len(ORIGINALS)))
def test_the_originals_make_nothing_fail(number: int) -> None:
    evaluate_without_failure(copy.deepcopy(ORIGINALS[number]))
    assert unreadable_in(ORIGINALS[number]) == []
    assert list(find_subjects(ORIGINALS[number], PROFILE))


# Values of fields of which a rule expects more, or another type.
ODD: tuple[Any, ...] = ("", "-", [], {}, 10**400, math.inf)


def odd_versions(manifest: Any) -> Iterator[Any]:
    """The manifest with an odd value in the place of all that is below one key, for each key."""
    leaves: dict[str, list[Path]] = {}
    for path in places(manifest):
        if not isinstance(value_at(manifest, path), (dict, list)):
            key = next(step for step in reversed(path) if isinstance(step, str))
            leaves.setdefault(key, []).append(path)
    for paths in leaves.values():
        for odd in ODD:
            changed = copy.deepcopy(manifest)
            for path in paths:
                parent: Any = value_at(changed, path[:-1])
                parent[path[-1]] = odd
            yield changed


@pytest.mark.parametrize("rule", [rule.name for rule in CATALOG])
def test_no_odd_value_in_a_case_makes_a_rule_fail(rule: str) -> None:
    own = [case for case in cases() if case.rule == rule]
    assert own
    for case in own:
        for manifest in odd_versions(case.manifest):
            assert not case.check(manifest).failures, manifest


DEPTH = 5_000


def nested(inner: Any, wrap: Any) -> Any:
    for _ in range(DEPTH):
        inner = wrap(inner)
    return inner


@pytest.mark.parametrize(
    "wrap", [lambda v: {"a": v}, lambda v: [v], lambda v: {"containers": v}], ids=["a", "[]", "c"]
)
def test_a_deep_object_does_not_overflow_the_stack(wrap: Any) -> None:
    inner = nested({"x": {"containers": [{"name": "c"}]}}, wrap)
    manifest = {"apiVersion": "example.com/v1", "kind": "X", "spec": inner}
    found = list(find_subjects(manifest, PROFILE))
    assert len(found) <= 1
    assert not check(manifest, RULES, CONTEXT).failures


def test_deep_lists_do_not_overflow_the_stack() -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "c"}]}}
    (found,) = pods_in(nested(pod, lambda item: {"kind": "List", "items": [item]}))
    assert len(found.path) == 2 * DEPTH + 1


def test_a_wide_object_below_a_deep_one_costs_no_paths() -> None:
    """If every node kept its path, this would need gigabytes."""
    inner = nested([{} for _ in range(100_000)], lambda v: {"a": v})
    assert list(find_subjects({"apiVersion": "x/v1", "kind": "X", "spec": inner}, PROFILE)) == []

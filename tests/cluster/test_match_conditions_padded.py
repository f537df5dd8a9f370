"""No pod bypasses the webhook by being too large for the evaluation of the match condition.

The recorder is registered with the failure policy Fail, so that the pod is refused if the
evaluation fails. With Ignore the pod would be admitted without a request to the webhook.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rules.relevance.expressions import LONGEST, MOST, MOST_PREFERRED
from tests.testkit.control_plane.client import Response
from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.dry_runs import DryRuns, minor_version
from tests.testkit.match_conditions.chart_condition import chart_condition
from tests.testkit.match_conditions.padded_pods import (
    COST_FACTOR,
    COST_FACTOR_WITH_OWN_NAMES,
    CUSTOM_PROFILE,
    PREFERENCES,
    PREFERRED,
    REQUIRED,
    SPREADS,
    largest_pod,
    node_affinity,
    pod_above_bound,
    repeated,
)
from tests.testkit.match_conditions.padding import PADDED_PODS
from tests.testkit.match_conditions.recorder import Recorder, registered_recorder

ACCEPTED, INVALID = (200, 201), 422
PHASES = ("mutate", "validate")
FAILED = "resulted in error"
# Older releases drop a pod's claims before they ask the validating webhooks.
CLAIMS_ARE_KEPT = 34
VISIBLE = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}


@pytest.fixture(scope="module")
def runs(api_server: Cluster) -> DryRuns:
    return DryRuns(api_server)


@pytest.fixture(scope="module")
def recorder(api_server: Cluster, runs: DryRuns) -> Iterator[Recorder]:
    with registered_recorder(api_server, runs.namespace, {"default": chart_condition()}) as started:
        yield started


def sent_names(recorder: Recorder, answers: dict[str, Response]) -> set[str]:
    """The names that were sent to the mutating and, unless refused, to the validating webhook."""
    texts = {name: str(answer.body) for name, answer in answers.items()}
    assert [name for name, text in texts.items() if FAILED in text] == []
    calls = {(call.phase, call.name) for call in recorder.requests["default"]}
    accepted = {name for name, answer in answers.items() if answer.status in ACCEPTED}
    return {n for n in answers if all((p, n) in calls for p in PHASES[: 1 + (n in accepted)])}


@pytest.mark.parametrize("values", [{}, {"profiles": [CUSTOM_PROFILE]}], ids=["alone", "own"])
def test_the_largest_pod_costs_a_fraction_of_the_limit(
    api_server: Cluster, values: dict[str, Any]
) -> None:
    times = COST_FACTOR_WITH_OWN_NAMES if values else COST_FACTOR
    runs = DryRuns(api_server)
    conditions = {"safely": repeated(chart_condition(values), times)}
    with registered_recorder(api_server, runs.namespace, conditions) as started:
        answer = runs.submit_by_name([("full", largest_pod())])["full"]
        assert answer.status in ACCEPTED, answer.body
        assert "full" not in started.names("safely")


def test_what_is_too_expensive_is_refused(api_server: Cluster) -> None:
    """The control of the other tests: the response if a condition cannot be evaluated."""
    runs = DryRuns(api_server)
    conditions = {"expensive": repeated(chart_condition(), 100)}
    with registered_recorder(api_server, runs.namespace, conditions) as started:
        answer = runs.submit_by_name([("full", largest_pod())])["full"]
        assert FAILED in answer.body["message"]
        assert "full" not in started.names("expensive")


CHANGES: dict[str, Callable[[Any], Any]] = {
    "variable": lambda s: s["containers"][-1]["env"].__setitem__(-1, VISIBLE),
    "init-variable": lambda s: s["initContainers"][-1]["env"].__setitem__(-1, VISIBLE),
    "prefix": lambda s: s["containers"][-1]["envFrom"][-1].update(prefix="NVIDIA_"),
    "image": lambda s: s["containers"][-1].update(image="nvcr.io/nvidia/pytorch:25.01-py3"),
    "resource": lambda s: s["containers"][-1]["resources"]["requests"].update({"a.com/gpu": 1}),
    "claim": lambda s: s["containers"][-1]["resources"].update(claims=[{"name": "gpu"}]),
    "volume": lambda s: s["volumes"][-1].update(emptyDir=None, hostPath={"path": "/dev/dri"}),
    "runtime": lambda s: s.update(runtimeClassName="nvidia"),
    "node": lambda s: s["nodeSelector"].update({"node.kubernetes.io/instance-type": "p5.48xlarge"}),
    "term": lambda s: node_selector_terms(s)[-1]["matchExpressions"][-1]["values"].__setitem__(
        -1, "g6.xlarge"
    ),
    "spread": lambda s: s[SPREADS][-1].update(topologyKey="nvidia.com/gpu.product"),
    "near": lambda s: pod_affinity_terms(s)[-1].update(topologyKey="nvidia.com/gpu.product"),
    "toleration": lambda s: s["tolerations"][-1].update(key="nvidia.com/gpu"),
    "preference": lambda s: preferences(s)[-1]["matchExpressions"][-1].update(key="gpu"),
    "label": lambda s: node_selector_terms(s)[-1]["matchExpressions"][-1].update(key="gpu"),
}


def node_selector_terms(spec: Any) -> Any:
    return spec["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]


def preferences(spec: Any) -> Any:
    return [choice["preference"] for choice in spec["affinity"]["nodeAffinity"][PREFERRED]]


def pod_affinity_terms(spec: Any) -> Any:
    return spec["affinity"]["podAffinity"][REQUIRED]


def test_the_last_item_in_the_largest_pod_is_evaluated(
    api_server: Cluster, runs: DryRuns, recorder: Recorder
) -> None:
    pods = {name: largest_pod() for name in ("control", *CHANGES, "annotation", "pod-label")}
    for name, change in CHANGES.items():
        change(pods[name]["spec"])
    for name, field in (("annotation", "annotations"), ("pod-label", "labels")):
        metadata = pods[name]["metadata"]
        metadata[field].popitem()
        metadata[field]["example.com/gpu"] = "1"
    if minor_version(api_server) < CLAIMS_ARE_KEPT:
        del pods["claim"]
    answers = runs.submit_by_name(pods.items())
    assert sent_names(recorder, answers) == pods.keys() - {"control"}


def test_a_pod_above_a_bound_is_sent(runs: DryRuns, recorder: Recorder) -> None:
    preferred = [f"{PREFERENCES}{name}" for name in MOST_PREFERRED]
    names = (*MOST, *preferred, *LONGEST)
    pods = {f"more-{name.lower().replace(' ', '-')}": pod_above_bound(name) for name in names}
    answers = runs.submit_by_name(pods.items())
    assert sent_names(recorder, answers) == pods.keys()


@pytest.mark.parametrize("name", PADDED_PODS)
def test_a_padded_pod_is_sent(runs: DryRuns, recorder: Recorder, name: str) -> None:
    answers = runs.submit_by_name([(name, PADDED_PODS[name]())])
    assert answers[name].status in (*ACCEPTED, INVALID), answers[name].body
    assert sent_names(recorder, answers) == {name}


SPARSE: dict[str, dict[str, Any]] = {
    "no-containers": {},
    "null-containers": {"containers": None},
    "null-lists": {"containers": [None], "initContainers": None, "volumes": None},
    "no-affinity": {"affinity": None, "nodeSelector": None},
    "empty-affinity": {"affinity": {"nodeAffinity": {REQUIRED: {}}}},
    "no-pods-near-by": {"affinity": {"podAffinity": {REQUIRED: None}}, SPREADS: None},
    "null-spreads": {"affinity": {"podAffinity": {REQUIRED: [None]}}, SPREADS: [None]},
    "null-terms": {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": None}}}},
    "empty-terms": {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [None]}}}},
    "null-expressions": {"affinity": node_affinity([[None]])},
    "null-env": {"containers": [{"env": [None], "envFrom": [None], "resources": None}]},
}


@pytest.mark.parametrize("name", SPARSE)
def test_a_missing_field_is_no_error(
    api_server: Cluster, runs: DryRuns, recorder: Recorder, name: str
) -> None:
    """The API server calls mutating webhooks before it refuses an incomplete pod."""
    path = f"/api/v1/namespaces/{runs.namespace}/pods?dryRun=All"
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": SPARSE[name]}
    answer = api_server.request("POST", path, made)
    assert answer.status == INVALID, answer.body
    assert sent_names(recorder, {name: answer}) == set()
    init = [{"name": "last", "image": "a", "env": [VISIBLE]}]
    gpu_pod = {**made, "spec": {**SPARSE[name], "initContainers": init}}
    assert sent_names(recorder, {name: api_server.request("POST", path, gpu_pod)}) == {name}

"""No pod gets past the webhook by being so large that the condition cannot be evaluated.

The recorder is registered with the failure policy Fail, so that an evaluation that fails
refuses the pod; under Ignore it would let the pod pass unseen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.testkit.control_plane.client import Answer
from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.dry_runs import DryRuns, minor
from tests.testkit.match_conditions.chart_condition import chart_condition
from tests.testkit.match_conditions.padded_pods import REQUIRED, SPREADS, full, one_more, placed
from tests.testkit.match_conditions.padding import RECIPES
from tests.testkit.match_conditions.recorder import Recorder, recording
from tools.match_bounds import LONGEST, MOST, MOST_OWN_NAMES

DONE, INVALID = (200, 201), 422
PHASES = ("mutate", "validate")
FAILED = "resulted in error"
# Older releases drop a pod's claims before they ask the validating webhooks.
CLAIMS_ARE_KEPT = 34
# How many times over the condition can be evaluated of the fullest pod that it looks at: as it
# is, and with as many names of a user's own as the chart adds, of the sort that costs most.
SAFETY, SAFETY_WITH_OWN_NAMES = 6, 2
OWN = {"name": "own", "alternativeVariables": [f"OUR_{n}_*" for n in range(MOST_OWN_NAMES)]}
VISIBLE = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}


@pytest.fixture(scope="module")
def runs(api_server: Cluster) -> DryRuns:
    return DryRuns(api_server)


@pytest.fixture(scope="module")
def recorder(api_server: Cluster, runs: DryRuns) -> Iterator[Recorder]:
    with recording(api_server, runs.namespace, {"default": chart_condition()}) as started:
        yield started


def repeated(condition: str, times: int) -> str:
    """The same condition, evaluated so many times where it does not hold."""
    return f"{[0] * times}.exists(turn,\n{condition}\n)"


def seen(recorder: Recorder, answers: dict[str, Answer]) -> set[str]:
    """The names that were sent in the mutating call and, unless refused, in the other one too."""
    told = {name: str(answer.body) for name, answer in answers.items()}
    assert [name for name, text in told.items() if FAILED in text] == []
    calls = {(call.phase, call.name) for call in recorder.calls["default"]}
    accepted = {name for name, answer in answers.items() if answer.status in DONE}
    return {n for n in answers if all((p, n) in calls for p in PHASES[: 1 + (n in accepted)])}


@pytest.mark.parametrize("values", [{}, {"profiles": [OWN]}], ids=["alone", "own"])
def test_the_fullest_pod_costs_a_fraction_of_what_it_may(
    api_server: Cluster, values: dict[str, Any]
) -> None:
    times = SAFETY_WITH_OWN_NAMES if values else SAFETY
    runs = DryRuns(api_server)
    ways = {"safely": repeated(chart_condition(values), times)}
    with recording(api_server, runs.namespace, ways) as started:
        answer = runs.ask_by_name([("full", full())])["full"]
        assert answer.status in DONE, answer.body
        assert "full" not in started.names("safely")


def test_what_is_too_expensive_is_refused(api_server: Cluster) -> None:
    """The control of all others: what a condition that cannot be evaluated looks like."""
    runs = DryRuns(api_server)
    ways = {"dear": repeated(chart_condition(), 100)}
    with recording(api_server, runs.namespace, ways) as started:
        answer = runs.ask_by_name([("full", full())])["full"]
        assert FAILED in answer.body["message"]
        assert "full" not in started.names("dear")


SPOILED: dict[str, Callable[[Any], Any]] = {
    "variable": lambda s: s["containers"][-1]["env"].__setitem__(-1, VISIBLE),
    "init-variable": lambda s: s["initContainers"][-1]["env"].__setitem__(-1, VISIBLE),
    "prefix": lambda s: s["containers"][-1]["envFrom"][-1].update(prefix="NVIDIA_"),
    "image": lambda s: s["containers"][-1].update(image="nvcr.io/nvidia/pytorch:25.01-py3"),
    "resource": lambda s: s["containers"][-1]["resources"]["requests"].update({"a.com/gpu": 1}),
    "claim": lambda s: s["containers"][-1]["resources"].update(claims=[{"name": "gpu"}]),
    "volume": lambda s: s["volumes"][-1].update(emptyDir=None, hostPath={"path": "/dev/dri"}),
    "runtime": lambda s: s.update(runtimeClassName="nvidia"),
    "node": lambda s: s["nodeSelector"].update({"node.kubernetes.io/instance-type": "p5.48xlarge"}),
    "term": lambda s: terms(s)[-1]["matchExpressions"][-1]["values"].__setitem__(-1, "g6.xlarge"),
    "spread": lambda s: s[SPREADS][-1].update(topologyKey="nvidia.com/gpu.product"),
    "near": lambda s: near(s)[-1].update(topologyKey="nvidia.com/gpu.product"),
    "label": lambda s: terms(s)[-1]["matchExpressions"][-1].update(key="gpu"),
}


def terms(spec: Any) -> Any:
    (required,) = spec["affinity"]["nodeAffinity"].values()
    return required["nodeSelectorTerms"]


def near(spec: Any) -> Any:
    return spec["affinity"]["podAffinity"][REQUIRED]


def test_the_last_thing_in_the_fullest_pod_is_seen(
    api_server: Cluster, runs: DryRuns, recorder: Recorder
) -> None:
    pods = {name: full() for name in ("control", *SPOILED, "annotation", "pod-label")}
    for name, spoil in SPOILED.items():
        spoil(pods[name]["spec"])
    for name, field in (("annotation", "annotations"), ("pod-label", "labels")):
        metadata = pods[name]["metadata"]
        metadata[field].popitem()
        metadata[field]["example.com/gpu"] = "1"
    if minor(api_server) < CLAIMS_ARE_KEPT:
        del pods["claim"]
    answers = runs.ask_by_name(pods.items())
    assert seen(recorder, answers) == pods.keys() - {"control"}


def test_one_thing_more_than_is_looked_at_is_sent(runs: DryRuns, recorder: Recorder) -> None:
    pods = {f"more-{name.lower()}": one_more(name) for name in (*MOST, *LONGEST)}
    answers = runs.ask_by_name(pods.items())
    assert seen(recorder, answers) == pods.keys()


@pytest.mark.parametrize("name", RECIPES)
def test_a_padded_pod_is_sent(runs: DryRuns, recorder: Recorder, name: str) -> None:
    answers = runs.ask_by_name([(name, RECIPES[name]())])
    assert answers[name].status in (*DONE, INVALID), answers[name].body
    assert seen(recorder, answers) == {name}


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
    "null-expressions": {"affinity": placed([[None]])},
    "null-env": {"containers": [{"env": [None], "envFrom": [None], "resources": None}]},
}


@pytest.mark.parametrize("name", SPARSE)
def test_what_is_missing_is_no_error(
    api_server: Cluster, runs: DryRuns, recorder: Recorder, name: str
) -> None:
    """The API server asks mutating webhooks first, and only then refuses what is incomplete."""
    path = f"/api/v1/namespaces/{runs.namespace}/pods?dryRun=All"
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": SPARSE[name]}
    answer = api_server.request("POST", path, made)
    assert answer.status == INVALID, answer.body
    assert seen(recorder, {name: answer}) == set()
    init = [{"name": "last", "image": "a", "env": [VISIBLE]}]
    taking = {**made, "spec": {**SPARSE[name], "initContainers": init}}
    assert seen(recorder, {name: api_server.request("POST", path, taking)}) == {name}

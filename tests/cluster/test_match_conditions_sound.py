"""Whatever concerns a rule reaches the webhook through a real API server, and little else does.

The judge is the engine, asked about every pod that did not reach us: all rules, whatever traits
they need and whatever a policy says of them, under every profile.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from policies.loading import default_policy
from policies.profiles import built_in
from tests.testkit.admission.reviews import container, pod
from tests.testkit.api_subjects import of_the_cases, of_the_corpus
from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.dry_runs import DryRuns, objections
from tests.testkit.match_conditions.chart_condition import chart_condition
from tests.testkit.match_conditions.outcomes import Asked, asked_about, concerned, own_profiles
from tests.testkit.match_conditions.recorder import Recorder, recording
from tests.testkit.paths import DATA, DOCS

ORDINARY = DATA / "ordinary_pods.yaml"
MANUAL = DOCS / "matching.md"
# How the API server begins to say that a condition could not be evaluated.
FAILED = "resulted in error"
ACCEPTED = 201
UNTOLD = ("creationTimestamp", "managedFields", "name", "namespace", "uid")
FROM_EACH = pytest.mark.parametrize("origin", ["cases", "corpus"])


@pytest.fixture(scope="module")
def runs(api_server: Cluster) -> DryRuns:
    return DryRuns(api_server)


@pytest.fixture(scope="module")
def recorder(api_server: Cluster, runs: DryRuns) -> Iterator[Recorder]:
    """A webhook registered three times: for all pods, by default, and with the cases' profiles."""
    own = [profile for _, chosen in own_profiles() for profile in chosen]
    widened = chart_condition({"profiles": own})
    ways = {"everything": "", "default": chart_condition(), "own": widened}
    with recording(api_server, runs.namespace, ways) as started:
        yield started


@pytest.fixture(scope="module")
def from_cases(runs: DryRuns, recorder: Recorder) -> Asked:
    return asked_about(runs, recorder, "case", of_the_cases().sent)


@pytest.fixture(scope="module")
def from_corpus(runs: DryRuns, recorder: Recorder, corpus: Path) -> Asked:
    return asked_about(runs, recorder, "public", of_the_corpus(corpus).sent)


@FROM_EACH
def test_what_is_not_sent_concerns_no_rule(request: pytest.FixtureRequest, origin: str) -> None:
    asked: Asked = request.getfixturevalue(f"from_{origin}")
    profiles = [default_policy([name]).profile for name in built_in()]
    assert concerned(asked.unsent("default"), profiles) == {}
    assert concerned(asked.unsent("own"), [profile for profile, _ in own_profiles()]) == {}


@FROM_EACH
def test_everything_was_asked_about(request: pytest.FixtureRequest, origin: str) -> None:
    """The control: all of it was seen but what cannot be decoded, of which there is little."""
    asked: Asked = request.getfixturevalue(f"from_{origin}")
    assert asked.readable - asked.recorder.names("everything") == set()
    unreadable = asked.answers.keys() - asked.readable
    told = [asked.answers[name].body["message"] for name in unreadable]
    assert [message for message in told if "cannot be handled as" not in message] == []
    assert len(unreadable) * 20 < len(asked.answers)


@FROM_EACH
def test_no_condition_fails(request: pytest.FixtureRequest, origin: str) -> None:
    asked: Asked = request.getfixturevalue(f"from_{origin}")
    told = [o.message for answer in asked.answers.values() for o in objections(answer)]
    assert [message for message in told if FAILED in message] == []


def test_every_quota_is_sent(from_cases: Asked) -> None:
    calls = from_cases.recorder.calls
    quotas = {c for c, sent in calls["everything"].items() if sent["kind"] == "ResourceQuota"}
    assert quotas
    assert quotas <= calls["default"].keys()


def test_a_gpu_in_the_overhead_is_sent(
    api_server: Cluster, runs: DryRuns, recorder: Recorder
) -> None:
    """A runtime class brings it, and only one that does lets a pod have it."""
    name = f"heavy-{runs.namespace}"
    made = {"metadata": {"name": name}, "handler": "h"}
    overhead = {"podFixed": {"nvidia.com/gpu": "1"}}
    api_server.create("/apis/node.k8s.io/v1/runtimeclasses", {**made, "overhead": overhead})
    answers = runs.ask_by_name([("heavy", pod(container(), runtimeClassName=name))])
    assert answers["heavy"].status == ACCEPTED
    assert "heavy" in recorder.names("default")


def test_no_ordinary_pod_is_sent(runs: DryRuns, recorder: Recorder) -> None:
    pods = {p["metadata"]["name"]: p for p in yaml.safe_load_all(ORDINARY.read_text("utf-8"))}
    assert len(pods) >= 15
    answers = runs.ask_by_name(pods.items())
    assert {name for name, answer in answers.items() if answer.status != ACCEPTED} == set()
    assert pods.keys() <= recorder.names("everything")
    assert pods.keys() & (recorder.names("default") | recorder.names("own")) == set()


def test_the_manual_tells_how_many_public_pods_are_not_sent(from_corpus: Asked) -> None:
    inputs = {n for n in from_corpus.readable if from_corpus.subjects[n].endswith(" input")}
    spared = inputs - from_corpus.recorder.names("default")
    text = " ".join(MANUAL.read_text(encoding="utf-8").split())
    assert f"{len(spared)} of the {len(inputs)} public pods" in text

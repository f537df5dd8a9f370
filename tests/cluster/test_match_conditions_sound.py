"""A real API server sends every pod that a rule reports, and few others, to the webhook.

Every pod that was not sent is checked with all rules, with every profile, without regard to the
traits that the rules need and to the actions that a policy sets.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from policies.loading import default_policy
from policies.profiles import built_in_profiles
from tests.testkit.admission.reviews import container, pod
from tests.testkit.api_subjects import case_submissions, corpus_submissions
from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.dry_runs import DryRuns, refusal_causes
from tests.testkit.match_conditions.chart_condition import chart_condition
from tests.testkit.match_conditions.outcomes import (
    NO_RUNTIME_CLASS,
    SubmittedPods,
    custom_profiles,
    missed_rules,
    submit_pods,
)
from tests.testkit.match_conditions.recorder import Recorder, registered_recorder
from tests.testkit.paths import DATA, DOCS
from webhook.admission.request import NAMESPACE_LIMIT_KINDS

ORDINARY = DATA / "ordinary_pods.yaml"
MANUAL = DOCS / "matching.md"
# Part of the API server's message about a condition that it cannot evaluate.
EVALUATION_FAILED = "resulted in error"
ACCEPTED = 201
IDENTITY_FIELDS = ("creationTimestamp", "managedFields", "name", "namespace", "uid")
# Marks the tests that get the fixtures of a control plane by name, too.
pytestmark = pytest.mark.usefixtures("api_server")
FROM_EACH = pytest.mark.parametrize("origin", ["cases", "corpus"])


@pytest.fixture(scope="module")
def runs(api_server: Cluster) -> DryRuns:
    return DryRuns(api_server)


@pytest.fixture(scope="module")
def recorder(api_server: Cluster, runs: DryRuns) -> Iterator[Recorder]:
    """Registered three times: without a condition, with the default one, with custom profiles."""
    own = [profile for _, chosen in custom_profiles() for profile in chosen]
    with_custom_profiles = chart_condition({"profiles": own})
    conditions = {"everything": "", "default": chart_condition(), "own": with_custom_profiles}
    with registered_recorder(api_server, runs.namespace, conditions) as started:
        yield started


@pytest.fixture(scope="module")
def from_cases(runs: DryRuns, recorder: Recorder) -> SubmittedPods:
    return submit_pods(runs, recorder, "case", case_submissions().submissions)


@pytest.fixture(scope="module")
def from_corpus(runs: DryRuns, recorder: Recorder, corpus: Path) -> SubmittedPods:
    return submit_pods(runs, recorder, "public", corpus_submissions(corpus).submissions)


@FROM_EACH
@pytest.mark.slow
def test_no_rule_reports_a_pod_that_is_not_sent(
    request: pytest.FixtureRequest, origin: str
) -> None:
    submitted: SubmittedPods = request.getfixturevalue(f"from_{origin}")
    profiles = [default_policy([name]).profile for name in built_in_profiles()]
    assert missed_rules(submitted.not_sent("default"), profiles) == {}
    assert (
        missed_rules(submitted.not_sent("own"), [profile for profile, _ in custom_profiles()]) == {}
    )


@FROM_EACH
def test_every_object_was_submitted(request: pytest.FixtureRequest, origin: str) -> None:
    """The control: all objects were sent, except the few that reach no webhook."""
    submitted: SubmittedPods = request.getfixturevalue(f"from_{origin}")
    assert submitted.readable - submitted.recorder.names("everything") == set()
    unreadable = submitted.answers.keys() - submitted.readable
    messages = [submitted.answers[name].body["message"] for name in unreadable]
    reasons = ("cannot be handled as", NO_RUNTIME_CLASS)
    assert [m for m in messages if not any(reason in m for reason in reasons)] == []
    assert len(unreadable) * 20 < len(submitted.answers)


@FROM_EACH
def test_no_condition_fails(request: pytest.FixtureRequest, origin: str) -> None:
    submitted: SubmittedPods = request.getfixturevalue(f"from_{origin}")
    messages = [o.message for answer in submitted.answers.values() for o in refusal_causes(answer)]
    assert [message for message in messages if EVALUATION_FAILED in message] == []


@pytest.mark.parametrize("kind", NAMESPACE_LIMIT_KINDS)
def test_every_limit_of_a_namespace_is_sent(from_cases: SubmittedPods, kind: str) -> None:
    calls = from_cases.recorder.requests
    limits = {c for c, sent in calls["everything"].items() if sent["kind"] == kind}
    assert limits
    assert limits <= calls["default"].keys()


def test_a_gpu_in_the_overhead_is_sent(
    api_server: Cluster, runs: DryRuns, recorder: Recorder
) -> None:
    """The API server accepts an overhead only from a runtime class that has it."""
    name = f"heavy-{runs.namespace}"
    made = {"metadata": {"name": name}, "handler": "h"}
    overhead = {"podFixed": {"nvidia.com/gpu": "1"}}
    api_server.create("/apis/node.k8s.io/v1/runtimeclasses", {**made, "overhead": overhead})
    answers = runs.submit_by_name([("heavy", pod(container(), runtimeClassName=name))])
    assert answers["heavy"].status == ACCEPTED
    assert "heavy" in recorder.names("default")


def test_no_ordinary_pod_is_sent(runs: DryRuns, recorder: Recorder) -> None:
    pods = {p["metadata"]["name"]: p for p in yaml.safe_load_all(ORDINARY.read_text("utf-8"))}
    assert len(pods) >= 15
    answers = runs.submit_by_name(pods.items())
    assert {name for name, answer in answers.items() if answer.status != ACCEPTED} == set()
    assert pods.keys() <= recorder.names("everything")
    assert pods.keys() & (recorder.names("default") | recorder.names("own")) == set()


def test_the_manual_has_the_number_of_public_pods_that_are_not_sent(
    from_corpus: SubmittedPods,
) -> None:
    inputs = {n for n in from_corpus.readable if from_corpus.subjects[n].endswith(" input")}
    not_sent = inputs - from_corpus.recorder.names("default")
    text = " ".join(MANUAL.read_text(encoding="utf-8").split())
    assert f"{len(not_sent)} of the {len(inputs)} public pods" in text

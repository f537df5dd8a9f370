"""A real API server without gpuward accepts what `fix` writes, and the rules predict its refusals.

If it refuses an object because of GPUs, a finding about the same container says so. If a finding
says that it refuses an object, it does. `api_server_differences.yaml` explains every difference.

This is Invariant 24 of tests/rules/test_invariants.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from policies.loading import default_policy
from rules.objects.kubernetes_objects import KubernetesObject
from rules.workloads.discovery import find_subjects
from tests.testkit.api_subjects import (
    Submission,
    SubmissionCollector,
    case_submissions,
    corpus_submissions,
    deployment_submissions,
)
from tests.testkit.cases import cases
from tests.testkit.control_plane.client import Response
from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.dry_runs import (
    UNREADABLE,
    DryRuns,
    RefusalCause,
    container_position,
    differences_in,
    minor_version,
    refusal_causes,
)
from tests.testkit.paths import DATA

DIFFERENCES = DATA / "api_server_differences.yaml"


# Marks the tests that get the fixtures of a control plane by name, too.
pytestmark = pytest.mark.usefixtures("api_server")
ORIGINS = pytest.mark.parametrize("origin", ["cases", "deployments", "corpus"])


class SubmittedObject(NamedTuple):
    """One submitted object with its findings and the response of the API server."""

    submission: Submission
    answer: Response

    @property
    def key(self) -> tuple[str, str]:
        """Identifies the object."""
        return self.submission.subject, self.submission.form

    @property
    def refusal_causes(self) -> set[RefusalCause]:
        """The causes for which the API server refuses it."""
        return refusal_causes(self.answer)

    @property
    def difference(self) -> str:
        """`refused` without a finding, or `accepted` despite a finding; empty if both agree."""
        announced = {container_position(f.path) for f in self.submission.findings if f.api_refuses}
        refused = {cause.container_position for cause in self.refusal_causes}
        if self.answer.status == UNREADABLE and announced:
            return ""  # such a response names no container
        if refused - announced:
            return "refused"
        return "accepted" if announced - refused else ""


@pytest.fixture(scope="module")
def runs(api_server: Cluster) -> DryRuns:
    return DryRuns(api_server)


@pytest.fixture(scope="module")
def from_cases(runs: DryRuns) -> tuple[SubmissionCollector, list[SubmittedObject]]:
    return _submit(runs, case_submissions())


@pytest.fixture(scope="module")
def from_deployments(runs: DryRuns) -> tuple[SubmissionCollector, list[SubmittedObject]]:
    return _submit(runs, deployment_submissions())


@pytest.fixture(scope="module")
def from_corpus(runs: DryRuns, corpus: Path) -> tuple[SubmissionCollector, list[SubmittedObject]]:
    return _submit(runs, corpus_submissions(corpus))


@pytest.fixture(scope="module")
def differences(api_server: Cluster) -> dict[str, Any]:
    """The reviewed differences that apply to this release."""
    release = minor_version(api_server)
    reviewed: dict[str, Any] = yaml.safe_load(DIFFERENCES.read_text(encoding="utf-8"))
    origins = (reviewed["cases"], reviewed["deployments"], reviewed["corpus"])
    for entries in (e for sections in origins for e in sections.values()):
        entries[:] = differences_in(entries, release)
    return reviewed


@ORIGINS
@pytest.mark.slow
def test_no_fix_gives_the_api_server_a_reason_to_refuse(
    request: pytest.FixtureRequest, origin: str
) -> None:
    _, submitted = request.getfixturevalue(f"from_{origin}")
    inputs = {
        j.submission.subject: j.refusal_causes for j in submitted if j.submission.form == "input"
    }
    new = {j.key: j.refusal_causes - inputs[j.submission.subject] for j in submitted}
    assert {key: causes for key, causes in new.items() if causes} == {}
    assert {j.submission.subject for j in submitted} == set(inputs)


@ORIGINS
def test_the_rules_announce_every_refusal_of_the_api_server(
    request: pytest.FixtureRequest, origin: str, differences: dict[str, Any]
) -> None:
    _, submitted = request.getfixturevalue(f"from_{origin}")
    forms: dict[str, list[str]] = {}
    for item in submitted:
        forms.setdefault(item.submission.subject, []).append(item.submission.form)
    found = {item.key: item.difference for item in submitted if item.difference}
    # Not every case can be the template of a Deployment.
    expected_forms = [] if origin == "deployments" else ["not submitted"]
    expected = {
        (subject, form): kind
        for kind, entry in _entries(differences, origin)
        for subject in entry["subjects"]
        for form in forms.get(subject, expected_forms)
        if form in entry.get("forms", [form])
    }
    surplus, missing = found.items() - expected.items(), expected.items() - found.items()
    assert (sorted(surplus), sorted(missing)) == ([], [])


@ORIGINS
def test_each_difference_is_what_its_reason_says(
    request: pytest.FixtureRequest, origin: str, differences: dict[str, Any]
) -> None:
    _, submitted = request.getfixturevalue(f"from_{origin}")
    refusals = [item for item in submitted if item.difference == "refused"]
    for kind, entry in _entries(differences, origin):
        assert len(entry["reason"].split()) > 5, entry
        if kind == "refused":
            matching = [item for item in refusals if item.submission.subject in entry["subjects"]]
            messages = [item.answer.body["message"] for item in matching]
            assert [message for message in messages if entry["says"] not in message] == []


def test_default_fixes_make_refused_pods_acceptable(
    from_cases: tuple[SubmissionCollector, list[SubmittedObject]],
) -> None:
    """The control of the tests above, which a fix without effect would pass too."""
    refused = {j.key for j in from_cases[1] if j.refusal_causes}
    inputs = {subject for subject, form in refused if form == "input"}
    accepted_when_fixed = {subject for subject in inputs if (subject, "together") not in refused}
    all_names = [case.name for case in cases() if case.rule == "request-only"]
    assert accepted_when_fixed >= {name for name in all_names if name in inputs} - STILL_REFUSED
    assert len(accepted_when_fixed) >= 10


# A patch without an image, and requests from which no limit can be made.
STILL_REFUSED = {
    "request-only/clean-ephemeral",
    "request-only/clean-fraction-or-placeholder",
    "request-only/clean-patch",
    "request-only/limits-of-a-wrong-type",
}


@ORIGINS
def test_every_skipped_object_is_reviewed(
    request: pytest.FixtureRequest, origin: str, differences: dict[str, Any]
) -> None:
    subjects, _ = request.getfixturevalue(f"from_{origin}")
    assert dict(subjects.skipped) == differences["skipped"][origin]


def test_every_case_is_submitted(
    from_cases: tuple[SubmissionCollector, list[SubmittedObject]], differences: dict[str, Any]
) -> None:
    names = [item.submission.subject for item in from_cases[1]]
    missing = {
        case.name
        for case in cases()
        if not _is_submitted(case.name, names) and not _has_objects_only(case.manifest)
    }
    assert missing == set(differences["not_sent"])


def _has_objects_only(manifest: Any) -> bool:
    """Return whether rules evaluate `manifest` as a whole, such as a Node, and no pod in it."""
    subjects = list(find_subjects(manifest, default_policy().profile))
    return all(isinstance(subject, KubernetesObject) for subject in subjects)


def _is_submitted(name: str, subjects: list[str]) -> bool:
    return any(subject == name or subject.startswith(f"{name}/") for subject in subjects)


def _submit(
    runs: DryRuns, subjects: SubmissionCollector
) -> tuple[SubmissionCollector, list[SubmittedObject]]:
    answers = runs.submit_all(submission.object for submission in subjects.submissions)
    return subjects, [
        SubmittedObject(*pair) for pair in zip(subjects.submissions, answers, strict=True)
    ]


def _entries(differences: dict[str, Any], origin: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each reviewed difference with its kind: `refused` or `accepted`."""
    kinds = {"not_for_a_rule": "refused", "unannounced": "refused", "accepted": "accepted"}
    for section in ("cases", "deployments") if origin == "deployments" else (origin,):
        for name, entries in differences[section].items():
            for entry in entries:
                if origin == section or not entry.get("pods_only"):
                    yield kinds[name], entry

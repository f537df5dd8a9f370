"""Law 8 on a real API server, which has never heard of us: what `fix` writes, it accepts.

What it refuses for a GPU's sake, the rules have announced, container by container; and what
a finding says it refuses, it refuses. Where that is not so, `api_server_differences.yaml` says why.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.testkit.api_subjects import (
    Sent,
    Subjects,
    of_the_cases,
    of_the_cases_in_deployments,
    of_the_corpus,
)
from tests.testkit.cases import cases
from tests.testkit.control_plane.client import Answer
from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.dry_runs import (
    UNREADABLE,
    DryRuns,
    Objection,
    concerning,
    minor,
    objections,
    spot,
)
from tests.testkit.paths import DATA

DIFFERENCES = DATA / "api_server_differences.yaml"


ORIGINS = pytest.mark.parametrize("origin", ["cases", "deployments", "corpus"])


class Judged(NamedTuple):
    """What the API server and the rules say of one object."""

    sent: Sent
    answer: Answer

    @property
    def mark(self) -> tuple[str, str]:
        """Which object it is."""
        return self.sent.subject, self.sent.form

    @property
    def objections(self) -> set[Objection]:
        """Why the API server refuses it."""
        return objections(self.answer)

    @property
    def difference(self) -> str:
        """What is refused unannounced, or announced and accepted; empty if both agree."""
        announced = {spot(f.path) for f in self.sent.findings if f.api_refuses}
        refused = {objection.spot for objection in self.objections}
        if self.answer.status == UNREADABLE and announced:
            return ""  # such an answer names no container
        if refused - announced:
            return "refused"
        return "accepted" if announced - refused else ""


@pytest.fixture(scope="module")
def asked(api_server: Cluster) -> DryRuns:
    return DryRuns(api_server)


@pytest.fixture(scope="module")
def from_cases(asked: DryRuns) -> tuple[Subjects, list[Judged]]:
    return _judged(asked, of_the_cases())


@pytest.fixture(scope="module")
def from_deployments(asked: DryRuns) -> tuple[Subjects, list[Judged]]:
    return _judged(asked, of_the_cases_in_deployments())


@pytest.fixture(scope="module")
def from_corpus(asked: DryRuns, corpus: Path) -> tuple[Subjects, list[Judged]]:
    return _judged(asked, of_the_corpus(corpus))


@pytest.fixture(scope="module")
def differences(api_server: Cluster) -> dict[str, Any]:
    """The reviewed differences, without those that concern other releases."""
    release = minor(api_server)
    reviewed: dict[str, Any] = yaml.safe_load(DIFFERENCES.read_text(encoding="utf-8"))
    origins = (reviewed["cases"], reviewed["deployments"], reviewed["corpus"])
    for entries in (e for sections in origins for e in sections.values()):
        entries[:] = concerning(entries, release)
    return reviewed


@ORIGINS
def test_no_fix_gives_the_api_server_a_reason_to_refuse(
    request: pytest.FixtureRequest, origin: str
) -> None:
    _, judged = request.getfixturevalue(f"from_{origin}")
    inputs = {j.sent.subject: j.objections for j in judged if j.sent.form == "input"}
    new = {j.mark: j.objections - inputs[j.sent.subject] for j in judged}
    assert {mark: objected for mark, objected in new.items() if objected} == {}
    assert {j.sent.subject for j in judged} == set(inputs)


@ORIGINS
def test_what_the_api_server_refuses_the_rules_announce(
    request: pytest.FixtureRequest, origin: str, differences: dict[str, Any]
) -> None:
    _, judged = request.getfixturevalue(f"from_{origin}")
    forms: dict[str, list[str]] = {}
    for one in judged:
        forms.setdefault(one.sent.subject, []).append(one.sent.form)
    found = {one.mark: one.difference for one in judged if one.difference}
    # Not every case can be a Deployment's.
    absent = [] if origin == "deployments" else ["never asked about"]
    expected = {
        (subject, form): kind
        for kind, entry in _entries(differences, origin)
        for subject in entry["subjects"]
        for form in forms.get(subject, absent)
        if form in entry.get("forms", [form])
    }
    surplus, missing = found.items() - expected.items(), expected.items() - found.items()
    assert (sorted(surplus), sorted(missing)) == ([], [])


@ORIGINS
def test_each_difference_is_what_its_reason_says(
    request: pytest.FixtureRequest, origin: str, differences: dict[str, Any]
) -> None:
    _, judged = request.getfixturevalue(f"from_{origin}")
    refusals = [one for one in judged if one.difference == "refused"]
    for kind, entry in _entries(differences, origin):
        assert len(entry["reason"].split()) > 5, entry
        if kind == "refused":
            about = [one for one in refusals if one.sent.subject in entry["subjects"]]
            told = [one.answer.body["message"] for one in about]
            assert [message for message in told if entry["says"] not in message] == []


def test_unasked_fixes_make_refused_pods_acceptable(
    from_cases: tuple[Subjects, list[Judged]],
) -> None:
    """The control of the laws above: a fix that repairs nothing would obey them too."""
    refused = {j.mark for j in from_cases[1] if j.objections}
    inputs = {subject for subject, form in refused if form == "input"}
    healed = {subject for subject in inputs if (subject, "together") not in refused}
    whole = [case.name for case in cases() if case.rule == "request-only"]
    assert healed >= {name for name in whole if name in inputs} - NOT_HEALED
    assert len(healed) >= 10


# A patch with no image, and what nobody can make a limit of.
NOT_HEALED = {
    "request-only/clean-ephemeral",
    "request-only/clean-fraction-or-placeholder",
    "request-only/clean-patch",
    "request-only/limits-of-a-wrong-type",
}


@ORIGINS
def test_nothing_is_left_out_unnoticed(
    request: pytest.FixtureRequest, origin: str, differences: dict[str, Any]
) -> None:
    subjects, _ = request.getfixturevalue(f"from_{origin}")
    assert dict(subjects.skipped) == differences["skipped"][origin]


def test_every_case_is_asked_about(
    from_cases: tuple[Subjects, list[Judged]], differences: dict[str, Any]
) -> None:
    asked_about = [one.sent.subject for one in from_cases[1]]
    missing = {case.name for case in cases() if not _is_among(case.name, asked_about)}
    assert missing == set(differences["not_sent"])


def _is_among(name: str, subjects: list[str]) -> bool:
    return any(subject == name or subject.startswith(f"{name}/") for subject in subjects)


def _judged(asked: DryRuns, subjects: Subjects) -> tuple[Subjects, list[Judged]]:
    answers = asked.ask_all(sent.object for sent in subjects.sent)
    return subjects, [Judged(*pair) for pair in zip(subjects.sent, answers, strict=True)]


def _entries(differences: dict[str, Any], origin: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each difference of the file with its kind: `refused` unannounced, or `accepted`."""
    kinds = {"not_for_a_rule": "refused", "unannounced": "refused", "accepted": "accepted"}
    for section in ("cases", "deployments") if origin == "deployments" else (origin,):
        for name, entries in differences[section].items():
            for entry in entries:
                if origin == section or not entry.get("pods_only"):
                    yield kinds[name], entry

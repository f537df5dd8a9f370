"""Law 10 on a real API server that asks a real `gpuward serve`: one pod, two doors.

What the linter says of a pod's file, the door says of the pod: the same fixes, the same
warnings, the same refusals, word for word. And a pod made from a template that `fix` wrote
passes the door unchanged.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from registration.configurations import MODE_LABEL
from tests.testkit.admission.lint_admission_parity import Judged, at_both_doors, fixed, pod_of, pods
from tests.testkit.admission.registered_webhook import Server
from tests.testkit.api_subjects import in_a_deployment, public
from tests.testkit.cases import cases
from tests.testkit.complete_manifests import completed
from tests.testkit.control_plane.client import Answer
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.dry_runs import UNREADABLE, DryRuns, concerning, minor, objections
from tests.testkit.paths import DATA
from webhook.admission.fixed_annotation import FIXED_ANNOTATION

DIFFERENCES = DATA / "api_server_differences.yaml"
ORIGINS = ("cases", "corpus")
FROM_EACH = pytest.mark.parametrize("origin", ORIGINS)


@pytest.fixture(scope="module")
def admission(plane: ControlPlane, server: Server) -> DryRuns:
    assert server.url
    return DryRuns(plane, {MODE_LABEL: "deny"})


@pytest.fixture(scope="module")
def pods_of_cases() -> dict[str, Any]:
    return pods((case.name, case.manifest) for case in cases())


@pytest.fixture(scope="module")
def pods_of_corpus(corpus: Path) -> dict[str, Any]:
    return pods(public(corpus))


@pytest.fixture(scope="module")
def judged_cases(admission: DryRuns, pods_of_cases: dict[str, Any]) -> dict[str, Judged]:
    return at_both_doors(admission, pods_of_cases)


@pytest.fixture(scope="module")
def judged_corpus(admission: DryRuns, pods_of_corpus: dict[str, Any]) -> dict[str, Judged]:
    return at_both_doors(admission, pods_of_corpus)


@pytest.fixture(scope="module")
def reviewed(plane: ControlPlane) -> dict[str, Any]:
    doors: dict[str, Any] = yaml.safe_load(DIFFERENCES.read_text(encoding="utf-8"))["doors"]
    return doors | {origin: concerning(doors[origin], minor(plane)) for origin in ORIGINS}


@FROM_EACH
def test_a_pod_is_admitted_with_the_findings_of_its_file(
    request: pytest.FixtureRequest, reviewed: dict[str, Any], origin: str
) -> None:
    judged: dict[str, Judged] = request.getfixturevalue(f"judged_{origin}")
    found = {name: one.difference for name, one in judged.items() if one.difference}
    expected = {subject: entry["is"] for entry in reviewed[origin] for subject in entry["subjects"]}
    surplus, missing = found.items() - expected.items(), expected.items() - found.items()
    assert (sorted(surplus), sorted(missing)) == ([], [])


def test_no_public_pod_is_left_out(
    pods_of_corpus: dict[str, Any], reviewed: dict[str, Any]
) -> None:
    assert len(pods_of_corpus) == reviewed["pods_of_corpus"]


def test_every_way_of_being_judged_occurs(judged_cases: dict[str, Judged]) -> None:
    """The control of the test above: a webhook that is not called would agree too often."""
    told = [one.door for one in judged_cases.values()]
    assert sum(one.denied for one in told) >= 50
    assert sum(any("] fixed" in line for line in one.warnings) for one in told) >= 100
    assert sum(not one.denied and bool(one.warnings) for one in told) >= 100
    silent = [one for one in judged_cases.values() if not one.door.rules]
    assert sum(one.answer.status != UNREADABLE for one in silent) >= 50


@FROM_EACH
def test_a_pod_of_a_fixed_template_passes_unchanged(
    request: pytest.FixtureRequest, admission: DryRuns, origin: str
) -> None:
    found = request.getfixturevalue(f"pods_of_{origin}")
    templates = {
        f"made-{number}": completed(in_a_deployment(manifest), admission.namespace)
        for number, manifest in enumerate(found.values())
    }
    before = admission.ask_by_name((n, pod_of(whole)) for n, whole in templates.items())
    assert sum(_is_changed(answer) for answer in before.values()) >= 100
    mended = {name: fixed(whole).manifest for name, whole in templates.items()}
    after = admission.ask_by_name((n, pod_of(whole)) for n, whole in mended.items())
    names = dict(zip(templates, found, strict=True))
    assert [names[name] for name, answer in after.items() if _is_changed(answer)] == []


def _is_changed(answer: Answer) -> bool:
    """Whether the webhook has fixed something, in a pod that is then accepted or refused."""
    said = any("] fixed" in line for line in answer.warnings)
    if objections(answer):
        return said
    marked = FIXED_ANNOTATION in answer.body["metadata"].get("annotations", {})
    assert marked == said, answer.warnings
    return marked

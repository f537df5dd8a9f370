"""The linter and the webhook report the same about an object, with a real API server and webhook.

The fixes, warnings and refusals are the same, word for word. A pod that is created from a
template which `fix` wrote is admitted unchanged.

This is Invariant 25 of tests/rules/test_invariants.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.testkit.admission.lint_admission_parity import (
    Comparison,
    compare,
    fix_result,
    limits_of_namespaces,
    pod_of,
    pods,
)
from tests.testkit.admission.server_process import Server
from tests.testkit.api_subjects import public_manifests, wrap_in_deployment
from tests.testkit.cases import cases
from tests.testkit.complete_manifests import complete_manifest
from tests.testkit.control_plane.client import Response
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.dry_runs import (
    UNREADABLE,
    DryRuns,
    differences_in,
    minor_version,
    refusal_causes,
)
from tests.testkit.paths import DATA
from webhook.admission.enforcement import FIXED_ANNOTATION
from webhook.admission.request import NAMESPACE_LIMIT_KINDS
from webhook.registration import MODE_LABEL

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
    return pods(public_manifests(corpus))


@pytest.fixture(scope="module")
def limits_of_cases() -> dict[str, Any]:
    return limits_of_namespaces((case.name, case.manifest) for case in cases())


@pytest.fixture(scope="module")
def compared_cases(
    admission: DryRuns, pods_of_cases: dict[str, Any], limits_of_cases: dict[str, Any]
) -> dict[str, Comparison]:
    return compare(admission, pods_of_cases | limits_of_cases)


@pytest.fixture(scope="module")
def compared_corpus(admission: DryRuns, pods_of_corpus: dict[str, Any]) -> dict[str, Comparison]:
    return compare(admission, pods_of_corpus)


@pytest.fixture(scope="module")
def reviewed(plane: ControlPlane) -> dict[str, Any]:
    parity: dict[str, Any] = yaml.safe_load(DIFFERENCES.read_text(encoding="utf-8"))["parity"]
    return parity | {
        origin: differences_in(parity[origin], minor_version(plane)) for origin in ORIGINS
    }


@FROM_EACH
def test_an_object_is_admitted_with_the_findings_of_its_file(
    request: pytest.FixtureRequest, reviewed: dict[str, Any], origin: str
) -> None:
    compared: dict[str, Comparison] = request.getfixturevalue(f"compared_{origin}")
    found = {name: item.difference for name, item in compared.items() if item.difference}
    expected = {subject: entry["is"] for entry in reviewed[origin] for subject in entry["subjects"]}
    surplus, missing = found.items() - expected.items(), expected.items() - found.items()
    assert (sorted(surplus), sorted(missing)) == ([], [])


def test_limits_of_namespaces_are_evaluated_at_admission(
    compared_cases: dict[str, Comparison], limits_of_cases: dict[str, Any]
) -> None:
    reported = {name for name in limits_of_cases if compared_cases[name].webhook.rules}
    assert {limits_of_cases[name]["kind"] for name in reported} == set(NAMESPACE_LIMIT_KINDS)


def test_every_public_pod_is_compared(
    pods_of_corpus: dict[str, Any], reviewed: dict[str, Any]
) -> None:
    assert len(pods_of_corpus) == reviewed["pods_of_corpus"]


def test_every_kind_of_decision_occurs(compared_cases: dict[str, Comparison]) -> None:
    """The control of the test above: without calls of the webhook it would often pass too."""
    reports = [item.webhook for item in compared_cases.values()]
    assert sum(item.denied for item in reports) >= 50
    assert sum(any("] fixed" in line for line in item.warnings) for item in reports) >= 100
    assert sum(not item.denied and bool(item.warnings) for item in reports) >= 100
    unreported = [item for item in compared_cases.values() if not item.webhook.rules]
    assert sum(item.answer.status != UNREADABLE for item in unreported) >= 50


@FROM_EACH
def test_a_pod_of_a_fixed_template_passes_unchanged(
    request: pytest.FixtureRequest, admission: DryRuns, reviewed: dict[str, Any], origin: str
) -> None:
    of_pods_alone = {case.name for case in cases() if "pod_only" in case.circumstances}
    others = of_pods_alone | {*reviewed["fixed_only_at_admission"]}
    found = {
        name: manifest
        for name, manifest in request.getfixturevalue(f"pods_of_{origin}").items()
        if name not in others
    }
    templates = {
        f"made-{number}": complete_manifest(wrap_in_deployment(manifest), admission.namespace)
        for number, manifest in enumerate(found.values())
    }
    before = admission.submit_by_name((n, pod_of(manifest)) for n, manifest in templates.items())
    assert sum(_is_changed(answer) for answer in before.values()) >= 100
    fixed_templates = {name: fix_result(manifest).manifest for name, manifest in templates.items()}
    after = admission.submit_by_name(
        (n, pod_of(manifest)) for n, manifest in fixed_templates.items()
    )
    names = dict(zip(templates, found, strict=True))
    assert [names[name] for name, answer in after.items() if _is_changed(answer)] == []


def _is_changed(answer: Response) -> bool:
    """Return whether the webhook has fixed something, in a pod that is then accepted or refused."""
    has_fix_warning = any("] fixed" in line for line in answer.warnings)
    if refusal_causes(answer):
        return has_fix_warning
    has_annotation = FIXED_ANNOTATION in answer.body["metadata"].get("annotations", {})
    assert has_annotation == has_fix_warning, answer.warnings
    return has_annotation

"""The guard of the labels for admin access, as the real API server applies it to namespaces."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.testkit.chart.rendering import HELMS, Manifest, of_kind, render
from tests.testkit.control_plane.client import Response
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually
from tests.testkit.paths import ROOT

KINDS = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
NAME = "gpuward-admin-access-guard"
GUIDE = ROOT / "docs" / "admin-access.md"
LABEL, OLD_LABEL = "resource.kubernetes.io/admin-access", "resource.k8s.io/admin-access"
NAMESPACES = "/api/v1/namespaces"
VALUES = """
adminAccessGuard:
  enabled: true
  users: [platform-admin]
  groups: [platform-admins]
  serviceAccounts: [kube-system/namespaces]
"""
LISTED = ("platform-admin", "system:serviceaccount:kube-system:namespaces")
TENANT = "tenant-admin"
MERGE = "application/merge-patch+json"


def guard_objects(values: str, helm: str = "helm3") -> list[Manifest]:
    """The guard and its binding as the chart renders them."""
    rendered = render(values, helm=helm)
    found = [each for kind in KINDS for each in of_kind(rendered, kind)]
    return [each for each in found if each["metadata"]["name"] == NAME]


def label(
    plane: ControlPlane, labels: dict[str, str | None], user: str, path: str = ""
) -> Response:
    """Set or remove labels of the namespace `guarded`, without storing anything."""
    headers = {"Impersonate-User": user, "Impersonate-Group": "system:masters"}
    body: dict[str, Any] = {"metadata": {"labels": labels}}
    url = f"{NAMESPACES}/guarded{path}?dryRun=All"
    return plane.request("PATCH", url, body, content_type=MERGE, headers=headers)


@pytest.fixture(scope="module")
def guarded(plane: ControlPlane) -> Iterator[ControlPlane]:
    """The plane with the guard, a namespace without a label, and one that has it already."""
    for metadata in ({"name": "guarded"}, {"name": "labelled", "labels": {LABEL: "true"}}):
        plane.create(NAMESPACES, {"metadata": metadata})
    made = {"apiVersion": "v1", "kind": "List", "items": guard_objects(VALUES)}
    options = ("--server-side", "--validate=strict", "--filename=-")
    plane.kubectl("apply", *options, input=json.dumps(made))
    # API servers take a moment to notice a new policy.
    eventually(
        lambda: label(plane, {LABEL: "true"}, TENANT).status == 403, what="the guard refuses"
    )
    yield plane
    for kind in KINDS:
        plane.kubectl("delete", kind, NAME, "--ignore-not-found")
    for name in ("guarded", "labelled"):
        plane.request("DELETE", f"{NAMESPACES}/{name}")


@pytest.mark.parametrize("key", [LABEL, OLD_LABEL])
def test_only_listed_users_give_a_namespace_the_label(guarded: ControlPlane, key: str) -> None:
    for path in ("", "/status"):
        assert label(guarded, {key: "true"}, TENANT, path).status == 403
    new = {"metadata": {"name": "new", "labels": {key: "true"}}}
    for user, status in ((TENANT, 403), *((listed, 201) for listed in LISTED)):
        headers = {"Impersonate-User": user, "Impersonate-Group": "system:masters"}
        answer = guarded.request("POST", f"{NAMESPACES}?dryRun=All", new, headers=headers)
        assert answer.status == status
    for user in LISTED:
        assert label(guarded, {key: "true"}, user).status == 200


def test_the_refusal_is_that_of_the_guide(guarded: ControlPlane) -> None:
    command = ("label", "namespace", "guarded", f"{LABEL}=true")
    done = guarded.kubectl(*command, check=False)
    assert done.stderr.replace("guarded", "team-a") in GUIDE.read_text(encoding="utf-8")


def test_other_changes_pass(guarded: ControlPlane) -> None:
    changes: tuple[dict[str, str | None], ...]
    changes = ({"team": "a"}, {LABEL: "false"}, {LABEL: None})
    for labels in changes:
        assert label(guarded, labels, TENANT).status == 200
    for labels in changes[::2]:
        body = {"metadata": {"labels": labels}}
        headers = {"Impersonate-User": TENANT, "Impersonate-Group": "system:masters"}
        url = f"{NAMESPACES}/labelled?dryRun=All"
        answer = guarded.request("PATCH", url, body, content_type=MERGE, headers=headers)
        assert answer.status == 200


@pytest.mark.parametrize("helm", HELMS)
def test_the_guard_is_off_until_it_is_wanted(helm: str) -> None:
    assert guard_objects("", helm) == []
    assert [made["kind"] for made in guard_objects(VALUES, helm)] == list(KINDS)

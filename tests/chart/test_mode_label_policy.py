"""The policy for the mode label, as the real API server applies it to namespaces."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from tests.testkit.chart.rendering import HELMS, Manifest, of_kind, render, render_error
from tests.testkit.control_plane import objects
from tests.testkit.control_plane.client import Response
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually
from tests.testkit.paths import ROOT
from webhook.registration import MODE_LABEL

KINDS = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
MINIMUM = "mode: deny\nminimumMode: warn"
INSTALL = ROOT / "docs" / "install.md"
NAMESPACES = "/api/v1/namespaces"
Apply = Callable[[str], None]


def policy_objects(values: str, helm: str = "helm3") -> list[Manifest]:
    """The policy and its binding as the chart renders them."""
    rendered = render(values, helm=helm)
    return [each for kind in KINDS for each in of_kind(rendered, kind)]


def submit(plane: ControlPlane, labels: dict[str, str]) -> Response:
    """Create a namespace with these labels, as a dry run."""
    return plane.request("POST", f"{NAMESPACES}?dryRun=All", objects.namespace("labelled", labels))


def set_label(plane: ControlPlane, namespace: str, key: str, value: str | None) -> Response:
    """Set a label of an existing namespace, or remove it."""
    patch = {"metadata": {"labels": {key: value}}}
    content_type = "application/merge-patch+json"
    return plane.request("PATCH", f"{NAMESPACES}/{namespace}", patch, content_type=content_type)


def refused(plane: ControlPlane, mode: str) -> str:
    """The message of the API server for a namespace with this mode; empty if it is accepted."""
    answer = submit(plane, {MODE_LABEL: mode})
    return "" if answer.status == 201 else str(answer.body["message"])


@pytest.fixture
def apply(plane: ControlPlane) -> Iterator[Apply]:
    """Returns a function that applies the policy for some values; it is removed at the end."""

    def apply_policy(values: str) -> None:
        made = {"apiVersion": "v1", "kind": "List", "items": policy_objects(values)}
        options = ("--server-side", "--validate=strict", "--filename=-")
        plane.kubectl("apply", *options, input=json.dumps(made))
        # API servers take a moment to notice a new policy.
        eventually(lambda: refused(plane, "no-mode"), what="the policy refuses")

    yield apply_policy
    for kind in KINDS:
        plane.kubectl("delete", kind, "gpuward-mode-label", "--ignore-not-found")
    eventually(lambda: not refused(plane, "no-mode"), what="the policy is gone")


def test_a_value_that_is_no_mode_is_refused(plane: ControlPlane, apply: Apply) -> None:
    apply("")
    answer = submit(plane, {MODE_LABEL: "dney"})
    assert answer.status == 422
    expected = 'gpuward.io/mode: "dney" is no mode. Use deny, warn, audit or off, or remove'
    assert expected in answer.body["message"]
    namespace = plane.namespace()
    done = plane.kubectl("label", "namespace", namespace, f"{MODE_LABEL}=dney", check=False)
    assert done.stderr.replace(namespace, "team-a") in INSTALL.read_text(encoding="utf-8")
    for wrong in ("Deny", "OFF", "true", ""):
        assert "is no mode" in refused(plane, wrong)
    for mode in ("deny", "warn", "audit", "off"):
        assert not refused(plane, mode)
    assert submit(plane, {}).status == submit(plane, {"team": "dney"}).status == 201


def test_a_mode_below_the_minimum_is_refused(plane: ControlPlane, apply: Apply) -> None:
    apply(MINIMUM)
    for mode in ("audit", "off"):
        message = refused(plane, mode)
        assert f'"{mode}" is below "warn", the lowest mode that this cluster allows' in message
        assert message.endswith("Use deny or warn, or remove the label.")
    assert not refused(plane, "warn")
    assert not refused(plane, "deny")


def test_only_a_label_that_is_new_or_changed_is_refused(plane: ControlPlane, apply: Apply) -> None:
    namespace = plane.namespace({MODE_LABEL: "off"})
    apply(MINIMUM)
    # An upgrade that raises minimumMode must not block other changes of a namespace.
    assert set_label(plane, namespace, "team", "a").status == 200
    assert set_label(plane, namespace, MODE_LABEL, "off").status == 200
    assert set_label(plane, namespace, MODE_LABEL, "audit").status == 422
    assert set_label(plane, namespace, MODE_LABEL, "deny").status == 200
    assert set_label(plane, namespace, MODE_LABEL, "off").status == 422
    assert set_label(plane, namespace, MODE_LABEL, None).status == 200
    assert set_label(plane, namespace, MODE_LABEL, "dney").status == 422
    assert plane.request("DELETE", f"{NAMESPACES}/{namespace}").status == 200


@pytest.mark.parametrize("minimum", ["deny", "warn", "audit", "'off'"])
def test_the_api_server_accepts_every_policy_and_adds_no_defaults(
    plane: ControlPlane, minimum: str
) -> None:
    for made in policy_objects(f"mode: deny\nminimumMode: {minimum}"):
        options = ("--dry-run=server", "--validate=strict", "--output=json", "--filename=-")
        done = plane.kubectl("create", *options, input=json.dumps(made))
        assert not done.stderr, done.stderr
        assert json.loads(done.stdout)["spec"] == made["spec"]


@pytest.mark.parametrize("helm", HELMS)
def test_a_value_turns_the_policy_off(helm: str) -> None:
    assert [made["kind"] for made in policy_objects("", helm)] == list(KINDS)
    assert policy_objects("modeLabelPolicy: {enabled: false}", helm) == []


@pytest.mark.parametrize("helm", HELMS)
def test_helm_refuses_versions_of_kubernetes_without_such_policies(helm: str) -> None:
    error = render_error("", helm=helm, options=("--kube-version=1.29.9",))
    assert "chart requires kubeVersion: >=1.30.0-0" in error

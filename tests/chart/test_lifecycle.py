"""The chart installed with default values: users get warnings, and no pod is changed or refused."""

from __future__ import annotations

import base64
from functools import partial

import pytest

from tests.testkit.admission.enforcement import BYPASS_POD, SYSTEM, enforcement_in
from tests.testkit.admission.registered_webhook import create
from tests.testkit.chart.installation import Installation
from tests.testkit.control_plane.processes import eventually
from tests.testkit.end_to_end.steps import audit_annotations
from webhook.registration import MODE_LABEL, RegistrationOptions, configurations

pytest_plugins = ["tests.testkit.chart.fixtures"]
# These are about what is installed, whichever helm has installed it.
pytestmark = pytest.mark.parametrize("installation", ["helm4"], indirect=True, scope="module")


@pytest.fixture(scope="module")
def defaults(installation: Installation) -> Installation:
    """An installation with the default values, besides those that choose the node."""
    installation.install({})
    return installation


def wait_for_treatment(installation: Installation, namespace: str, expected: str) -> None:
    """Wait until pods get the expected treatment; a slow request may first time out."""
    observe = partial(enforcement_in, installation.plane, namespace)
    eventually(lambda: observe() == expected, what=f"pods of {namespace}: {expected}")


def test_helm_waits_until_all_pods_serve_with_a_published_certificate(
    defaults: Installation,
) -> None:
    assert len(defaults.pods("webhook")) == 2
    assert len(defaults.pods("certs")) == 1
    authority = base64.b64decode(defaults.get("secret/gpuward-ca")["data"]["ca.crt"])
    eventually(lambda: defaults.ca_bundles() == {authority}, what="all webhooks trust it")
    made = configurations("gpuward", lambda path: {"url": path}, RegistrationOptions())
    assert list(defaults.webhooks()) == [
        entry["name"] for each in made for entry in each["webhooks"]
    ]


def test_users_get_warnings_and_pods_are_neither_changed_nor_refused(
    defaults: Installation,
) -> None:
    wait_for_treatment(defaults, defaults.plane.namespace(), "warned")


@pytest.mark.parametrize(
    ("label", "expected"),
    [("deny", "enforced"), ("warn", "warned")],
)
def test_a_label_chooses_the_mode_of_a_namespace(
    defaults: Installation, label: str, expected: str
) -> None:
    wait_for_treatment(defaults, defaults.plane.namespace({MODE_LABEL: label}), expected)


@pytest.mark.parametrize("label", ["denny", "Off"])
def test_a_label_that_is_no_mode_is_refused(defaults: Installation, label: str) -> None:
    namespace = defaults.plane.namespace()
    arguments = ("label", "namespace", namespace, f"{MODE_LABEL}={label}")
    done = defaults.plane.kubectl(*arguments, check=False)
    assert f'"{label}" is no mode. Use deny, warn, audit or off' in done.stderr


def test_the_label_audit_only_records_findings(defaults: Installation) -> None:
    namespace = defaults.plane.namespace({MODE_LABEL: "audit"})
    assert enforcement_in(defaults.plane, namespace) == "silent"

    def recorded() -> bool:
        made = create(defaults.plane, namespace, BYPASS_POD)
        assert (made.status, made.warnings) == (201, [])
        found = audit_annotations(defaults.plane, namespace, "trainer")
        defaults.plane.kubectl("delete", "pod", "trainer", "-n", namespace, "--now")
        return found == {"audit.gpuward.io/visible-devices-env": "would-be-denied"}

    eventually(recorded, what="the audit log has the finding")


def test_no_pod_is_evaluated_in_a_namespace_labelled_off(defaults: Installation) -> None:
    off, other = (defaults.plane.namespace({MODE_LABEL: mode}) for mode in ("off", "deny"))
    wait_for_treatment(defaults, other, "enforced")
    assert enforcement_in(defaults.plane, off) == "silent"


@pytest.mark.parametrize("location", ["its own namespace", *SYSTEM])
def test_no_pod_is_evaluated_in_a_reserved_namespace(defaults: Installation, location: str) -> None:
    namespace = location if location in SYSTEM else defaults.namespace
    # A label of the namespace must not change that.
    defaults.plane.kubectl("label", "namespace", namespace, f"{MODE_LABEL}=deny")
    # Once the API server sees a later label, it also sees this one.
    wait_for_treatment(defaults, defaults.plane.namespace({MODE_LABEL: "deny"}), "enforced")
    assert enforcement_in(defaults.plane, namespace) == "silent"
    defaults.plane.kubectl("label", "namespace", namespace, f"{MODE_LABEL}-")


def test_webhook_pods_have_no_credentials(defaults: Installation) -> None:
    for pod in defaults.pods("webhook"):
        mounted = pod.manifest["spec"]["containers"][0]["volumeMounts"]
        assert {mount["name"] for mount in mounted} == {"tls", "policy", "policy-fallback"}

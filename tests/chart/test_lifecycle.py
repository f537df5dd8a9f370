"""The chart as it is installed by who changes nothing: pods are warned about, and that is all."""

from __future__ import annotations

import base64
from functools import partial

import pytest

from registration.configurations import MODE_LABEL, RegistrationOptions, configurations
from tests.testkit.admission.enforcement import SYSTEM, TAKER, treatment
from tests.testkit.admission.registered_webhook import create
from tests.testkit.chart.installation import Installed
from tests.testkit.control_plane.processes import eventually
from tests.testkit.end_to_end.steps import annotated

pytest_plugins = ["tests.testkit.chart.fixtures"]


@pytest.fixture(scope="module")
def defaults(installed: Installed) -> Installed:
    """An installation with the default values, and of the node to run on."""
    installed.install({})
    return installed


def fares(installed: Installed, namespace: str, how: str) -> None:
    """Wait until pods fare like that: with the default timeout a slow answer counts as none."""
    ask = partial(treatment, installed.plane, namespace)
    eventually(lambda: ask() == how, what=f"pods of {namespace} are {how}")


def test_helm_waits_until_all_pods_serve_by_a_certificate_that_is_published(
    defaults: Installed,
) -> None:
    assert len(defaults.pods("webhook")) == 2
    assert len(defaults.pods("certs")) == 1
    eventually(lambda: len(defaults.bundles()) == 1, what="all entries have the same bundle")
    (bundle,) = defaults.bundles()
    secret = defaults.get("secret/gpuward-ca")
    assert bundle == base64.b64decode(secret["data"]["ca.crt"])
    made = configurations("gpuward", lambda path: {"url": path}, RegistrationOptions())
    assert list(defaults.webhooks()) == [
        entry["name"] for each in made for entry in each["webhooks"]
    ]


def test_pods_are_warned_about_and_neither_changed_nor_refused(defaults: Installed) -> None:
    fares(defaults, defaults.plane.namespace(), "warned")


@pytest.mark.parametrize(
    ("label", "how"),
    [("deny", "enforced"), ("warn", "warned"), ("denny", "warned"), ("Off", "warned")],
)
def test_a_label_chooses_the_mode_of_a_namespace(defaults: Installed, label: str, how: str) -> None:
    fares(defaults, defaults.plane.namespace({MODE_LABEL: label}), how)


def test_a_label_says_audit(defaults: Installed) -> None:
    namespace = defaults.plane.namespace({MODE_LABEL: "audit"})
    assert treatment(defaults.plane, namespace) == "silent"

    def recorded() -> bool:
        made = create(defaults.plane, namespace, TAKER)
        assert (made.status, made.warnings) == (201, [])
        found = annotated(defaults.plane, namespace, "trainer")
        defaults.plane.kubectl("delete", "pod", "trainer", "-n", namespace, "--now")
        return found == {"audit.gpuward.io/visible-devices-env": "would-be-denied"}

    eventually(recorded, what="the audit log has the finding")


def test_nobody_is_judged_in_a_namespace_labelled_off(defaults: Installed) -> None:
    off, other = (defaults.plane.namespace({MODE_LABEL: mode}) for mode in ("off", "deny"))
    fares(defaults, other, "enforced")
    assert treatment(defaults.plane, off) == "silent"


@pytest.mark.parametrize("place", ["its own namespace", *SYSTEM])
def test_nobody_is_judged_in(defaults: Installed, place: str) -> None:
    namespace = place if place in SYSTEM else defaults.namespace
    # Whatever the label says that somebody gives it.
    defaults.plane.kubectl("label", "namespace", namespace, f"{MODE_LABEL}=deny")
    # API servers have seen that label when they have seen a later one.
    fares(defaults, defaults.plane.namespace({MODE_LABEL: "deny"}), "enforced")
    assert treatment(defaults.plane, namespace) == "silent"
    defaults.plane.kubectl("label", "namespace", namespace, f"{MODE_LABEL}-")


def test_pods_that_serve_have_no_credentials(defaults: Installed) -> None:
    for pod in defaults.pods("webhook"):
        mounted = pod.manifest["spec"]["containers"][0]["volumeMounts"]
        assert {mount["name"] for mount in mounted} == {"tls", "policy"}

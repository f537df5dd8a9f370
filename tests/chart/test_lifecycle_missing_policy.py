"""Without the ConfigMap of the policy, pods start with the released one, and say what is wrong."""

from __future__ import annotations

import http.client
from collections.abc import Callable
from typing import Any

import pytest

from tests.testkit.admission.enforcement import BYPASS_POD, FIXES, GPU_POD
from tests.testkit.admission.registered_webhook import create
from tests.testkit.chart.installation import SLOW_MACHINE, Installation, merge_values
from tests.testkit.control_plane.processes import TIMEOUT, eventually
from tests.testkit.end_to_end.steps import fixing_rules, patch

pytest_plugins = ["tests.testkit.chart.fixtures"]
# These are about what is installed, whichever helm has installed it.
pytestmark = pytest.mark.parametrize("installation", ["helm4"], indirect=True, scope="module")

# A policy that can be told from the default one.
LENIENT: dict[str, Any] = {"rules": {"visible-devices-env": {"action": "off"}}}
VALUES = merge_values(SLOW_MACHINE, {"mode": "deny", "policy": LENIENT})


@pytest.fixture(scope="module")
def lenient(installation: Installation) -> Installation:
    """An installation in mode deny whose policy admits pods that set the variable."""
    installation.install(VALUES)
    wait_for_policy(installation)
    return installation


def wait_for_policy(installation: Installation) -> None:
    """Wait until the released policy is the active one: it admits what the default one refuses."""
    namespace = installation.plane.namespace()

    def is_active() -> bool:
        taker = create(installation.plane, namespace, BYPASS_POD, dry_run=True)
        holder = create(installation.plane, namespace, GPU_POD, dry_run=True)
        return taker.status == 201 and fixing_rules(holder.body) == FIXES

    eventually(is_active, what="the released policy is active")


def delete(installation: Installation, name: str) -> None:
    """Delete a ConfigMap of the release."""
    installation.plane.kubectl("delete", "configmap", name, "-n", installation.namespace)


def empty(installation: Installation, name: str) -> None:
    """Remove the content of a ConfigMap of the release."""
    path = f"/api/v1/namespaces/{installation.namespace}/configmaps/{name}"
    assert patch(installation.plane, path, {"data": None}).status == 200


def blank(installation: Installation, name: str) -> None:
    """Make the policy in a ConfigMap an empty text."""
    path = f"/api/v1/namespaces/{installation.namespace}/configmaps/{name}"
    assert patch(installation.plane, path, {"data": {"gpuward.yaml": ""}}).status == 200


def answer(endpoint: str, path: str) -> str:
    """The body of the answer of a pod; empty while it does not answer."""
    host, _, port = endpoint.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    except OSError:
        return ""
    finally:
        connection.close()


def wait_for_metric(endpoint: str, sample: str) -> None:
    """Wait until the metrics of a pod have a sample."""
    eventually(lambda: sample in answer(endpoint, "/metrics"), what=sample)


@pytest.mark.parametrize("damage", [delete, empty, blank])
def test_without_a_policy_new_pods_start_with_the_released_one(
    lenient: Installation, damage: Callable[[Installation, str], None]
) -> None:
    damage(lenient, "gpuward-policy")
    # `rollout status` succeeds only if the new pods become ready.
    lenient.restart()
    lenient.publish_ca_bundle()
    wait_for_policy(lenient)
    for pod in lenient.pods():
        endpoint = pod.endpoint("metrics")
        wait_for_metric(endpoint, "gpuward_policy_valid 0.0")
        assert "policy" in answer(endpoint, "/readyz")
        log = lenient.kubelet.log(pod.namespace, pod.manifest["metadata"]["name"])
        assert '"policy refused"' in log
    # The certificate controller is a new pod too, and still reports it.
    fields = ("--field-selector=reason=PolicyRefused", "-o", "jsonpath={.items[*].message}")
    events = ("get", "events", "-n", lenient.namespace, *fields)
    eventually(
        lambda: "the webhook cannot use the policy" in lenient.plane.kubectl(*events).stdout,
        seconds=100,
        what="an event",
    )
    assert lenient.helm("test", TIMEOUT, check=False).returncode
    lenient.plane.kubectl("delete", "events", "--all", "-n", lenient.namespace)
    # The command of the manual.
    forced = ("--server-side=true", "--force-conflicts", "--wait", TIMEOUT)
    lenient.helm("upgrade", "charts/gpuward", *forced, values=VALUES)
    for pod in lenient.pods():
        wait_for_metric(pod.endpoint("metrics"), "gpuward_policy_valid 1.0")


def test_without_the_fallback_new_pods_start_with_the_policy(lenient: Installation) -> None:
    delete(lenient, "gpuward-policy-fallback")
    lenient.restart()
    wait_for_policy(lenient)
    lenient.upgrade(VALUES)

"""Upgrades and rollbacks of the chart: what they change, and what they keep."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from tests.testkit.admission.enforcement import BYPASS_POD, FIXES, GPU_POD, enforcement_in
from tests.testkit.admission.registered_webhook import create
from tests.testkit.chart.installation import SLOW_MACHINE, Installation, merge_values
from tests.testkit.control_plane.processes import eventually
from tests.testkit.end_to_end.steps import fixing_rules

pytest_plugins = ["tests.testkit.chart.fixtures"]

DENY = merge_values(SLOW_MACHINE, {"mode": "deny"})
LENIENT = merge_values(DENY, {"policy": {"rules": {"visible-devices-env": {"action": "off"}}}})
LEASE = "lease.coordination.k8s.io/gpuward-certs"


@pytest.fixture(scope="module")
def serving(installation: Installation) -> Installation:
    """An installation in the default mode."""
    installation.install(SLOW_MACHINE)
    eventually(lambda: b"" not in installation.ca_bundles(), what="the bundle is published")
    return installation


def is_lenient_policy_active(installation: Installation, namespace: str) -> bool:
    """Return whether the lenient policy is active.

    It admits a pod that takes GPUs, and still fixes.
    """
    taker = create(installation.plane, namespace, BYPASS_POD, dry_run=True)
    holder = create(installation.plane, namespace, GPU_POD, dry_run=True)
    return taker.status == 201 and fixing_rules(holder.body) == FIXES


def persistent_state(installation: Installation) -> dict[str, Any]:
    """The state that no upgrade may change: certificates, the Lease and the caBundles."""
    secrets = {
        name: installation.get(f"secret/{name}")["data"] for name in ("gpuward-ca", "gpuward-tls")
    }
    assert all(all(data.values()) for data in secrets.values())
    holder = installation.get(LEASE)["spec"]["holderIdentity"]
    assert holder
    return {**secrets, "holder": holder, "bundles": installation.ca_bundles()}


def processes(installation: Installation) -> set[int]:
    """The processes of all pods."""
    return {
        pod.process_id for component in ("webhook", "certs") for pod in installation.pods(component)
    }


def generations(installation: Installation) -> list[int]:
    """The generation of each Deployment, which every change increases."""
    names = ("gpuward", "gpuward-certs")
    return [installation.get(f"deployment/{name}")["metadata"]["generation"] for name in names]


def revision(installation: Installation) -> int:
    """The release's newest revision."""
    return int(json.loads(installation.helm("status", "-o", "json").stdout)["version"])


def test_an_upgrade_changes_the_mode_and_a_rollback_restores_it(serving: Installation) -> None:
    before = persistent_state(serving)
    serving.upgrade(SLOW_MACHINE)
    wait_until_running, first = processes(serving), revision(serving)
    namespace = serving.plane.namespace()
    observe = partial(enforcement_in, serving.plane, namespace)
    eventually(lambda: observe() == "warned", what="pods get warnings")
    serving.upgrade(DENY)
    eventually(lambda: observe() == "enforced", what="pods are refused and fixed")
    assert persistent_state(serving) == before
    serving.rollback(first)
    eventually(lambda: observe() == "warned", what="pods get warnings again")
    assert persistent_state(serving) == before
    assert processes(serving) == wait_until_running


def test_a_changed_policy_reaches_the_running_processes(serving: Installation) -> None:
    before = persistent_state(serving)
    serving.upgrade(DENY)
    wait_until_running, first = processes(serving), revision(serving)
    rollouts = generations(serving)
    namespace = serving.plane.namespace()
    observe = partial(enforcement_in, serving.plane, namespace)
    eventually(lambda: observe() == "enforced", what="the default policy is active")
    serving.upgrade(LENIENT)
    eventually(
        lambda: is_lenient_policy_active(serving, namespace), what="the new policy is active"
    )
    serving.rollback(first)
    eventually(lambda: observe() == "enforced", what="the old policy is active again")
    assert processes(serving) == wait_until_running
    assert generations(serving) == rollouts
    assert persistent_state(serving) == before


@pytest.mark.parametrize(
    ("policy", "named"),
    [
        ({"rules": {"visible-device-env": {"action": "off"}}}, "visible-device-env"),
        ({"rules": {"visible-devices-env": {"action": "forbid"}}}, "visible-devices-env"),
        ({"rulez": {}}, "rulez"),
    ],
)
def test_an_invalid_policy_is_not_installed(serving: Installation, policy: Any, named: str) -> None:
    before, file = revision(serving), serving.get("configmap/gpuward-policy")
    done = serving.upgrade(merge_values(SLOW_MACHINE, {"policy": policy}), check=False)
    assert done.returncode
    assert named in done.stderr
    assert revision(serving) == before
    assert serving.get("configmap/gpuward-policy") == file


def test_an_upgrade_recreates_deleted_webhook_configurations(serving: Installation) -> None:
    serving.upgrade(DENY)
    namespace = serving.plane.namespace()
    observe = partial(enforcement_in, serving.plane, namespace)
    eventually(lambda: observe() == "enforced", what="gpuward enforces")
    both = "validatingwebhookconfiguration,mutatingwebhookconfiguration"
    serving.plane.kubectl("delete", both, "gpuward")
    eventually(lambda: observe() == "silent", what="no webhook is called any more")
    serving.upgrade(DENY)
    serving.publish_ca_bundle()
    eventually(lambda: observe() == "enforced", what="gpuward enforces again")

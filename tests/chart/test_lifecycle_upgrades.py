"""Upgrades and rollbacks of the chart: what they change, and what they leave as it was."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from tests.testkit.admission.enforcement import FIXES, HOLDER, TAKER, treatment
from tests.testkit.admission.registered_webhook import create
from tests.testkit.chart.installation import PATIENT, Installed, merged
from tests.testkit.control_plane.processes import eventually
from tests.testkit.end_to_end.steps import fixed_by

pytest_plugins = ["tests.testkit.chart.fixtures"]

DENY = merged(PATIENT, {"mode": "deny"})
LENIENT = merged(DENY, {"policy": {"rules": {"visible-devices-env": {"action": "off"}}}})
LEASE = "lease.coordination.k8s.io/gpuward-certs"


@pytest.fixture(scope="module")
def serving(installed: Installed) -> Installed:
    """An installation in the default mode."""
    installed.install(PATIENT)
    eventually(lambda: b"" not in installed.bundles(), what="the bundle is published")
    return installed


def is_let_pass(installed: Installed, namespace: str) -> bool:
    """Whether the policy of a server that fixes lets a pod take GPUs."""
    taker = create(installed.plane, namespace, TAKER, dry_run=True)
    holder = create(installed.plane, namespace, HOLDER, dry_run=True)
    return taker.status == 201 and fixed_by(holder.body) == FIXES


def kept(installed: Installed) -> dict[str, Any]:
    """What no upgrade may touch: certificates, the lease, and what API servers trust."""
    secrets = {
        name: installed.get(f"secret/{name}")["data"] for name in ("gpuward-ca", "gpuward-tls")
    }
    assert all(all(data.values()) for data in secrets.values())
    holder = installed.get(LEASE)["spec"]["holderIdentity"]
    assert holder
    return {**secrets, "holder": holder, "bundles": installed.bundles()}


def processes(installed: Installed) -> set[int]:
    """The processes of all pods."""
    return {pod.process_id for what in ("webhook", "certs") for pod in installed.pods(what)}


def generations(installed: Installed) -> list[int]:
    """How often each Deployment has been changed."""
    names = ("gpuward", "gpuward-certs")
    return [installed.get(f"deployment/{name}")["metadata"]["generation"] for name in names]


def revision(installed: Installed) -> int:
    """The release's newest revision."""
    return int(json.loads(installed.helm("status", "-o", "json").stdout)["version"])


def test_a_mode_is_changed_by_an_upgrade_and_comes_back_by_a_rollback(serving: Installed) -> None:
    before = kept(serving)
    serving.upgrade(PATIENT)
    running, first = processes(serving), revision(serving)
    namespace = serving.plane.namespace()
    fares = partial(treatment, serving.plane, namespace)
    eventually(lambda: fares() == "warned", what="pods are warned about")
    serving.upgrade(DENY)
    eventually(lambda: fares() == "enforced", what="pods are refused and fixed")
    assert kept(serving) == before
    serving.rollback(first)
    eventually(lambda: fares() == "warned", what="pods are warned about again")
    assert kept(serving) == before
    assert processes(serving) == running


def test_a_policy_reaches_the_processes_that_run(serving: Installed) -> None:
    before = kept(serving)
    serving.upgrade(DENY)
    running, first = processes(serving), revision(serving)
    rollouts = generations(serving)
    namespace = serving.plane.namespace()
    fares = partial(treatment, serving.plane, namespace)
    eventually(lambda: fares() == "enforced", what="the default policy is in force")
    serving.upgrade(LENIENT)
    eventually(lambda: is_let_pass(serving, namespace), what="the new policy is in force")
    serving.rollback(first)
    eventually(lambda: fares() == "enforced", what="the old policy is in force again")
    assert processes(serving) == running
    assert generations(serving) == rollouts
    assert kept(serving) == before


@pytest.mark.parametrize(
    ("policy", "named"),
    [
        ({"rules": {"visible-device-env": {"action": "off"}}}, "visible-device-env"),
        ({"rules": {"visible-devices-env": {"action": "forbid"}}}, "visible-devices-env"),
        ({"rulez": {}}, "rulez"),
    ],
)
def test_a_policy_that_cannot_be_used_is_not_installed(
    serving: Installed, policy: Any, named: str
) -> None:
    before, file = revision(serving), serving.get("configmap/gpuward-policy")
    done = serving.upgrade(merged(PATIENT, {"policy": policy}), check=False)
    assert done.returncode
    assert named in done.stderr
    assert revision(serving) == before
    assert serving.get("configmap/gpuward-policy") == file


def test_what_was_deleted_in_an_emergency_comes_back_by_an_upgrade(serving: Installed) -> None:
    serving.upgrade(DENY)
    namespace = serving.plane.namespace()
    fares = partial(treatment, serving.plane, namespace)
    eventually(lambda: fares() == "enforced", what="gpuward is in force")
    both = "validatingwebhookconfiguration,mutatingwebhookconfiguration"
    serving.plane.kubectl("delete", both, "gpuward")
    eventually(lambda: fares() == "silent", what="nobody is called any more")
    serving.upgrade(DENY)
    serving.publish()
    eventually(lambda: fares() == "enforced", what="gpuward is in force again")

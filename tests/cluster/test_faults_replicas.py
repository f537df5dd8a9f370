"""Replicas that come and go while pods are created."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testkit.admission.fault_installation import Installation, has_left
from tests.testkit.admission.fault_load import LOG, Load, assert_nothing_lost, counts
from tests.testkit.admission.registered_webhook import Server
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually

# Seconds that a replica goes on after SIGTERM; the cluster must have heard of it by then.
DRAIN = 5


@pytest.fixture
def installation(plane: ControlPlane, tmp_path: Path) -> Iterator[Installation]:
    with Installation(plane, tmp_path) as installation:
        yield installation


def test_a_rolling_restart_loses_nothing(plane: ControlPlane, installation: Installation) -> None:
    old = [installation.replica(drain=DRAIN), installation.replica(drain=DRAIN)]
    installation.enforced()
    before = counts(plane)
    with Load(plane, installation.strict, installation.lenient) as load:
        load.go_on()
        for leaving in old:
            replace(installation, leaving, load)
        load.go_on()
    assert_nothing_lost(load, counts(plane).since(before))


def replace(installation: Installation, leaving: Server, load: Load) -> None:
    installation.replica()
    os.kill(leaving.process_id, signal.SIGTERM)
    # The cluster hears of it later, and goes on sending calls until then.
    eventually(lambda: leaving.get("/readyz")[0] == 503, what="the replica is not ready")
    load.go_on(30)
    assert not has_left(leaving), "the replica was gone before the cluster could know"
    installation.forwarder.remove(leaving.address)
    eventually(lambda: has_left(leaving), what="the replica has left")


def test_what_a_killed_replica_takes_along_is_refused_or_admitted_as_chosen(
    plane: ControlPlane, installation: Installation
) -> None:
    doomed = installation.replica()
    installation.replica()
    installation.enforced()
    before = counts(plane)
    with Load(plane, installation.strict, installation.lenient) as load:
        load.go_on()
        assert load.lost == (0, 0), load.failures
        os.kill(doomed.process_id, signal.SIGKILL)
        # The cluster still sends half of what is new to where nobody is any more.
        while not all(load.lost):
            installation.reconnect()
            load.go_on(50)
        installation.forwarder.remove(doomed.address)
        load.go_on(0)
        lost = load.lost
        load.go_on()
        installation.replica()
        load.go_on()
    counted = counts(plane).since(before)
    LOG.info("%s", counted)
    assert load.lost == lost, "calls are lost although only sound replicas are called"
    assert set(load.not_evaluated) == {installation.lenient}
    assert {namespace for namespace, _ in load.failures} == {installation.strict}
    for _, message in load.failures:
        assert "failed calling webhook" in message
        assert "deny.gpuward.io" in message
    assert counted.failed == load.failures.total()
    assert counted.opened >= load.not_evaluated.total()

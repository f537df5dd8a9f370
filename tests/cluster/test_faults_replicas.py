"""Replicas that start and stop while pods are created."""

from __future__ import annotations

import os
import signal

from tests.testkit.admission.fault_installation import Installation, has_left
from tests.testkit.admission.fault_load import LOG, Load, assert_nothing_lost, counts
from tests.testkit.admission.server_process import Server
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually

# How long a replica keeps answering after SIGTERM; the cluster must notice within this time.
DRAIN_SECONDS = 15


def test_a_rolling_restart_loses_nothing(plane: ControlPlane, installation: Installation) -> None:
    old = [installation.replica(drain=DRAIN_SECONDS), installation.replica(drain=DRAIN_SECONDS)]
    installation.wait_until_enforced()
    before = counts(plane)
    with Load(plane, installation.strict, installation.lenient) as load:
        load.wait_for_answers()
        for leaving in old:
            replace(installation, leaving, load)
        load.wait_for_answers()
    assert_nothing_lost(load, counts(plane).since(before))


def replace(installation: Installation, leaving: Server, load: Load) -> None:
    installation.replica()
    os.kill(leaving.process_id, signal.SIGTERM)
    # The cluster notices later, and sends requests until then.
    eventually(lambda: leaving.get("/readyz")[0] == 503, what="the replica is not ready")
    load.wait_for_answers(30)
    assert not has_left(leaving), "the replica was gone before the cluster could know"
    installation.forwarder.remove(leaving.address)
    eventually(lambda: has_left(leaving), what="the replica has left")


def test_requests_lost_with_a_killed_replica_follow_the_failure_policy(
    plane: ControlPlane, installation: Installation
) -> None:
    killed = installation.replica()
    installation.replica()
    installation.wait_until_enforced()
    before = counts(plane)
    with Load(plane, installation.strict, installation.lenient) as load:
        load.wait_for_answers()
        assert load.lost == (0, 0), load.failures
        os.kill(killed.process_id, signal.SIGKILL)
        # The cluster still sends half of the new connections to the killed replica.
        while not all(load.lost):
            installation.reconnect()
            load.wait_for_answers(50)
        installation.forwarder.remove(killed.address)
        load.wait_for_answers(0)
        lost = load.lost
        load.wait_for_answers()
        installation.replica()
        load.wait_for_answers()
    counted = counts(plane).since(before)
    LOG.info("%s", counted)
    assert load.lost == lost, "requests are lost although only running replicas are called"
    assert set(load.not_evaluated) == {installation.lenient}
    assert {namespace for namespace, _ in load.failures} == {installation.strict}
    for _, message in load.failures:
        assert "failed calling webhook" in message
        assert "deny.gpuward.io" in message
    assert counted.failed == load.failures.total()
    assert counted.failed_open >= load.not_evaluated.total()

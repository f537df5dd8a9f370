"""Requests while no replica runs, and after a restart of the API server."""

from __future__ import annotations

import os
import signal

from tests.testkit.admission.fault_installation import Installation
from tests.testkit.admission.fault_load import (
    CREATED,
    FIXABLE_POD,
    LOG,
    REFUSED_POD,
    Load,
    assert_nothing_lost,
    counts,
    is_fixed,
    is_refused,
)
from tests.testkit.admission.registered_webhook import create
from tests.testkit.admission.reviews import container, deployment, gpus
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually

WORKLOAD = deployment(container(**gpus(limits=1)))


def test_while_it_is_down_pods_are_refused_under_fail_and_admitted_under_ignore(
    plane: ControlPlane, installation: Installation
) -> None:
    server = installation.replica()
    installation.wait_until_enforced()
    os.kill(server.process_id, signal.SIGKILL)
    installation.forwarder.remove(server.address)
    # Existing connections may still be open.
    eventually(lambda: not is_refused(create(plane, installation.strict, REFUSED_POD)))
    before = counts(plane)

    refused = create(plane, installation.strict, FIXABLE_POD)
    LOG.info("%s", refused.body)
    assert refused.status == 500
    assert 'failed calling webhook "pods.deny.gpuward.io"' in refused.body["message"]
    assert installation.names[-1] in refused.body["message"], "the message must say who is down"
    assert create(plane, installation.strict, WORKLOAD, dry_run=True).status == CREATED

    for number, manifest in enumerate((FIXABLE_POD, REFUSED_POD)):
        named = {**manifest, "metadata": {"name": f"not-evaluated-{number}"}}
        admitted = create(plane, installation.lenient, named)
        assert admitted.status == CREATED
        assert not is_fixed(admitted)
    assert create(plane, installation.lenient, WORKLOAD, dry_run=True).status == CREATED
    counted = counts(plane).since(before)
    LOG.info("%s", counted)
    assert counted.failed == 1
    assert counted.failed_open == 4, "two pods, both by the mutating and the validating webhook"

    installation.replica()
    installation.wait_until_enforced()
    assert is_fixed(create(plane, installation.strict, FIXABLE_POD))


def test_the_api_server_calls_gpuward_again_after_a_restart(
    plane: ControlPlane, installation: Installation
) -> None:
    server = installation.replica()
    installation.wait_until_enforced()
    with Load(plane, installation.strict, installation.lenient) as load:
        load.wait_for_answers(100)
    assert load.lost == (0, 0), (load.failures, load.not_evaluated)
    plane.restart_api_server()
    # The first pod is refused too: the API server is not ready before it has loaded its webhooks.
    for namespace in (installation.strict, installation.lenient):
        assert is_refused(create(plane, namespace, REFUSED_POD, dry_run=True))
    with Load(plane, installation.strict, installation.lenient) as load:
        load.wait_for_answers()
    assert_nothing_lost(load, counts(plane))  # the counters restart at 0
    # The connections of the old process are closed and do not accumulate.
    threads = load.threads
    eventually(
        lambda: server.metric("gpuward_connections") <= 4 * threads,
        what="the old connections are closed",
    )

"""What happens while nobody answers, and while the API server itself is away."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testkit.admission.fault_installation import Installation
from tests.testkit.admission.fault_load import (
    CREATED,
    LOG,
    MENDED,
    REFUSED_POD,
    Load,
    assert_nothing_lost,
    counts,
    is_mended,
    is_refused,
)
from tests.testkit.admission.registered_webhook import create
from tests.testkit.admission.reviews import container, deployment, gpus
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually

WORKLOAD = deployment(container(**gpus(limits=1)))


@pytest.fixture
def installation(plane: ControlPlane, tmp_path: Path) -> Iterator[Installation]:
    with Installation(plane, tmp_path) as installation:
        yield installation


def test_while_it_is_down_pods_are_refused_under_fail_and_admitted_under_ignore(
    plane: ControlPlane, installation: Installation
) -> None:
    server = installation.replica()
    installation.enforced()
    os.kill(server.process_id, signal.SIGKILL)
    installation.forwarder.remove(server.address)
    # It is answered meanwhile by connections that were there before.
    eventually(lambda: not is_refused(create(plane, installation.strict, REFUSED_POD)))
    before = counts(plane)

    refused = create(plane, installation.strict, MENDED)
    LOG.info("%s", refused.body)
    assert refused.status == 500
    assert 'failed calling webhook "pods.deny.gpuward.io"' in refused.body["message"]
    assert installation.names[-1] in refused.body["message"], "the message must say who is down"
    assert create(plane, installation.strict, WORKLOAD, dry_run=True).status == CREATED

    for number, manifest in enumerate((MENDED, REFUSED_POD)):
        named = {**manifest, "metadata": {"name": f"unjudged-{number}"}}
        admitted = create(plane, installation.lenient, named)
        assert admitted.status == CREATED
        assert not is_mended(admitted)
    assert create(plane, installation.lenient, WORKLOAD, dry_run=True).status == CREATED
    counted = counts(plane).since(before)
    LOG.info("%s", counted)
    assert counted.failed == 1
    assert counted.opened == 4, "two pods, both by the mutating and the validating webhook"

    installation.replica()
    installation.enforced()
    assert is_mended(create(plane, installation.strict, MENDED))


def test_the_api_server_finds_us_again_after_a_restart(
    plane: ControlPlane, installation: Installation
) -> None:
    server = installation.replica()
    installation.enforced()
    with Load(plane, installation.strict, installation.lenient) as load:
        load.go_on(100)
    assert load.lost == (0, 0), (load.failures, load.not_evaluated)
    plane.restart_api_server()
    # From the first pod on: it is not ready before it knows its webhooks.
    for namespace in (installation.strict, installation.lenient):
        assert is_refused(create(plane, namespace, REFUSED_POD, dry_run=True))
    with Load(plane, installation.strict, installation.lenient) as load:
        load.go_on()
    assert_nothing_lost(load, counts(plane))  # which count anew
    # What the old one had opened is given up, not kept until there are too many.
    threads = load.threads
    eventually(
        lambda: server.metric("gpuward_connections") <= 4 * threads, what="connections are given up"
    )

"""Certificates that are renewed, replaced by another authority's, or expire, under load."""

from __future__ import annotations

from certs.authority import new_authority
from certs.keypairs import KeyPair
from tests.testkit.admission.fault_installation import Installation, now, served
from tests.testkit.admission.fault_load import (
    CREATED,
    FIXABLE_POD,
    LOG,
    Load,
    assert_nothing_lost,
    counts,
    is_fixed,
)
from tests.testkit.admission.registered_webhook import create
from tests.testkit.admission.server_process import Server
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually


def test_certificates_are_rotated_under_load(
    plane: ControlPlane, installation: Installation
) -> None:
    server = installation.replica()
    installation.wait_until_enforced()
    before = counts(plane)
    with Load(plane, installation.strict, installation.lenient) as load:
        for _ in range(3):
            put_and_wait(installation, server, installation.leaf())
            reconnect(installation, load)
        # An expired certificate is not loaded: the last valid one stays.
        installation.secret.put(installation.leaf(seconds=-60))
        eventually(lambda: server.metric("gpuward_certificate_reload_failures_total"))
        reconnect(installation, load)
    assert_nothing_lost(load, counts(plane).since(before))


def test_the_authority_is_rotated_under_load(
    plane: ControlPlane, installation: Installation
) -> None:
    server = installation.replica()
    installation.wait_until_enforced()
    before = counts(plane)
    old, new = installation.authority, new_authority(installation.names, now())
    with Load(plane, installation.strict, installation.lenient) as load:
        load.wait_for_answers(100)
        reconnect(installation, load, old, new)
        put_and_wait(installation, server, installation.leaf(new))
        reconnect(installation, load, old, new)
        reconnect(installation, load, new)
    assert_nothing_lost(load, counts(plane).since(before))


def test_requests_fail_with_an_expired_certificate_until_it_is_replaced(
    plane: ControlPlane, installation: Installation
) -> None:
    server = installation.replica()
    installation.wait_until_enforced()
    expire(installation, server)
    before = counts(plane)
    # The API server verifies the certificate only for new connections.
    assert is_fixed(create(plane, installation.strict, FIXABLE_POD, dry_run=True))

    installation.reconnect()
    eventually(lambda: "expired" in refusal_message(plane, installation), what="pods are refused")
    admitted = create(plane, installation.lenient, FIXABLE_POD, dry_run=True)
    assert admitted.status == CREATED
    assert not is_fixed(admitted)
    counted = counts(plane).since(before)
    LOG.info("%s, %s", counted, refusal_message(plane, installation))
    assert counted.failed
    assert counted.failed_open

    installation.secret.put(installation.leaf())
    installation.wait_until_enforced()
    before = counts(plane)
    with Load(plane, installation.strict, installation.lenient) as load:
        load.wait_for_answers(100)
    assert_nothing_lost(load, counts(plane).since(before))


def reconnect(installation: Installation, load: Load, *authorities: KeyPair) -> None:
    """Open new connections: existing ones do not test a certificate or a bundle."""
    connections = installation.forwarder.accepted
    installation.reconnect(*authorities)
    load.wait_for_answers(100)
    assert installation.forwarder.accepted > connections


def expire(installation: Installation, server: Server) -> None:
    """Let the certificate of the server expire while it is served."""
    for seconds in (5, 10, 20, 40):
        leaf = installation.leaf(seconds=seconds)
        installation.secret.put(leaf)
        wait_until_expired(leaf)
        if served(server) == leaf.certificate_pem:
            break
    assert server.metric("gpuward_certificate_expiry_seconds") < 0


def wait_until_expired(leaf: KeyPair) -> None:
    end = leaf.certificate.not_valid_after_utc
    eventually(lambda: now() > end, what="it expires")


def refusal_message(plane: ControlPlane, installation: Installation) -> str:
    """The error message for a user who creates a pod; empty if it is created."""
    answer = create(plane, installation.strict, FIXABLE_POD, dry_run=True)
    if answer.status == CREATED:
        return ""
    assert answer.status == 500
    assert "failed calling webhook" in answer.body["message"]
    return str(answer.body["message"])


def put_and_wait(installation: Installation, server: Server, leaf: KeyPair) -> None:
    """Put a certificate into the Secret, and wait until it is served."""
    installation.secret.put(leaf)
    eventually(lambda: served(server) == leaf.certificate_pem, what="it is served")

"""Certificates that are renewed, replaced by another authority's, or left to expire."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from certs.pki.authority import new_authority
from certs.pki.keypairs import KeyPair
from tests.testkit.admission.fault_installation import Installation, now, served
from tests.testkit.admission.fault_load import (
    CREATED,
    LOG,
    MENDED,
    Load,
    assert_nothing_lost,
    counts,
    is_mended,
)
from tests.testkit.admission.registered_webhook import Server, create
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually


@pytest.fixture
def installation(plane: ControlPlane, tmp_path: Path) -> Iterator[Installation]:
    with Installation(plane, tmp_path) as installation:
        yield installation


def test_certificates_are_rotated_under_load(
    plane: ControlPlane, installation: Installation
) -> None:
    server = installation.replica()
    installation.enforced()
    before = counts(plane)
    with Load(plane, installation.strict, installation.lenient) as load:
        for _ in range(3):
            put(installation, server, installation.leaf())
            connect_anew(installation, load)
        # One that has expired is not taken; the last good one stays.
        installation.secret.put(installation.leaf(seconds=-60))
        eventually(lambda: server.metric("gpuward_certificate_reload_failures_total"))
        connect_anew(installation, load)
    assert_nothing_lost(load, counts(plane).since(before))


def test_the_authority_is_rotated_under_load(
    plane: ControlPlane, installation: Installation
) -> None:
    server = installation.replica()
    installation.enforced()
    before = counts(plane)
    old, new = installation.authority, new_authority(installation.names, now())
    with Load(plane, installation.strict, installation.lenient) as load:
        load.go_on(100)
        connect_anew(installation, load, old, new)
        put(installation, server, installation.leaf(new))
        connect_anew(installation, load, old, new)
        connect_anew(installation, load, new)
    assert_nothing_lost(load, counts(plane).since(before))


def test_an_expired_certificate_fails_until_there_is_another(
    plane: ControlPlane, installation: Installation
) -> None:
    server = installation.replica()
    installation.enforced()
    expire(installation, server)
    before = counts(plane)
    # Who is connected hears nothing of it: the API server looks at new connections only.
    assert is_mended(create(plane, installation.strict, MENDED, dry_run=True))

    installation.reconnect()
    eventually(lambda: "expired" in refusal(plane, installation), what="pods are refused")
    admitted = create(plane, installation.lenient, MENDED, dry_run=True)
    assert admitted.status == CREATED
    assert not is_mended(admitted)
    counted = counts(plane).since(before)
    LOG.info("%s, %s", counted, refusal(plane, installation))
    assert counted.failed
    assert counted.opened

    installation.secret.put(installation.leaf())
    installation.enforced()
    before = counts(plane)
    with Load(plane, installation.strict, installation.lenient) as load:
        load.go_on(100)
    assert_nothing_lost(load, counts(plane).since(before))


def connect_anew(installation: Installation, load: Load, *authorities: KeyPair) -> None:
    """What is open already proves nothing of a certificate or a bundle."""
    connections = installation.forwarder.accepted
    installation.reconnect(*authorities)
    load.go_on(100)
    assert installation.forwarder.accepted > connections


def expire(installation: Installation, server: Server) -> None:
    """Have the server serve a certificate that has expired, as one does when nobody renews it."""
    for seconds in (5, 10, 20, 40):
        leaf = installation.leaf(seconds=seconds)
        installation.secret.put(leaf)
        has_expired(leaf)
        if served(server) == leaf.certificate_pem:
            break
    assert server.metric("gpuward_certificate_expiry_seconds") < 0


def has_expired(leaf: KeyPair) -> None:
    end = leaf.certificate.not_valid_after_utc
    eventually(lambda: now() > end, what="it expires")


def refusal(plane: ControlPlane, installation: Installation) -> str:
    """What a user is told who creates a pod; empty if it is created."""
    answer = create(plane, installation.strict, MENDED, dry_run=True)
    if answer.status == CREATED:
        return ""
    assert answer.status == 500
    assert "failed calling webhook" in answer.body["message"]
    return str(answer.body["message"])


def put(installation: Installation, server: Server, leaf: KeyPair) -> None:
    """Put a certificate into the Secret, and wait until new connections get it."""
    installation.secret.put(leaf)
    eventually(lambda: served(server) == leaf.certificate_pem, what="it is served")

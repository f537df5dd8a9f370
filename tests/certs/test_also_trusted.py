"""Tests of --also-trust: foreign authorities are published beside the controller's own."""

from __future__ import annotations

import base64
import datetime

import pytest
from cryptography import x509

from certs.authority import new_authority
from certs.keypairs import parse_certificates
from cluster.controllers import certs_command
from cluster.controllers.certificates import CertificateController
from tests.testkit.certs.fake_cluster import (
    CONFIG,
    CONFIGURATIONS,
    NAMES,
    POLICY,
    START,
    FakeTime,
    MemoryCluster,
)

FOREIGN = new_authority(NAMES, START).certificate


def published(cluster: MemoryCluster) -> set[bytes]:
    """The distinct bundles in the configurations."""
    return {
        base64.b64decode(webhook["clientConfig"]["caBundle"])
        for kind, name in CONFIGURATIONS
        for webhook in cluster.objects[kind.value, name]["webhooks"]
    }


def reconcile(cluster: MemoryCluster, *foreign: x509.Certificate, count: int = 2) -> None:
    """Reconcile `count` times with a controller that also trusts `foreign`."""
    time = FakeTime()
    config = CONFIG._replace(also_trusted=foreign)
    controller = CertificateController(
        cluster, config, POLICY, identity="a", replicas=dict, clocks=time.clocks
    )
    for _ in range(count):
        assert controller.reconcile()
        time.passed += datetime.timedelta(minutes=1)


def test_a_foreign_authority_is_published_until_it_is_no_longer_named() -> None:
    cluster = MemoryCluster()
    reconcile(cluster, FOREIGN)
    (both,) = published(cluster)
    assert FOREIGN in parse_certificates(both)
    own = [c for c in parse_certificates(both) if c != FOREIGN]
    assert len(own) == 1
    reconcile(cluster)
    (bundle,) = published(cluster)
    assert list(parse_certificates(bundle)) == own


def test_a_foreign_authority_is_not_stored_in_the_secrets() -> None:
    cluster = MemoryCluster()
    reconcile(cluster, FOREIGN)
    before = cluster.objects["secrets", CONFIG.authority_secret]["data"]
    assert len(parse_certificates(base64.b64decode(before["ca.crt"]))) == 1


def test_a_value_that_is_no_certificate_is_reported_at_the_start(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
    monkeypatch.setenv("GPUWARD_CERTS_ALSO_TRUST", broken)
    names = ("namespace", "service", "headless-service", "secret", "ca-secret", "lease")
    options = [f"--{name}=x" for name in (*names, "mutating-configuration")]
    assert certs_command.main(["run", *options]) == 2
    assert capsys.readouterr().err == (
        "gpuward certs: --also-trust: the certificate cannot be read\n"
    )

"""Authorities that are not ours, published beside ours while a certificate changes hands."""

from __future__ import annotations

import base64
import datetime

import pytest
from cryptography import x509

from certs import cli
from certs.controller.controller import Controller
from certs.pki.authority import new_authority
from certs.pki.keypairs import parse_certificates
from tests.testkit.certs.fake_cluster import (
    CONFIGURATIONS,
    NAMES,
    PLAN,
    START,
    WORK,
    MemoryCluster,
    Time,
)

FOREIGN = new_authority(NAMES, START).certificate


def published(cluster: MemoryCluster) -> set[bytes]:
    """The bundles in the configurations."""
    return {
        base64.b64decode(webhook["clientConfig"]["caBundle"])
        for kind, name in CONFIGURATIONS
        for webhook in cluster.objects[kind.value, name]["webhooks"]
    }


def rounds(cluster: MemoryCluster, *foreign: x509.Certificate, count: int = 2) -> None:
    """Let a controller that also trusts `foreign` come to rest."""
    time = Time()
    work = WORK._replace(also_trusted=foreign)
    made = Controller(cluster, work, PLAN, identity="a", replicas=dict, clocks=time.clocks)
    for _ in range(count):
        assert made.reconcile()
        time.passed += datetime.timedelta(minutes=1)


def test_a_foreign_authority_stands_beside_ours_until_it_is_no_longer_named() -> None:
    cluster = MemoryCluster()
    rounds(cluster, FOREIGN)
    (both,) = published(cluster)
    assert FOREIGN in parse_certificates(both)
    own = [c for c in parse_certificates(both) if c != FOREIGN]
    assert len(own) == 1
    rounds(cluster)
    (bundle,) = published(cluster)
    assert list(parse_certificates(bundle)) == own


def test_a_foreign_authority_is_not_kept_in_our_secrets() -> None:
    cluster = MemoryCluster()
    rounds(cluster, FOREIGN)
    before = cluster.objects["secrets", WORK.authority_secret]["data"]
    assert len(parse_certificates(base64.b64decode(before["ca.crt"]))) == 1


def test_what_is_no_certificate_is_said_at_the_start(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
    monkeypatch.setenv("GPUWARD_CERTS_ALSO_TRUST", broken)
    monkeypatch.setattr(
        "certs.controller.factory.log_as_json", lambda: None
    )  # for the whole process
    names = ("namespace", "service", "headless-service", "secret", "ca-secret", "lease")
    given = [f"--{name}=x" for name in (*names, "mutating-configuration")]
    assert cli.main(["run", *given]) == 2
    assert capsys.readouterr().err == (
        "gpuward certs: --also-trust: the certificate cannot be read\n"
    )

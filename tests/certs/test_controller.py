"""Tests of the certificate controller on a cluster in memory, of its command line and log."""

from __future__ import annotations

import asyncio
import datetime
import io
import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import ExtendedKeyUsageOID, ExtensionOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError
from structlog.testing import capture_logs

from certs.authority import may_sign_for, new_authority, service_names, sign_leaf
from certs.keypairs import fingerprint, is_issued_by, parse_certificates, pem_bundle
from certs.rotation import Observation, next_change, renewal_time, retained
from certs.secrets import CertificateState, decode, encode_authority, encode_serving
from certs.serving import ServingCertificate
from certs.validity import utc_now
from cluster.api.errors import NEW_BUNDLE_ANNOTATION, ClusterError, ConflictError, Object
from cluster.control_loop import LeaderElection, serve_status
from cluster.controllers import certs_command
from cluster.controllers.certificates import CaBundlePublisher
from cluster.webhooks.served_certificates import (
    CertificateWatch,
    served_certificates,
    served_validities,
)
from cluster.webhooks.webhook_client import Validity
from terminal import DOCS_URL
from tests.testkit.certs.authorities import foreign_authority
from tests.testkit.certs.fake_cluster import (
    CONFIG,
    CONFIGURATIONS,
    NAMES,
    POLICY,
    START,
    FakeTime,
    MemoryCluster,
    controller,
)
from tests.testkit.paths import ROOT
from webhook.telemetry.log import Log

DAY = datetime.timedelta(days=1)
MINUTE = datetime.timedelta(minutes=1)
SECOND = datetime.timedelta(seconds=1)


@pytest.fixture(autouse=True)
def log() -> Iterator[list[Any]]:
    with capture_logs() as entries:
        yield entries


def test_the_authority_and_the_leaf() -> None:
    authority = new_authority(NAMES, START)
    leaf = sign_leaf(authority, NAMES, START)
    ca, certificate = authority.certificate, leaf.certificate
    assert ca.not_valid_before_utc == certificate.not_valid_before_utc == START - 60 * MINUTE
    assert ca.not_valid_after_utc - START == 365 * DAY
    assert certificate.not_valid_after_utc - START == 90 * DAY
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert tuple(names.get_values_for_type(x509.DNSName)) == NAMES
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert new_authority(NAMES, START).certificate.subject != ca.subject
    assert sign_leaf(authority, NAMES, START + 300 * DAY).certificate.not_valid_after_utc == (
        ca.not_valid_after_utc
    )


def test_critical_extensions_are_those_that_restrict_a_certificate() -> None:
    authority = new_authority(NAMES, START)
    for pair, more in ((authority, {"nameConstraints"}), (sign_leaf(authority, NAMES, START), ())):
        critical = {e.oid._name for e in pair.certificate.extensions if e.critical}  # noqa: SLF001
        assert critical == {"basicConstraints", "keyUsage", *more}


def test_only_the_authority_that_signed_a_certificate_has_issued_it() -> None:
    signer, other = new_authority(NAMES, START), new_authority(NAMES, START)
    leaf = sign_leaf(signer, NAMES, START).certificate
    assert is_issued_by(signer.certificate, leaf)
    assert not is_issued_by(other.certificate, leaf)


def test_an_authority_is_trusted_for_its_names_alone() -> None:
    authority = new_authority(NAMES, START)
    assert may_sign_for(authority.certificate, NAMES)
    assert not may_sign_for(authority.certificate, ["kubernetes.default.svc"])
    assert not may_sign_for(sign_leaf(authority, NAMES, START).certificate, NAMES)
    store = PolicyBuilder().store(Store([authority.certificate])).time(START)
    for name in ("kubernetes.default.svc", "gpuward.other.svc"):
        foreign = sign_leaf(authority, [name], START)
        with pytest.raises(VerificationError):
            store.build_server_verifier(x509.DNSName(name)).verify(foreign.certificate, [])


def test_an_authority_with_an_extension_that_cannot_be_read_signs_nothing() -> None:
    key, name = new_authority(NAMES, START).key, x509.Name([])
    until, basic = START + DAY, x509.BasicConstraints(ca=True, path_length=0)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, START, until)
    unreadable = x509.UnrecognizedExtension(ExtensionOID.NAME_CONSTRAINTS, b"nothing")
    builder = builder.add_extension(basic, critical=True).add_extension(unreadable, critical=True)
    assert not may_sign_for(builder.sign(key, hashes.SHA256()), NAMES)


def test_renewal_is_due_before_two_thirds_of_the_lifetime_at_random_times() -> None:
    authority = new_authority(NAMES, START)
    leaves = [sign_leaf(authority, NAMES, START).certificate for _ in range(20)]
    times = {renewal_time(leaf) for leaf in leaves}
    assert len(times) > 10
    assert all(55 * DAY < time - START < 60.1 * DAY for time in times)
    assert max(times) - min(times) > DAY


def test_a_leaf_is_renewed_without_waiting() -> None:
    cluster, time = MemoryCluster(), FakeTime()
    running = controller(cluster, time)
    running.reconcile()
    first = cluster.stored.leaf
    time.passed += 61 * DAY
    running.reconcile()
    second = cluster.stored.leaf
    assert first
    assert second
    assert first.certificate != second.certificate


def test_a_pass_that_finds_nothing_to_do_reads_each_secret_once() -> None:
    cluster, time = MemoryCluster(), FakeTime()
    running = controller(cluster, time)
    running.reconcile()
    cluster.read_secrets.clear()
    running.reconcile()
    assert cluster.read_secrets == [CONFIG.authority_secret, CONFIG.serving_secret]
    assert len(cluster.stored.trusted) == 1


def test_a_lost_key_starts_a_rotation() -> None:
    cluster, time = MemoryCluster(), FakeTime()
    running = controller(cluster, time)
    running.reconcile()
    before = cluster.stored
    cluster.put_data(CONFIG.authority_secret, ca_key=None)
    running.reconcile()
    assert set(before.trusted) < set(cluster.stored.trusted)
    assert cluster.data(CONFIG.serving_secret)["tls.crt"] == encode_serving(before)["tls.crt"]
    time.passed += 10 * MINUTE
    running.reconcile()
    after = cluster.stored
    assert after.signer
    assert after.leaf
    assert is_issued_by(after.signer.certificate, after.leaf.certificate)
    assert after.retired == before.trusted


def test_the_serving_secret_never_holds_the_authority_s_key() -> None:
    cluster = MemoryCluster()
    controller(cluster, FakeTime()).reconcile()
    assert cluster.stored.signer
    assert set(cluster.data(CONFIG.serving_secret)) == {"tls.crt", "tls.key", "ca.crt"}
    key = cluster.stored.signer.key_pem
    assert all(key not in content for content in cluster.data(CONFIG.serving_secret).values())


def test_a_reconciliation_without_changes_writes_only_the_lease() -> None:
    cluster, time = MemoryCluster(), FakeTime()
    running = controller(cluster, time)
    for _ in range(2):
        running.reconcile()
        cluster.writes.clear()
        time.passed += MINUTE / 2
    assert running.reconcile()
    assert cluster.writes == [CONFIG.lease]


def annotated(cluster: MemoryCluster) -> list[bool]:
    """Return whether each configuration has the annotation of a new bundle."""
    found = [cluster.get_configuration(ref) or {} for ref in CONFIGURATIONS]
    return [NEW_BUNDLE_ANNOTATION in each["metadata"].get("annotations", {}) for each in found]


def test_a_configuration_changes_once_more_some_seconds_after_its_bundle_was_written() -> None:
    cluster, time = MemoryCluster(), FakeTime()
    running = controller(cluster, time)
    running.reconcile()
    assert annotated(cluster) == [True, True]
    time.passed += SECOND
    running.reconcile()
    assert annotated(cluster) == [True, True], "API servers may still be reading what was before"
    time.passed += 10 * SECOND
    running.reconcile()
    assert annotated(cluster) == [False, False]
    # Each bundle that had to be written again counts, also if it is the same.
    cluster.configure(CONFIGURATIONS[1])
    running.reconcile()
    assert annotated(cluster) == [False, True]
    assert running.published == 3
    time.passed += 10 * SECOND
    running.reconcile()
    assert annotated(cluster) == [False, False]


def test_a_controller_that_starts_goes_on_with_the_annotation_of_the_one_before() -> None:
    cluster, time = MemoryCluster(), FakeTime()
    controller(cluster, time).reconcile()
    running = controller(cluster, time)
    running.reconcile()
    assert annotated(cluster) == [True, True], "it has not seen for how long"
    time.passed += 10 * SECOND
    running.reconcile()
    assert annotated(cluster) == [False, False]


def test_the_annotation_stays_until_a_configuration_has_been_left_alone() -> None:
    cluster, time = MemoryCluster(), FakeTime()
    running = controller(cluster, time)
    running.reconcile()
    time.passed += 10 * SECOND
    cluster.change_version(CONFIGURATIONS[0])
    running.reconcile()
    assert annotated(cluster) == [True, False]
    time.passed += 10 * SECOND
    running.reconcile()
    assert annotated(cluster) == [False, False]


def test_a_stored_state_is_read_back_unchanged() -> None:
    cluster = MemoryCluster()
    controller(cluster, FakeTime()).reconcile()
    stored = cluster.stored
    assert stored.is_persisted
    again = decode(encode_authority(stored), encode_serving(stored))
    assert again.trusted == stored.trusted
    nonsense = dict.fromkeys(encode_authority(stored), b"-----BEGIN CERTIFICATE-----\nx")
    assert decode(nonsense, nonsense).trusted == ()
    retired = {"retired.crt": pem_bundle(stored.trusted), "retired-until": b"2030-01-01T00:00:00"}
    assert decode(retired, {}).retired_until == START


def test_no_key_in_the_log(log: list[Any]) -> None:
    cluster, time = MemoryCluster(), FakeTime()
    running = controller(cluster, time)
    for _ in range(30):
        running.reconcile()
        time.passed += 13 * DAY
    assert {entry["event"] for entry in log} == {"secret written", "CA bundle written"}
    leaf = cluster.stored.leaf
    assert leaf
    written = [entry for entry in log if "leaf" in entry][-1]
    assert written["leaf"] == fingerprint(leaf.certificate)[:16]
    assert written["leaf_until"] == leaf.certificate.not_valid_after_utc.isoformat()
    assert "PRIVATE" not in str(log)
    assert "BEGIN" not in str(log)


def make_publisher(cluster: MemoryCluster, time: FakeTime) -> CaBundlePublisher:
    return CaBundlePublisher(
        cluster, CONFIGURATIONS, CONFIG.service, time.monotonic, lambda *_: None
    )


def test_the_wait_restarts_when_a_bundle_had_to_be_written_again() -> None:
    cluster, time = MemoryCluster(), FakeTime()
    publisher = make_publisher(cluster, time)
    text = pem_bundle([new_authority(NAMES, START).certificate])
    assert publisher.publish(b"", publisher.read()) is None
    assert publisher.publish(text, publisher.read()) == datetime.timedelta()
    time.passed += 9 * MINUTE
    assert publisher.publish(text, publisher.read()) == 9 * MINUTE
    cluster.configure(CONFIGURATIONS[1])
    assert publisher.publish(text, publisher.read()) == datetime.timedelta()
    assert {cluster.published(c) for c in CONFIGURATIONS} == {text}


def test_the_wait_restarts_for_another_bundle_that_is_in_place_already() -> None:
    cluster, time = MemoryCluster(), FakeTime()
    publisher, other = make_publisher(cluster, time), make_publisher(cluster, time)
    first, second = (pem_bundle([new_authority(NAMES, START).certificate]) for _ in range(2))
    publisher.publish(first, publisher.read())
    time.passed += 9 * MINUTE
    other.publish(second, other.read())
    assert publisher.publish(second, publisher.read()) == datetime.timedelta()


def test_the_wait_goes_on_while_a_configuration_does_not_exist() -> None:
    cluster, time = MemoryCluster(), FakeTime()
    del cluster.objects[CONFIGURATIONS[1].kind.value, CONFIGURATIONS[1].name]
    publisher = make_publisher(cluster, time)
    text = pem_bundle([new_authority(NAMES, START).certificate])
    publisher.publish(text, publisher.read())
    time.passed += 9 * MINUTE
    assert publisher.publish(text, publisher.read()) == 9 * MINUTE


def test_an_authority_for_other_names_is_replaced() -> None:
    cluster, time = MemoryCluster(), FakeTime()
    controller(cluster, time).reconcile()
    names = service_names("gpuward", "elsewhere")
    controller(cluster, time, policy=POLICY._replace(names=names)).reconcile()
    assert cluster.stored.signer
    assert may_sign_for(cluster.stored.signer.certificate, names)


def test_while_a_leaf_of_a_retired_authority_may_be_in_use_a_successor_waits() -> None:
    successor, retired = new_authority(NAMES, START), new_authority(NAMES, START)
    state = CertificateState(
        successor=successor,
        retired=(retired.certificate,),
        retired_until=START + DAY,
        is_persisted=True,
    )
    published = Observation(9 * MINUTE, None)
    assert next_change(state, published, START, POLICY) is None
    assert next_change(state, Observation(10 * MINUTE, None), START, POLICY)
    assert next_change(state, published, START + 2 * DAY, POLICY)


def test_a_retired_authority_is_trusted_through_the_last_second_of_its_leaves() -> None:
    signer, retired = new_authority(NAMES, START), new_authority(NAMES, START)
    leaf, end = sign_leaf(signer, NAMES, START), START + DAY
    state = CertificateState(
        signer=signer, leaf=leaf, retired=(retired.certificate,), retired_until=end
    )
    in_use = Observation(DAY, {"replica": leaf.certificate})
    assert next_change(state, in_use, end, POLICY) is None
    change = next_change(state, in_use, end + MINUTE / 60, POLICY)
    assert change is not None
    assert change.state.retired == ()


def test_a_successor_that_expired_before_its_turn_never_signs() -> None:
    signer = new_authority(NAMES, START)
    state = CertificateState(
        signer=signer,
        successor=new_authority(NAMES, START - 2 * DAY, DAY),
        leaf=sign_leaf(signer, NAMES, START),
    )
    assert next_change(state, Observation(DAY, None), START, POLICY) is None


def test_a_conflict_is_no_failure(log: list[Any]) -> None:
    cluster, time = MemoryCluster(), FakeTime()
    running = controller(cluster, time)

    def refuse(secret: Object) -> Object:
        raise ConflictError(f"{secret['metadata']['name']} was changed meanwhile")

    cluster.write_secret = refuse  # type: ignore[method-assign]
    assert running.reconcile()
    assert (log[-1]["log_level"], log[-1]["event"]) == ("info", "conflict")
    assert b"gpuward_certs_reconciliation_failures_total 0" in running.metrics()


def test_a_configuration_that_comes_later_is_published_to() -> None:
    cluster, time = MemoryCluster(), FakeTime()
    del cluster.objects[CONFIGURATIONS[1].kind.value, CONFIGURATIONS[1].name]
    running = controller(cluster, time)
    assert running.reconcile()
    cluster.configure(CONFIGURATIONS[1], "a", "b", "c")
    assert running.reconcile()
    assert cluster.published(CONFIGURATIONS[1]) == cluster.published(CONFIGURATIONS[0])


def test_a_refusal_is_counted_and_retried(log: list[Any]) -> None:
    cluster, time = MemoryCluster(), FakeTime()
    running = controller(cluster, time)
    cluster.refuse = "secrets"
    assert not running.reconcile()
    assert log[-1]["event"] == "reconciliation failed"
    assert b"gpuward_certs_reconciliation_failures_total 1" in running.metrics()
    cluster.refuse = None
    assert running.reconcile()
    assert cluster.stored.leaf


def leader_election(cluster: MemoryCluster, time: FakeTime, name: str) -> LeaderElection:
    clocks = time.clocks
    return LeaderElection(
        cluster, CONFIG.lease, name, seconds=60, monotonic=clocks.monotonic, clock=clocks.now
    )


def test_what_expires_although_it_should_have_been_replaced_is_reported(log: list[Any]) -> None:
    cluster, time, events = MemoryCluster(), FakeTime(), list[tuple[str, str]]()
    running = controller(cluster, time, send_event=lambda *event: events.append(event))
    running.reconcile()
    time.passed += 75 * DAY
    cluster.refuse = "mutatingwebhookconfigurations"  # so that no pass gets to its end
    assert not running.reconcile()
    assert events == [], "fifteen days are left"
    time.passed += DAY + 60 * MINUTE
    assert not running.reconcile()
    reason, text = events.pop()
    assert reason == "CertificateExpires"
    assert text.startswith("the serving certificate expires in 13 days, at 2030-04-01 00:00 UTC")
    assert [line["text"] for line in log if line["event"] == "reported"] == [text]
    time.passed += 10 * MINUTE
    running.reconcile()
    assert events == [], "it is said again after half an hour"
    time.passed += 30 * MINUTE
    running.reconcile()
    assert [reason for reason, _ in events] == ["CertificateExpires"]
    cluster.refuse = None
    assert running.reconcile()
    time.passed += 60 * MINUTE
    running.reconcile()
    assert len(events) == 1, "it is replaced now"


def test_an_authority_that_expires_is_reported() -> None:
    cluster, time, events = MemoryCluster(), FakeTime(), list[str]()
    running = controller(cluster, time, send_event=lambda reason, _: events.append(reason))
    running.reconcile()
    cluster.refuse = "mutatingwebhookconfigurations"
    time.passed += 352 * DAY
    running.reconcile()
    assert events == ["CertificateExpires", "AuthorityExpires"]


@pytest.mark.parametrize(
    ("kind", "name"), [("secrets", CONFIG.authority_secret), ("leases", CONFIG.lease)]
)
def test_an_object_that_may_not_be_created_is_reported(kind: str, name: str) -> None:
    cluster, time, events = MemoryCluster(), FakeTime(), list[tuple[str, str]]()
    running = controller(cluster, time, send_event=lambda *event: events.append(event))
    cluster.not_created = kind
    assert not running.reconcile()
    assert events == [("ObjectMissing", f"{name} does not exist")]
    assert not running.ready
    cluster.not_created = None
    assert running.reconcile()
    assert running.ready


def test_an_event_that_cannot_be_created_ends_no_pass(log: list[Any]) -> None:
    def refuse(*_: str) -> None:
        raise ClusterError("403 forbidden")

    cluster, time = MemoryCluster(), FakeTime()
    running = controller(cluster, time, send_event=refuse)
    cluster.not_created = "secrets"
    running.reconcile()
    assert [line["error"] for line in log if line["event"] == "event not created"] == [
        "403 forbidden"
    ]
    assert running.failures == 1


def test_the_bundle_is_written_before_replicas_are_asked() -> None:
    """An address that does not answer takes seconds, in which no API server would trust it."""
    cluster = MemoryCluster()
    seen: list[bytes] = []

    def replicas() -> dict[str, x509.Certificate | None]:
        seen.append(cluster.published())
        return {}

    running = controller(cluster, FakeTime(), replicas=replicas)
    running.reconcile()
    published = cluster.published()
    for ref in CONFIGURATIONS:
        cluster.configure(ref)
    running.reconcile()
    assert seen == [b"", published]


def test_a_new_configuration_gets_the_bundle_without_a_pass() -> None:
    cluster = MemoryCluster()
    running = controller(cluster, FakeTime())
    running.complete(CONFIGURATIONS[0])
    assert cluster.published() == b"", "nothing is published yet"
    running.reconcile()
    published = cluster.published()
    cluster.configure(CONFIGURATIONS[0])
    running.complete(CONFIGURATIONS[0])
    assert cluster.published() == published != b""


def test_a_secret_that_is_deleted_or_emptied_gets_back_what_it_had(log: list[Any]) -> None:
    cluster, time = MemoryCluster(), FakeTime()
    running = controller(cluster, time)
    running.reconcile()
    before = {n: cluster.data(n) for n in (CONFIG.authority_secret, CONFIG.serving_secret)}
    cluster.delete(CONFIG.authority_secret)
    cluster.put_data(CONFIG.serving_secret, tls_crt=None, tls_key=None, ca_crt=None)
    running.reconcile()
    assert {name: cluster.data(name) for name in before} == before
    restored = [entry["secret"] for entry in log if entry["event"] == "secret restored"]
    assert restored == [*before]


def test_what_another_leader_may_have_changed_is_not_restored() -> None:
    cluster, time = MemoryCluster(), FakeTime()
    one, two = (controller(cluster, time, name) for name in ("one", "two"))
    one.reconcile()
    old = cluster.stored.signer
    time.passed += MINUTE
    two.reconcile()
    time.passed += MINUTE
    two.reconcile()
    assert two.is_leader
    one.reconcile()
    assert not one.is_leader
    time.passed += MINUTE
    one.reconcile()
    cluster.delete(CONFIG.authority_secret)
    cluster.delete(CONFIG.serving_secret)
    time.passed += MINUTE
    one.reconcile()
    assert one.is_leader
    assert cluster.stored.signer != old


def test_an_authority_stays_published_while_a_replica_serves_a_certificate_of_it() -> None:
    """The Secrets do not matter: here a backup takes the place of both."""
    cluster, time = MemoryCluster(), FakeTime()
    other = MemoryCluster()
    controller(other, time).reconcile()
    backup, serves = other.stored, list[x509.Certificate | None]()
    running = controller(cluster, time, replicas=lambda: {"10.0.0.1": serves[-1]})
    serves.append(None)
    running.reconcile()
    before = cluster.stored
    assert before.leaf
    assert before.signer
    assert backup.leaf
    assert backup.signer
    serves.append(before.leaf.certificate)
    cluster.objects |= {k: v for k, v in other.objects.items() if k[0] == "secrets"}
    running.reconcile()
    both = {before.signer.certificate, backup.signer.certificate}
    assert set(parse_certificates(cluster.published())) == both
    restarted = controller(cluster, time, replicas=lambda: {"10.0.0.1": serves[-1]})
    restarted.reconcile()
    assert set(parse_certificates(cluster.published())) == both
    serves.append(backup.leaf.certificate)
    restarted.reconcile()
    assert set(parse_certificates(cluster.published())) == {backup.signer.certificate}


@pytest.mark.parametrize(
    ("replicas", "kept"),
    [
        pytest.param(None, "own other", id="nothing-known"),
        pytest.param(["newest"], "", id="all-current"),
        pytest.param(["newest", None], "own", id="one-silent"),
        pytest.param(["own", "newest"], "own", id="one-behind"),
        pytest.param(["other", "newest"], "other own", id="of-somebody-else"),
    ],
)
def test_which_authorities_stay_published(replicas: list[str | None] | None, kept: str) -> None:
    signer, own = new_authority(NAMES, START), new_authority(NAMES, START)
    other = foreign_authority(START)
    leaves = {
        "newest": sign_leaf(signer, NAMES, START),
        "own": sign_leaf(own, NAMES, START),
        "other": sign_leaf(other, NAMES, START),
    }
    state = CertificateState(signer=signer, leaf=leaves["newest"])
    served = None
    if replicas is not None:
        names = enumerate(replicas)
        served = {str(n): leaves[name].certificate if name else None for n, name in names}
    published = {"signer": signer, "own": own, "other": other}
    found = retained([pair.certificate for pair in published.values()], state, served)
    assert found == tuple(published[name].certificate for name in kept.split())


def test_what_somebody_adds_to_a_bundle_cannot_fill_it() -> None:
    used, added = new_authority(NAMES, START), [new_authority(NAMES, START) for _ in range(20)]
    published = [authority.certificate for authority in (*added, used)]
    served = {"10.0.0.1": sign_leaf(used, NAMES, START).certificate}
    found = retained(published, CertificateState(), served)
    assert found == (used.certificate, *published[:7])
    assert retained(published, CertificateState(), None) == tuple(published[:8])


@pytest.mark.parametrize(
    ("secret", "fields", "why"),
    [
        (CONFIG.authority_secret, ("ca_crt", "ca_key"), "ca.crt is not a certificate of gpuward"),
        (CONFIG.serving_secret, ("tls_crt", "tls_key"), "tls.crt is not a certificate of gpuward"),
        (CONFIG.authority_secret, ("password", "user"), "its data is not that of a certificate"),
    ],
)
def test_a_secret_of_somebody_else_is_left_alone(
    secret: str, fields: tuple[str, str], why: str, log: list[Any]
) -> None:
    cluster, time, events = MemoryCluster(), FakeTime(), list[tuple[str, str]]()
    foreign = foreign_authority(START)
    cluster.put_data(
        secret, **dict(zip(fields, (foreign.certificate_pem, foreign.key_pem), strict=True))
    )
    before = cluster.data(secret)
    running = controller(cluster, time, send_event=lambda *event: events.append(event))
    assert not running.reconcile()
    assert not running.ready
    assert cluster.data(secret) == before
    assert cluster.published() == b""
    ((reason, text),) = events
    assert reason == "ForeignObject"
    assert text.startswith(f"secret/{secret} is left alone: {why}")
    assert "PRIVATE" not in str(log)
    cluster.delete(secret)
    assert running.reconcile()


def test_what_is_published_stays_while_a_secret_of_somebody_else_is_there() -> None:
    cluster, time = MemoryCluster(), FakeTime()
    running = controller(cluster, time)
    running.reconcile()
    published = cluster.published()
    cluster.put_data(CONFIG.authority_secret, ca_crt=foreign_authority(START).certificate_pem)
    for ref in CONFIGURATIONS:
        cluster.configure(ref)
    assert not running.reconcile()
    assert {cluster.published(ref) for ref in CONFIGURATIONS} == {published}


def test_a_secret_of_somebody_else_makes_a_running_controller_not_ready() -> None:
    """So that its Deployment shows it; an API server that refuses a request does not."""
    cluster, time = MemoryCluster(), FakeTime()
    running = controller(cluster, time)
    running.reconcile()
    cluster.refuse = "secrets"
    assert not running.reconcile()
    assert running.ready
    cluster.refuse = ""
    before = cluster.data(CONFIG.authority_secret)
    cluster.put_data(CONFIG.authority_secret, ca_crt=foreign_authority(START).certificate_pem)
    assert not running.reconcile()
    assert not running.ready
    cluster.delete(CONFIG.authority_secret)
    assert running.reconcile()
    assert running.ready
    assert cluster.data(CONFIG.authority_secret) == before


def test_a_configuration_of_another_installation_is_left_alone() -> None:
    cluster, time, events = MemoryCluster(), FakeTime(), list[tuple[str, str]]()
    ref = CONFIGURATIONS[1]
    webhook = cluster.objects[ref.kind.value, ref.name]["webhooks"][0]
    webhook["clientConfig"]["service"] = {"namespace": "elsewhere", "name": "gpuward"}
    running = controller(cluster, time, send_event=lambda *event: events.append(event))
    assert not running.reconcile()
    text = (
        "validatingwebhookconfigurations/gpuward is of another installation: it calls "
        "service/gpuward in elsewhere, and not service/gpuward in gpuward-system"
    )
    assert events == [("ForeignObject", text)]
    assert {cluster.published(ref) for ref in CONFIGURATIONS} == {b""}


def test_only_the_leader_writes_the_bundle_beside_a_pass() -> None:
    cluster, time = MemoryCluster(), FakeTime()
    running = controller(cluster, time)
    running.reconcile()
    time.passed += MINUTE  # another process may lead now
    cluster.configure(CONFIGURATIONS[0])
    running.complete(CONFIGURATIONS[0])
    assert cluster.published() == b""


def test_a_controller_is_ready_once_its_work_is_done_or_another_one_leads() -> None:
    cluster, time = MemoryCluster(), FakeTime()
    one, two = (controller(cluster, time, name) for name in ("one", "two"))
    assert not one.ready
    cluster.refuse = "secrets"
    one.reconcile()
    two.reconcile()
    assert not one.ready
    assert two.ready, "its predecessor ends only when it is ready, so it must not wait for it"


def test_a_lease_that_nobody_renews_makes_no_controller_ready() -> None:
    cluster, time = MemoryCluster(), FakeTime()
    controller(cluster, time, "one").reconcile()
    time.passed += DAY
    two = controller(cluster, time, "two")
    two.reconcile()
    assert not two.is_leader
    assert not two.ready
    time.passed += MINUTE
    two.reconcile()
    assert two.is_leader
    assert two.ready


def test_a_renewal_that_is_seen_counts_whatever_the_clock_says() -> None:
    cluster, time = MemoryCluster(), FakeTime()
    one = leader_election(cluster, time, "one")
    one.acquire()
    time.ahead = 1000 * DAY
    two = leader_election(cluster, time, "two")
    two.acquire()
    assert not two.is_held_by_another
    time.passed += MINUTE / 6
    one.acquire()
    two.acquire()
    assert two.is_held_by_another


def served(*lifetimes: tuple[float, float]) -> dict[str, Validity]:
    """Return what replicas serve, by the days since it began and until it ends."""
    return {
        f"10.0.0.{n}": Validity(START - before * DAY, START + after * DAY)
        for n, (before, after) in enumerate(lifetimes)
    }


@pytest.mark.parametrize(
    ("found", "text"),
    [
        ({}, None),
        (served((60, 30), (1, 89)), None),
        (served((80, 10), (1, 89)), "expires in 10 days, at 2030-01-11 00:00 UTC"),
        (served((90, -1)), "has expired at 2029-12-31 00:00 UTC"),
    ],
)
def test_a_served_certificate_that_somebody_else_should_have_renewed_is_reported(
    found: dict[str, Validity], text: str | None
) -> None:
    events: list[tuple[str, str]] = []
    watch = CertificateWatch(lambda: found, lambda *event: events.append(event), now=lambda: START)
    assert watch.reconcile()
    assert watch.reconcile()
    expected = f"the certificate that the webhook serves {text}: see {DOCS_URL}/certificates.md"
    assert events == ([("CertificateExpires", expected)] if text else [])


def test_the_lease_has_one_holder_at_a_time() -> None:
    cluster, time = MemoryCluster(), FakeTime()
    one, two = (leader_election(cluster, time, name) for name in ("one", "two"))
    assert one.acquire()
    assert not two.acquire()
    for _ in range(5):
        time.passed += MINUTE / 2
        assert one.acquire()
        assert not two.acquire()
    time.passed += 61 * MINUTE / 60
    assert not one.held
    assert two.acquire()
    assert not one.acquire()
    spec = cluster.objects["leases", CONFIG.lease]["spec"]
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("two", 2)


def test_a_holder_stops_long_before_another_takes_over() -> None:
    cluster, time = MemoryCluster(), FakeTime()
    time.passed = DAY
    one, two = (leader_election(cluster, time, name) for name in ("one", "two"))
    assert one.acquire()
    assert not two.acquire()
    time.passed += 29 * MINUTE / 60
    assert one.held
    time.passed += 2 * MINUTE / 60
    assert not one.held
    time.passed += 28 * MINUTE / 60
    assert not two.acquire()
    acquired = cluster.objects["leases", CONFIG.lease]["spec"]["acquireTime"]
    time.passed += 2 * MINUTE / 60
    assert two.acquire()
    spec = cluster.objects["leases", CONFIG.lease]["spec"]
    assert spec["acquireTime"] == spec["renewTime"] > acquired
    time.passed += MINUTE / 60
    assert two.acquire()
    renewed = cluster.objects["leases", CONFIG.lease]["spec"]
    assert renewed["acquireTime"] == spec["acquireTime"] < renewed["renewTime"]


def test_a_released_lease_can_be_acquired_at_once() -> None:
    cluster, time = MemoryCluster(), FakeTime()
    one, two = (leader_election(cluster, time, name) for name in ("one", "two"))
    one.acquire()
    assert not two.acquire()
    one.release()
    assert not one.held
    assert two.acquire()
    one.release()
    assert two.acquire()


def test_clocks_of_machines_are_not_compared() -> None:
    cluster, time = MemoryCluster(), FakeTime()
    leader_election(cluster, time, "one").acquire()
    time.ahead = 1000 * DAY
    assert not leader_election(cluster, time, "two").acquire()


async def test_the_served_certificates_of_replicas(tmp_path: Path) -> None:
    authority = new_authority(NAMES, utc_now())
    leaf = sign_leaf(authority, NAMES, utc_now())
    (tmp_path / "tls.crt").write_bytes(leaf.certificate_pem)
    (tmp_path / "tls.key").write_bytes(leaf.key_pem)
    (tmp_path / "clients.crt").write_bytes(authority.certificate_pem)
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    for client_ca in (None, str(tmp_path / "clients.crt")):
        certificate = ServingCertificate(str(tmp_path), NAMES[-1], client_ca)
        certificate.reload()
        server = await asyncio.start_server(
            lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=certificate.context
        )
        async with server:
            port = server.sockets[0].getsockname()[1]
            found = await asyncio.to_thread(served_certificates, "127.0.0.1", port, NAMES[-1])
            assert found == {"127.0.0.1": leaf.certificate}
            valid = await asyncio.to_thread(served_validities, "127.0.0.1", port, NAMES[-1])
            start, end = leaf.certificate.not_valid_before_utc, leaf.certificate.not_valid_after_utc
            assert valid == {"127.0.0.1": (start, end)}
    assert await asyncio.to_thread(served_certificates, "127.0.0.1", port, NAMES[-1]) == {
        "127.0.0.1": None
    }
    assert served_certificates("no-such-name.invalid", port, NAMES[-1]) is None
    assert served_validities("no-such-name.invalid", port, NAMES[-1]) == {}


def test_health_and_metrics() -> None:
    cluster, time = MemoryCluster(), FakeTime()
    replicas: dict[str, x509.Certificate | None] = {}
    running = controller(cluster, time, replicas=lambda: replicas)
    with serve_status(
        0, alive=lambda: running.alive, ready=lambda: running.ready, metrics=running.metrics
    ) as server:
        url = f"http://127.0.0.1:{server.server_address[1]}"

        def get(path: str) -> tuple[int, str]:
            try:
                with urllib.request.urlopen(url + path) as answer:  # noqa: S310
                    return answer.status, answer.read().decode()
            except urllib.error.HTTPError as error:
                with error:
                    return error.code, error.read().decode()

        assert get("/healthz") == (200, "ok\n")
        time.passed += 5 * MINUTE
        assert get("/healthz")[0] == 503, "no pass has begun for a long time"
        cluster.refuse = "secrets"
        assert not running.reconcile()
        assert get("/healthz")[0] == 200, "a refused request is no reason for a restart"
        assert get("/readyz") == (503, "not ready\n")
        cluster.refuse = None
        assert running.reconcile()
        assert get("/readyz") == (200, "ok\n")
        assert cluster.stored.leaf
        replicas |= {"a": cluster.stored.leaf.certificate, "b": None}
        assert running.reconcile()
        text = get("/metrics")[1]
        assert "\ngpuward_certs_replicas 2.0\n" in text
        assert "\ngpuward_certs_replicas_current 1.0\n" in text
        assert "\ngpuward_certs_certificate_expiry_seconds 7.776e+06\n" in text
        assert get("/secret")[0] == 404
        server.shutdown()


def test_the_command_line_names_missing_options(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUWARD_CERTS_NAMESPACE", "gpuward-system")
    assert certs_command.main(["run", "--service", "gpuward", "--lease", "gpuward-certs"]) == 2
    error = capsys.readouterr().err
    assert "not given: --headless-service, --secret, --ca-secret, --mutating-conf" in error
    assert "--namespace" not in error


def test_the_command_line_needs_a_verb(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        certs_command.main([])
    assert exit_.value.code == 2
    assert "COMMAND" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "repairs"), [("true", True), ("false", False)])
def test_an_option_that_is_true_or_false(text: str, *, repairs: bool) -> None:
    options = certs_command.make_parser().parse_args(["run", f"--repair-registration={text}"])
    assert options.repair_registration is repairs


def test_outside_a_cluster_missing_credentials_are_reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    for name in ("namespace", "service", "headless_service", "secret", "ca_secret", "lease"):
        monkeypatch.setenv(f"GPUWARD_CERTS_{name.upper()}", "gpuward")
    assert certs_command.main(["run", "--mutating-configuration", "gpuward"]) == 1
    assert "no credentials for the Kubernetes API" in capsys.readouterr().err
    assert POLICY.propagation == 10 * MINUTE


LOG = """
from cluster.control_loop import log_as_json
from cluster.controllers import certificates
log_as_json()
certificates._log.info("secret written", secret="gpuward-tls")
certificates._log.exception("reconciliation failed", exc_info=ValueError("x"))
"""


def test_the_log_has_the_form_of_the_webhooks_own() -> None:
    stream = io.BytesIO()
    Log(stream).write("info", "policy loaded", digest="x")
    done = subprocess.run([sys.executable, "-c", LOG], capture_output=True, check=True, cwd=ROOT)
    assert done.stdout == b""
    model, written, failed = map(json.loads, (stream.getvalue(), *done.stderr.splitlines()))
    for line, level, event in (
        (written, "info", "secret written"),
        (failed, "error", "reconciliation failed"),
    ):
        assert list(line)[:3] == list(model)[:3]
        assert (line["level"], line["event"]) == (level, event)
        assert re.sub(r"\d", "0", line["time"]) == re.sub(r"\d", "0", model["time"])
    assert written["secret"] == CONFIG.serving_secret

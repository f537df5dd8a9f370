"""The certificate controller: every ten seconds, compare the state with the goal and act.

The controller keeps no state of its own: the Secrets hold all progress.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import datetime
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import structlog
from cryptography import x509
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from certs.authority import service_names
from certs.keypairs import KeyPair, fingerprint, parse_certificates, pem_bundle
from certs.rotation import Observation, RotationPolicy, SecretChange, SecretKind, next_change
from certs.secrets import CertificateState, decode, encode_authority, encode_serving
from certs.validity import expires_soon, expiry_text, utc_now
from cluster.api.client import KubernetesCluster
from cluster.api.connection import Connection
from cluster.api.errors import (
    Cluster,
    ConfigurationKind,
    ConfigurationRef,
    Object,
    RequiredObjectError,
)
from cluster.api.events import Reminders, event_sender
from cluster.control_loop import Controller, ControlLoop, LeaderElection
from cluster.webhooks.served_certificates import served_certificates
from cluster.webhooks.watch import make_policy_watch, make_watch, watch_changes


class CaBundlePublisher:
    """Keeps the CA bundle in `configurations`, whatever others write there.

    Configurations that do not exist are ignored.

    `on_write` is called with each configuration that was written, and the names of its webhooks.
    """

    def __init__(
        self,
        cluster: Cluster,
        configurations: Sequence[ConfigurationRef],
        monotonic: Callable[[], float],
        on_write: Callable[[ConfigurationRef, Sequence[str]], None],
    ) -> None:
        self._cluster = cluster
        self._configurations = configurations
        self._monotonic = monotonic
        self._on_write = on_write
        self._bundle = b""
        self._since = 0.0

    def publish(self, bundle: bytes) -> datetime.timedelta | None:
        """Write `bundle` (PEM) where it is missing; returns for how long it has been in place.

        None for an empty bundle, which is never written. Raises ClusterError.
        """
        if not bundle:
            return None
        text = base64.b64encode(bundle).decode("ascii")
        written = [self._patch(configuration, text) for configuration in self._configurations]
        if any(written) or bundle != self._bundle:
            self._bundle, self._since = bundle, self._monotonic()
        return datetime.timedelta(seconds=self._monotonic() - self._since)

    def complete(self, ref: ConfigurationRef) -> None:
        """Write the bundle that was published last to a configuration. Raises ClusterError."""
        if self._bundle:
            self._patch(ref, base64.b64encode(self._bundle).decode("ascii"))

    def _patch(self, ref: ConfigurationRef, bundle: str) -> bool:
        """Write `bundle` (base64) to the webhooks that lack it; whether there were any."""
        configuration = self._cluster.get_configuration(ref)
        if configuration is None:
            return False
        webhooks = configuration.get("webhooks") or []
        indices = [
            index
            for index, webhook in enumerate(webhooks)
            if webhook.get("clientConfig", {}).get("caBundle") != bundle
        ]
        if not indices:
            return False
        version = configuration["metadata"]["resourceVersion"]
        self._cluster.write_bundle(ref, version, indices, bundle)
        self._on_write(ref, [webhooks[index]["name"] for index in indices])
        return True


_STALE_INTERVALS = 5
_Gauge, _Counter = GaugeMetricFamily, CounterMetricFamily
_METRICS = (
    ("leader", _Gauge, "1 if this process holds the Lease."),
    ("reconciliations", _Counter, "Reconciliations that ended, including those that failed."),
    (
        "reconciliation_failures",
        _Counter,
        "Reconciliations in which the API server refused a request or did not answer.",
    ),
    ("ca_bundle_writes", _Counter, "Times that a webhook configuration lacked the CA bundle."),
    ("authorities", _Gauge, "Authorities in the CA bundle; more than 1 during a rotation."),
    ("authority_expiry_seconds", _Gauge, "Seconds until the signing authority expires."),
    ("certificate_expiry_seconds", _Gauge, "Seconds until the newest certificate expires."),
    ("replicas", _Gauge, "Addresses behind the headless Service."),
    ("replicas_current", _Gauge, "Of these, addresses that serve the newest certificate."),
)
_MAX_STEPS = 8  # of one reconciliation; the first certificate takes three
_LEASE_INTERVALS = 4
_log = structlog.get_logger("gpuward.certs")

ServedCertificates = Callable[[], Mapping[str, str | None] | None]
"""For each address the fingerprint of its certificate; None if no address is known."""


class Clocks(NamedTuple):
    """The time of day in UTC, and monotonic seconds."""

    now: Callable[[], datetime.datetime] = utc_now
    monotonic: Callable[[], float] = time.monotonic


class ControllerConfig(NamedTuple):
    """The names of the objects that the controller manages.

    `interval_seconds` is the time between two reconciliations. `also_trusted` are other
    authorities, which are published together with the controller's own.
    """

    authority_secret: str
    serving_secret: str
    lease: str
    configurations: Sequence[ConfigurationRef]
    interval_seconds: float = 10.0
    also_trusted: Sequence[x509.Certificate] = ()


class CertificateController(Controller):
    """Keeps the certificates of `config` as `policy` demands; `identity` names this process.

    `send_event` creates a Kubernetes Event with a reason and a text; it may raise ClusterError.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: ControllerConfig,
        policy: RotationPolicy,
        *,
        identity: str,
        replicas: ServedCertificates,
        send_event: Callable[[str, str], None] = lambda *_: None,
        clocks: Clocks | None = None,
    ) -> None:
        self._clocks = clocks = clocks or Clocks()
        self._election = LeaderElection(
            cluster,
            config.lease,
            identity,
            seconds=_LEASE_INTERVALS * config.interval_seconds,
            monotonic=clocks.monotonic,
            clock=clocks.now,
        )
        super().__init__(
            _log,
            "reconciliation failed",
            stale_seconds=_STALE_INTERVALS * config.interval_seconds,
            leader=self._election,
            monotonic=clocks.monotonic,
        )
        self._cluster = cluster
        self._config = config
        self._policy = policy
        self._replicas = replicas
        self._publisher = CaBundlePublisher(
            cluster, config.configurations, clocks.monotonic, self._on_write
        )
        self._reminders = Reminders(send_event, _log, clocks.monotonic)
        self._state = CertificateState()
        self._served: Mapping[str, str | None] | None = None
        self.published = 0
        """How many times a configuration lacked the CA bundle."""

    def complete(self, ref: ConfigurationRef) -> None:
        """Write the CA bundle to a new configuration, if this process has published one.

        The next pass does the same, but asks for more before. Raises ClusterError.
        """
        self._publisher.complete(ref)

    def _reconcile(self, _report: object) -> None:
        served = None
        for step in range(_MAX_STEPS):
            secrets = {
                SecretKind.AUTHORITY: self._cluster.get_secret(self._config.authority_secret),
                SecretKind.SERVING: self._cluster.get_secret(self._config.serving_secret),
            }
            state = decode(_data(secrets[SecretKind.AUTHORITY]), _data(secrets[SecretKind.SERVING]))
            self._state = state
            trusted = pem_bundle((*state.trusted, *self._config.also_trusted))
            published_for = self._publisher.publish(trusted)
            if step == 0:
                # After caBundle is in order, because each address may take some seconds.
                self._served = served = self._replicas()
            observation = Observation(published_for, served)
            change = next_change(state, observation, self._clocks.now(), self._policy)
            if change is None or not self._election.held:
                break
            self._write(change, secrets[change.secret])
        self._reminders.update(self._expiries())

    def _on_failure(self, error: Exception) -> None:
        problems = self._expiries()
        if isinstance(error, RequiredObjectError):
            problems["ObjectMissing"] = str(error)
        self._reminders.update(problems)

    def _expiries(self) -> dict[str, str]:
        """What expires soon although this controller should have replaced it, by its reason."""
        now, state = self._clocks.now(), self._state
        problems = {}
        for reason, what, pair in (
            ("CertificateExpires", "serving certificate", state.leaf),
            ("AuthorityExpires", "certificate authority", state.signer),
        ):
            if pair is None:
                continue
            start, end = pair.certificate.not_valid_before_utc, pair.certificate.not_valid_after_utc
            if expires_soon(start, end, now):
                why = "the log of the certificate controller says why it is not renewed"
                problems[reason] = f"the {what} {expiry_text(end, now)}: {why}"
        return problems

    def _write(self, change: SecretChange, secret: Object) -> None:
        serving = change.secret is SecretKind.SERVING
        data = encode_serving(change.state) if serving else encode_authority(change.state)
        encoded = {name: base64.b64encode(content).decode() for name, content in data.items()}
        self._cluster.update_secret({**secret, "data": encoded})
        name = secret["metadata"]["name"]
        _log.info("secret written", secret=name, why=change.reason, **_log_fields(change.state))

    def _on_write(self, configuration: ConfigurationRef, webhooks: Sequence[str]) -> None:
        self.published += 1
        _log.info(
            "CA bundle written",
            kind=configuration.kind.value,
            configuration=configuration.name,
            webhooks=list(webhooks),
        )

    def collect(self) -> Iterator[Metric]:
        """The metrics of one scrape."""
        values = self._values()
        for name, family, text in _METRICS:
            if (value := values[name]) is not None:
                yield family(f"gpuward_certs_{name}", text, value)

    def _values(self) -> dict[str, float | None]:
        state, replicas = self._state, self._served
        newest = fingerprint(state.leaf.certificate) if state.leaf else None
        current = None
        if replicas is not None and newest is not None:
            current = sum(served == newest for served in replicas.values())
        return {
            "leader": int(self.is_leader),
            "reconciliations": self.passes,
            "reconciliation_failures": self.failures,
            "ca_bundle_writes": self.published,
            "authorities": len(state.trusted),
            "authority_expiry_seconds": self._seconds_left(state.signer),
            "certificate_expiry_seconds": self._seconds_left(state.leaf),
            "replicas": None if replicas is None else len(replicas),
            "replicas_current": current,
        }

    def _seconds_left(self, pair: KeyPair | None) -> float | None:
        if pair is None:
            return None
        return (pair.certificate.not_valid_after_utc - self._clocks.now()).total_seconds()


def _log_fields(state: CertificateState) -> dict[str, str | int]:
    """What the log may contain: fingerprints and dates, never a key."""
    fields: dict[str, str | int] = {"retired": len(state.retired)}
    for name in ("signer", "successor", "leaf"):
        pair = getattr(state, name)
        if pair is not None:
            fields[name] = fingerprint(pair.certificate)[:16]
            fields[f"{name}_until"] = pair.certificate.not_valid_after_utc.isoformat()
    return fields


def _data(secret: Object) -> dict[str, bytes]:
    """The data of a Secret; a value that is not base64 counts as missing."""
    data = {}
    for name, text in (secret.get("data") or {}).items():
        try:
            data[name] = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError, TypeError):
            continue
    return data


def make_loop(options: argparse.Namespace) -> ControlLoop:
    """The controller of the certificates, and the watches that run beside it, as `options` say.

    Raises ClusterError without credentials, CertificateError if `also_trust` is broken.
    """
    names = service_names(options.service, options.namespace)
    policy = RotationPolicy(
        names,
        datetime.timedelta(days=options.ca_days),
        datetime.timedelta(days=options.leaf_days),
        datetime.timedelta(minutes=options.propagation_minutes),
    )
    names_by_kind = (
        (ConfigurationKind.MUTATING, options.mutating_configuration),
        (ConfigurationKind.VALIDATING, options.validating_configuration),
    )
    config = ControllerConfig(
        options.ca_secret,
        options.secret,
        options.lease,
        [
            ConfigurationRef(kind, name)
            for kind, text in names_by_kind
            for name in _split_names(text)
        ],
        options.interval,
        parse_certificates((options.also_trust or "").encode()),
    )
    host = f"{options.headless_service}.{options.namespace}.svc"
    cluster = KubernetesCluster(options.namespace, options.kubeconfig)
    connection = partial(Connection.in_cluster, options.kubeconfig)

    def send_event(reason: str, text: str) -> None:
        event_sender(connection(), reason, "RenewCertificates")(text)

    certificates = CertificateController(
        cluster,
        config,
        policy,
        identity=options.identity,
        send_event=send_event,
        replicas=partial(served_certificates, host, options.serving_port, names[-1]),
    )
    controllers: list[Controller] = [certificates]
    if expected := options.expected_registration:
        watch = make_watch(
            connection(),
            expected,
            options.settle_seconds,
            options.interval,
            repair=options.repair_registration,
            complete=certificates.complete,
        )
        # First, because the pass of the certificates waits for answers of replicas.
        controllers.insert(0, watch)
    if options.policy:
        controllers.append(make_policy_watch(connection(), options.policy))
    watches = watch_changes(cluster.changes, config.configurations)
    return ControlLoop(controllers, options.interval, watches=watches)


def _split_names(text: str | None) -> list[str]:
    return [name for part in (text or "").split(",") if (name := part.strip())]

"""The certificate controller: every ten seconds, compare the state with the goal and act.

The Secrets hold all progress, so the process can be stopped at any time. What it remembers is what
users may take away: the data of the Secrets, and the authorities that it has published.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import datetime
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import structlog
from cryptography import x509
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from certs.authority import service_names
from certs.keypairs import (
    CertificateError,
    KeyPair,
    fingerprint,
    parse_certificates,
    pem_bundle,
)
from certs.rotation import (
    Observation,
    RotationPolicy,
    SecretChange,
    SecretKind,
    next_change,
    retained,
)
from certs.secrets import (
    AUTHORITY_FIELDS,
    SERVING_FIELDS,
    CertificateState,
    ForeignSecretError,
    decode,
    encode_authority,
    encode_serving,
    refuse_foreign,
)
from certs.validity import expires_soon, expiry_text, utc_now
from cluster.api.client import KubernetesCluster
from cluster.api.connection import Connection
from cluster.api.errors import (
    NEW_BUNDLE_ANNOTATION,
    Cluster,
    ConfigurationKind,
    ConfigurationRef,
    NotCreatedError,
    Object,
)
from cluster.api.events import Reminders, event_sender
from cluster.control_loop import Controller, ControlLoop, LeaderElection, Watch
from cluster.webhooks.served_certificates import served_certificates
from cluster.webhooks.watch import make_policy_watch, make_watch, watch_changes


class ServiceRef(NamedTuple):
    """The Service of a webhook."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"service/{self.name} in {self.namespace}"


class ForeignConfigurationError(Exception):
    """A webhook configuration is not of this release."""


_REREAD_SECONDS = 5.0
"""For which a configuration stays as it is before API servers are made to read it again."""


class CaBundlePublisher:
    """Keeps the CA bundle in `configurations`, whatever others write there.

    An API server may keep a configuration that it read just before it was written (decision 0059).
    So each write of a bundle adds an annotation, and some seconds later another write removes it.

    Configurations that do not exist are ignored. Those with a webhook of another Service than
    `service` are of another installation, and are never changed.

    `on_write` is called with each configuration that was written, and the names of its webhooks.
    """

    def __init__(
        self,
        cluster: Cluster,
        configurations: Sequence[ConfigurationRef],
        service: ServiceRef,
        monotonic: Callable[[], float],
        on_write: Callable[[ConfigurationRef, Sequence[str]], None],
    ) -> None:
        self._cluster = cluster
        self._configurations = configurations
        self._service = service
        self._monotonic = monotonic
        self._on_write = on_write
        self._bundle = b""
        self._since = 0.0
        self._annotated: dict[ConfigurationRef, tuple[str, float]] = {}
        """Since when each annotated configuration has its resourceVersion, in monotonic seconds."""

    def read(self) -> dict[ConfigurationRef, Object]:
        """The configurations as they are now. Raises ClusterError, ForeignConfigurationError."""
        return {ref: found for ref in self._configurations if (found := self._read(ref))}

    def trusted(self, found: Mapping[ConfigurationRef, Object]) -> list[x509.Certificate]:
        """The authorities that were published last, and those in what `read` returned."""
        bundles = {self._bundle}
        for configuration in found.values():
            for webhook in configuration.get("webhooks") or ():
                bundles.add(_decode_base64(webhook.get("clientConfig", {}).get("caBundle")))
        certificates: dict[x509.Certificate, None] = {}
        for bundle in sorted(bundles):
            with contextlib.suppress(CertificateError):  # not of gpuward
                certificates |= dict.fromkeys(parse_certificates(bundle))
        return [*certificates]

    def publish(
        self, bundle: bytes, found: Mapping[ConfigurationRef, Object]
    ) -> datetime.timedelta | None:
        """Write `bundle` (PEM) where it is missing in what `read` returned.

        Returns for how long it has been in place; None for an empty bundle, which is never written.
        Raises ClusterError.
        """
        if not bundle:
            return None
        if bundle != self._bundle:
            # Before it is written: `complete` must not undo it.
            self._bundle, self._since = bundle, self._monotonic()
        text = base64.b64encode(bundle).decode("ascii")
        written = {
            ref: self._patch(ref, configuration, text) for ref, configuration in found.items()
        }
        if any(written.values()):
            self._since = self._monotonic()
        for ref, configuration in found.items():
            if not written[ref]:
                self._make_api_servers_read_again(ref, configuration["metadata"])
        return datetime.timedelta(seconds=self._monotonic() - self._since)

    def complete(self, ref: ConfigurationRef) -> None:
        """Write the bundle that was published last to a configuration, if there is one.

        May be called beside a pass. Raises ClusterError, ForeignConfigurationError.
        """
        if self._bundle and (configuration := self._read(ref)):
            self._patch(ref, configuration, base64.b64encode(self._bundle).decode("ascii"))

    def forget(self) -> None:
        """Forget what was published: another process publishes now."""
        self._bundle = b""
        self._annotated.clear()

    def _read(self, ref: ConfigurationRef) -> Object | None:
        configuration = self._cluster.get_configuration(ref)
        for webhook in (configuration or {}).get("webhooks") or ():
            called = webhook.get("clientConfig", {}).get("service") or {}
            service = ServiceRef(called.get("namespace", ""), called.get("name", ""))
            if called and service != self._service:
                text = f"{ref.kind.value}/{ref.name} is of another installation: it calls {service}"
                raise ForeignConfigurationError(f"{text}, and not {self._service}")
        return configuration

    def _patch(self, ref: ConfigurationRef, configuration: Object, bundle: str) -> bool:
        """Write `bundle` (base64) to the webhooks that lack it; whether there were any."""
        webhooks = configuration.get("webhooks") or []
        indices = [
            index
            for index, webhook in enumerate(webhooks)
            if webhook.get("clientConfig", {}).get("caBundle") != bundle
        ]
        if not indices:
            return False
        self._cluster.write_bundle(ref, configuration, indices, bundle)
        self._on_write(ref, [webhooks[index]["name"] for index in indices])
        return True

    def _make_api_servers_read_again(self, ref: ConfigurationRef, metadata: Object) -> None:
        """Remove the annotation of a configuration that has not changed for some seconds.

        Without an annotation there is nothing to do. A write that changes nothing would not do:
        API servers do not notice it.
        """
        if NEW_BUNDLE_ANNOTATION not in (metadata.get("annotations") or {}):
            return
        version, now = metadata["resourceVersion"], self._monotonic()
        seen, since = self._annotated.get(ref, ("", now))
        if seen != version:
            self._annotated[ref] = (version, now)
        elif now - since >= _REREAD_SECONDS:
            self._cluster.remove_bundle_annotation(ref, version)


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
_REASONS = (
    (NotCreatedError, "ObjectMissing"),
    (ForeignConfigurationError, "ForeignObject"),
    (ForeignSecretError, "ForeignObject"),
)
"""Of the Events about errors that only an administrator can end."""
_log = structlog.get_logger("gpuward.certs")

ServedCertificates = Callable[[], Mapping[str, x509.Certificate | None] | None]
"""For each address the certificate that it serves, or None; None if no address is known."""

SECRET_LABELS = {
    "app.kubernetes.io/part-of": "gpuward",
    "app.kubernetes.io/managed-by": "gpuward-certs",
}
"""Labels of the Secrets that the controller creates."""


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
    service: ServiceRef
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
            expected=(ForeignConfigurationError, ForeignSecretError),
            stale_seconds=_STALE_INTERVALS * config.interval_seconds,
            leader=self._election,
            monotonic=clocks.monotonic,
        )
        self._cluster = cluster
        self._config = config
        self._policy = policy
        self._replicas = replicas
        self._publisher = CaBundlePublisher(
            cluster, config.configurations, config.service, clocks.monotonic, self._on_write
        )
        self._reminders = Reminders(send_event, _log, clocks.monotonic)
        self._state = CertificateState()
        self._data: dict[SecretKind, Mapping[str, bytes]] = {}
        self._served: Mapping[str, x509.Certificate | None] | None = None
        self._works = False
        self.published = 0
        """How many times a configuration lacked the CA bundle."""

    @property
    def ready(self) -> bool:
        """Return whether a pass of this process has succeeded, or another process leads.

        False again while only an administrator can end what keeps it from its work.
        """
        return self._works or self._election.is_held_by_another

    def complete(self, ref: ConfigurationRef) -> None:
        """Write the CA bundle to a configuration, if this process leads and has published one.

        The next pass does the same, but may have to wait for others. Raises ClusterError.
        """
        if self._election.held:
            with contextlib.suppress(ForeignConfigurationError):  # the pass reports it
                self._publisher.complete(ref)

    def _stand_by(self) -> None:
        """Forget what another process may change."""
        self._publisher.forget()
        self._data, self._served = {}, None

    def _reconcile(self, _report: object) -> None:
        for step in range(_MAX_STEPS):
            secrets = self._read_secrets()
            self._state = state = decode(
                self._data[SecretKind.AUTHORITY], self._data[SecretKind.SERVING]
            )
            observation = self._publish(state)
            if step == 0:
                # After caBundle is in order, because each address may take some seconds.
                self._served = self._replicas()
                observation = self._publish(state)
            change = next_change(state, observation, self._clocks.now(), self._policy)
            if change is None or not self._election.held:
                break
            self._write(change, secrets[change.secret])
        self._works = True
        self._reminders.update(self._expiries())

    def _read_secrets(self) -> dict[SecretKind, Object]:
        """The Secrets, after their data is in order; `_data` has it.

        A Secret that a user has deleted or emptied gets back what it had. What is not gpuward's
        is left alone: then the bundle that is known is published, and the error is raised.
        """
        secrets: dict[SecretKind, Object] = {}
        data: dict[SecretKind, Mapping[str, bytes]] = {}
        for kind, name, fields in (
            (SecretKind.AUTHORITY, self._config.authority_secret, AUTHORITY_FIELDS),
            (SecretKind.SERVING, self._config.serving_secret, SERVING_FIELDS),
        ):
            secret = self._cluster.get_secret(name)
            secrets[kind] = secret or {"metadata": {"name": name, "labels": SECRET_LABELS}}
            data[kind] = _data(secrets[kind])
            try:
                refuse_foreign(data[kind], fields)
            except ForeignSecretError as error:
                self._publish(self._state)
                raise ForeignSecretError(f"secret/{name} is left alone: {error}") from error
        for kind, before in self._data.items():
            if before and not data[kind] and self._election.held:
                secrets[kind] = self._put(secrets[kind], before)
                data[kind] = before
                _log.warning("secret restored", secret=secrets[kind]["metadata"]["name"])
        self._data = data
        return secrets

    def _publish(self, state: CertificateState) -> Observation:
        """Publish the authorities of `state`, and those that replicas may still need."""
        found = self._publisher.read()
        given = self._config.also_trusted
        published = [ca for ca in self._publisher.trusted(found) if ca not in given]
        trusted = (*state.trusted, *retained(published, state, self._served))
        bundle = pem_bundle((*trusted, *given))
        published_for = self._publisher.publish(bundle, found)
        return Observation(published_for, self._served, trusted)

    def _on_failure(self, error: Exception) -> None:
        problems = self._expiries()
        for kind, reason in _REASONS:
            if isinstance(error, kind):
                problems[reason] = str(error)
                self._works = False
        self._reminders.update(problems)

    def _expiries(self) -> dict[str, str]:
        """Return certificates that expire soon and should have been replaced, by reason."""
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
        self._put(secret, data)
        self._data[change.secret] = data
        name = secret["metadata"]["name"]
        _log.info("secret written", secret=name, why=change.reason, **_log_fields(change.state))

    def _put(self, secret: Object, data: Mapping[str, bytes]) -> Object:
        """Write `data` to a Secret, or create it; what is stored now."""
        encoded = {name: base64.b64encode(content).decode() for name, content in data.items()}
        return self._cluster.write_secret({**secret, "data": encoded})

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
        newest = state.leaf.certificate if state.leaf else None
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
    """Return the fields for the log: fingerprints and dates, never a key."""
    fields: dict[str, str | int] = {"retired": len(state.retired)}
    for name in ("signer", "successor", "leaf"):
        pair = getattr(state, name)
        if pair is not None:
            fields[name] = fingerprint(pair.certificate)[:16]
            fields[f"{name}_until"] = pair.certificate.not_valid_after_utc.isoformat()
    return fields


def _data(secret: Object) -> dict[str, bytes]:
    """The data of a Secret; a value that is empty or not base64 counts as missing."""
    found = {name: _decode_base64(text) for name, text in (secret.get("data") or {}).items()}
    return {name: content for name, content in found.items() if content}


def _decode_base64(text: object) -> bytes:
    """Return the bytes that `text` encodes; empty if it is not base64."""
    try:
        return base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    except ValueError:
        return b""


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
        ServiceRef(options.namespace, options.service),
        [
            ConfigurationRef(kind, name)
            for kind, text in names_by_kind
            for name in _split_names(text)
        ],
        options.interval,
        parse_certificates((options.also_trust or "").encode()),
    )
    host = f"{options.headless_service}.{options.namespace}.svc"
    owner = options.service_account or ""
    cluster = KubernetesCluster(options.namespace, options.kubeconfig, owner)
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
    watches = watch_changes(cluster.changes, config.configurations, certificates.complete)
    watches += [
        Watch(f"secret/{name}", partial(cluster.secret_changes, name))
        for name in (config.authority_secret, config.serving_secret)
    ]
    return ControlLoop(controllers, options.interval, watches=watches)


def _split_names(text: str | None) -> list[str]:
    return [name for part in (text or "").split(",") if (name := part.strip())]

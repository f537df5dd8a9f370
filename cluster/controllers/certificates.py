"""The certificate controller: every ten seconds, compare the state with the goal and act.

The controller keeps no state of its own: the Secrets hold all progress.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import structlog
from cryptography import x509

from certs.clock import utc_now
from certs.controller.ca_bundle import CaBundlePublisher
from certs.controller.rotation_records import Change, Observation, RotationPolicy, SecretKind
from certs.keypairs import bundle, fingerprint
from certs.rotation import decide
from certs.secrets import CertificateState, decode, encode_authority, encode_serving
from cluster.controllers.certificate_status import Status
from cluster.controllers.leader_election import LeaderElection
from cluster.protocols import Cluster, ClusterError, ConfigurationRef, ConflictError, Object
from cluster.webhooks.watch import RegistrationWatch

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


class Controller:
    """Keeps the certificates of `config` as `policy` demands; `identity` names this process.

    `watch` compares the webhook configurations after each reconciliation, and `check_policy` is
    called then, also in a process that does not hold the Lease.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: ControllerConfig,
        policy: RotationPolicy,
        *,
        identity: str,
        replicas: ServedCertificates,
        clocks: Clocks | None = None,
        watch: RegistrationWatch | None = None,
        check_policy: Callable[[], None] | None = None,
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._policy = policy
        self._replicas = replicas
        self._clocks = clocks or Clocks()
        self.status = Status(self._clocks.now, self._clocks.monotonic, 5 * config.interval_seconds)
        self._watch = watch
        self._check_policy = check_policy
        if watch is not None:
            self.status.add(watch)
        self._leader_election = LeaderElection(
            cluster,
            config.lease,
            identity,
            seconds=_LEASE_INTERVALS * config.interval_seconds,
            monotonic=self._clocks.monotonic,
            clock=self._clocks.now,
        )
        self._publisher = CaBundlePublisher(
            cluster, config.configurations, self._clocks.monotonic, self._on_write
        )

    def run(self, stop: threading.Event) -> None:
        """Reconcile until `stop` is set, then release the Lease."""
        spread = random.SystemRandom()
        while not stop.is_set():
            self.reconcile()
            if self._watch is not None:
                self._watch.compare()
            if self._check_policy is not None:
                self._check_policy()
            stop.wait(self._config.interval_seconds * spread.uniform(0.9, 1.1))
        try:
            self._leader_election.release()
        except ClusterError as error:
            _log.warning("lease not released", error=str(error))

    def reconcile(self) -> bool:
        """Do all that can be done now; whether it succeeded. Errors are logged and counted."""
        try:
            self.status.is_leader = self._leader_election.acquire()
            if self.status.is_leader:
                self._rotate()
        except ConflictError as error:
            # The next reconciliation sees what somebody else wrote.
            _log.info("conflict", error=str(error))
        except ClusterError as error:
            _log.error("reconciliation failed", error=str(error))
            self.status.finish(failed=True)
            return False
        except Exception:  # noqa: BLE001  # the outermost loop
            # Most likely a bug. The next reconciliation may succeed, and a process that ends would
            # forget for how long the bundle has been published.
            _log.exception("reconciliation failed")
            self.status.finish(failed=True)
            return False
        self.status.finish(failed=False)
        return True

    def _rotate(self) -> None:
        replicas = self._replicas()
        for _ in range(_MAX_STEPS):
            secrets = {
                SecretKind.AUTHORITY: self._cluster.get_secret(self._config.authority_secret),
                SecretKind.SERVING: self._cluster.get_secret(self._config.serving_secret),
            }
            state = decode(_data(secrets[SecretKind.AUTHORITY]), _data(secrets[SecretKind.SERVING]))
            self.status.observe(state, replicas)
            trusted = bundle((*state.trusted, *self._config.also_trusted))
            observation = Observation(self._publisher.publish(trusted), replicas)
            change = decide(state, observation, self._clocks.now(), self._policy)
            if change is None or not self._leader_election.held:
                return
            self._write(change, secrets[change.secret])

    def _write(self, change: Change, secret: Object) -> None:
        serving = change.secret is SecretKind.SERVING
        data = encode_serving(change.state) if serving else encode_authority(change.state)
        encoded = {name: base64.b64encode(content).decode() for name, content in data.items()}
        self._cluster.update_secret({**secret, "data": encoded})
        name = secret["metadata"]["name"]
        _log.info("secret written", secret=name, why=change.reason, **_log_fields(change.state))

    def _on_write(self, configuration: ConfigurationRef, webhooks: Sequence[str]) -> None:
        self.status.published += 1
        _log.info(
            "CA bundle written",
            kind=configuration.kind.value,
            configuration=configuration.name,
            webhooks=list(webhooks),
        )


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

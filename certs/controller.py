"""The certificate controller: look at everything, do what is next, look again ten seconds later.

Nothing is remembered that matters: what has been reached stands in the Secrets.
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

from certs.api import Cluster, ClusterError, ConflictError, Object
from certs.lease import Leadership
from certs.pairs import bundle, fingerprint
from certs.publish import Configuration, Publisher
from certs.rotation import Change, Plan, Seen, Where, decide
from certs.serving import utc_now
from certs.status import Status
from certs.store import Stored, decode, encode_authority, encode_serving

_STEPS = 8  # of one round; the first certificate takes three
_LEASE_ROUNDS = 4
_log = structlog.get_logger("gpuward.certs")

Replicas = Callable[[], Mapping[str, str | None] | None]
"""By address the fingerprint of what is served there; None if that cannot be told."""


class Clocks(NamedTuple):
    """The time of day, in UTC, and seconds that never jump."""

    now: Callable[[], datetime.datetime] = utc_now
    monotonic: Callable[[], float] = time.monotonic


class Work(NamedTuple):
    """The objects that the controller works on, and how often, in seconds.

    `also_trusted` are authorities that are not ours and are published beside ours.
    """

    authority_secret: str
    serving_secret: str
    lease: str
    configurations: Sequence[Configuration]
    every: float = 10.0
    also_trusted: Sequence[x509.Certificate] = ()


class Controller:
    """Keeps the certificates of `work` as `plan` wants them; `identity` is of this process."""

    def __init__(
        self,
        cluster: Cluster,
        work: Work,
        plan: Plan,
        *,
        identity: str,
        replicas: Replicas,
        clocks: Clocks | None = None,
    ) -> None:
        self._cluster = cluster
        self._work = work
        self._plan = plan
        self._replicas = replicas
        self._clocks = clocks or Clocks()
        self.status = Status(self._clocks.now, self._clocks.monotonic, 5 * work.every)
        self._leadership = Leadership(
            cluster,
            work.lease,
            identity,
            seconds=_LEASE_ROUNDS * work.every,
            monotonic=self._clocks.monotonic,
            clock=self._clocks.now,
        )
        self._publisher = Publisher(
            cluster, work.configurations, self._clocks.monotonic, self._on_write
        )

    def run(self, stop: threading.Event) -> None:
        """Rounds until `stop` is set; then the Lease is given back."""
        spread = random.SystemRandom()
        while not stop.is_set():
            self.round()
            stop.wait(self._work.every * spread.uniform(0.9, 1.1))
        try:
            self._leadership.release()
        except ClusterError as error:
            _log.warning("lease not released", error=str(error))

    def round(self) -> bool:
        """Do what can be done now; whether nothing went wrong. Trouble is logged and counted."""
        try:
            self.status.leads = self._leadership.acquire()
            if self.status.leads:
                self._work_through()
        except ConflictError as error:
            # Somebody else was quicker; the next round sees what they did.
            _log.info("changed meanwhile", error=str(error))
        except ClusterError as error:
            _log.error("round failed", error=str(error))
            self.status.finish(failed=True)
            return False
        except Exception:  # noqa: BLE001  # the outermost loop
            # Most likely a fault of ours. The next round may do better, and a process that
            # ends forgets how long the bundle has been published.
            _log.exception("round failed")
            self.status.finish(failed=True)
            return False
        self.status.finish(failed=False)
        return True

    def _work_through(self) -> None:
        replicas = self._replicas()
        for _ in range(_STEPS):
            secrets = {
                Where.AUTHORITY: self._cluster.get_secret(self._work.authority_secret),
                Where.SERVING: self._cluster.get_secret(self._work.serving_secret),
            }
            stored = decode(_data(secrets[Where.AUTHORITY]), _data(secrets[Where.SERVING]))
            self.status.saw(stored, replicas)
            trusted = bundle((*stored.trusted, *self._work.also_trusted))
            seen = Seen(self._publisher.publish(trusted), replicas)
            change = decide(stored, seen, self._clocks.now(), self._plan)
            if change is None or not self._leadership.held:
                return
            self._write(change, secrets[change.where])

    def _write(self, change: Change, secret: Object) -> None:
        serving = change.where is Where.SERVING
        data = encode_serving(change.stored) if serving else encode_authority(change.stored)
        encoded = {name: base64.b64encode(content).decode() for name, content in data.items()}
        self._cluster.update_secret({**secret, "data": encoded})
        name = secret["metadata"]["name"]
        _log.info("secret written", secret=name, why=change.why, **_described(change.stored))

    def _on_write(self, configuration: Configuration, webhooks: Sequence[str]) -> None:
        self.status.published += 1
        _log.info(
            "bundle written",
            kind=configuration.kind.value,
            configuration=configuration.name,
            webhooks=list(webhooks),
        )


def _described(stored: Stored) -> dict[str, str | int]:
    """What may be said in a log: fingerprints and dates, never a key."""
    described: dict[str, str | int] = {"retired": len(stored.retired)}
    for name in ("signer", "successor", "leaf"):
        pair = getattr(stored, name)
        if pair is not None:
            described[name] = fingerprint(pair.certificate)[:16]
            described[f"{name}_until"] = pair.certificate.not_valid_after_utc.isoformat()
    return described


def _data(secret: Object) -> dict[str, bytes]:
    """The data of a Secret; what is not base64 counts as missing."""
    data = {}
    for name, text in (secret.get("data") or {}).items():
        try:
            data[name] = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError, TypeError):
            continue
    return data

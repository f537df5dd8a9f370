"""The status of the certificate controller, for probes and as metrics."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from certs.keypairs import KeyPair, fingerprint
from certs.secrets import CertificateState

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


class Status(Collector):
    """What the last reconciliations observed.

    If no reconciliation ends for `stall_timeout` seconds, the process counts as stuck.
    """

    def __init__(
        self,
        now: Callable[[], datetime.datetime],
        monotonic: Callable[[], float],
        stall_timeout: float,
    ) -> None:
        self._now = now
        self._monotonic = monotonic
        self._stall_timeout = stall_timeout
        self._finished_at = monotonic()
        self._reconciliations = self._failures = 0
        self._state = CertificateState()
        self._replicas: Mapping[str, str | None] | None = None
        self.is_leader = False
        self.published = 0
        """How many times a configuration lacked the CA bundle."""
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def add(self, collector: Collector) -> None:
        """Add the metrics of another collector."""
        self._registry.register(collector)

    def observe(self, state: CertificateState, replicas: Mapping[str, str | None] | None) -> None:
        """Record the state of the Secrets, and the fingerprint that each replica serves."""
        self._state, self._replicas = state, replicas

    def finish(self, *, failed: bool) -> None:
        """Record the end of a reconciliation."""
        self._reconciliations += 1
        self._failures += failed
        self._finished_at = self._monotonic()

    @property
    def alive(self) -> bool:
        """Whether reconciliations still end, well or badly: a restart would not help a failing."""
        return self._monotonic() - self._finished_at <= self._stall_timeout

    def metrics(self) -> bytes:
        """The metrics in Prometheus' text format; what is not known is left out."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """The metrics of one scrape."""
        values = self._values()
        for name, family, text in _METRICS:
            if (value := values[name]) is not None:
                yield family(f"gpuward_certs_{name}", text, value)

    def _values(self) -> dict[str, float | None]:
        state, replicas = self._state, self._replicas
        newest = fingerprint(state.leaf.certificate) if state.leaf else None
        current = None
        if replicas is not None and newest is not None:
            current = sum(served == newest for served in replicas.values())
        return {
            "leader": int(self.is_leader),
            "reconciliations": self._reconciliations,
            "reconciliation_failures": self._failures,
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
        return (pair.certificate.not_valid_after_utc - self._now()).total_seconds()

"""Watch the webhook configurations and the policy file, and report what is wrong with them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import structlog
from prometheus_client.core import GaugeMetricFamily, Metric

from cluster.api.client import KubernetesConfigurations
from cluster.api.connection import Connection
from cluster.api.errors import ClusterError, ConfigurationRef, Object
from cluster.api.events import EventSource
from cluster.control_loop import Controller
from cluster.webhooks.comparison import Expectation, ExpectationError, differences, read_expectation
from policies.loading import PolicyError, parse_policy, read_policy_file

_REMIND_SECONDS = 1800.0  # below the hour for which API servers keep an event
# After so many intervals without a comparison, the last result says nothing any more.
_STALE_INTERVALS = 6
_REASON, _ACTION = "RegistrationChanged", "CompareRegistration"
_log = structlog.get_logger("gpuward.registration")


class _Difference(NamedTuple):
    """Differences of one configuration: the monotonic times of the first and of the last report."""

    since: float
    texts: Sequence[str] = ()
    reported_at: float = -math.inf


class RegistrationWatch(Controller):
    """Compares the configurations in each pass, and collects the result as a metric.

    `read` returns the expectation, `get` a configuration, and `send_event` creates a Kubernetes
    Event with a text. Differences are reported once they have existed for `settle_seconds`, and
    again every half hour. An upgrade writes configurations and expectation at once, but the kubelet
    may take over a minute to update the mounted expectation. `interval_seconds` is the time between
    two comparisons.
    """

    def __init__(
        self,
        read: Callable[[], Expectation],
        get: Callable[[ConfigurationRef], Object | None],
        send_event: Callable[[str], None],
        *,
        settle_seconds: float,
        interval_seconds: float = 10.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(
            _log,
            "registration not compared",
            expected=(ExpectationError,),
            stale_seconds=_STALE_INTERVALS * max(interval_seconds, 10.0),
            monotonic=monotonic,
        )
        self._read = read
        self._get = get
        self._send_event = send_event
        self._settle_seconds = settle_seconds
        self._matches: dict[ConfigurationRef, bool] = {}
        self._different: dict[ConfigurationRef, _Difference] = {}

    def _reconcile(self, _report: object) -> None:
        found = {
            ref: differences(manifest, self._get(ref)) for ref, manifest in self._read().items()
        }
        self._different = {ref: seen for ref, seen in self._different.items() if ref in found}
        for ref, texts in found.items():
            self._report(ref, texts)
        self._matches = {ref: not texts for ref, texts in found.items()}

    def _on_failure(self) -> None:
        self._matches = {}

    def collect(self) -> Iterator[Metric]:
        """The metric; without samples if it is not known whether the configurations match."""
        gauge = GaugeMetricFamily(
            "gpuward_registration_as_expected",
            "1 if the webhook configuration is what this release should have, else 0.",
            labels=("kind", "name"),
        )
        for ref, matches in self._matches.items() if self.alive else ():
            gauge.add_metric((ref.kind.value, ref.name), int(matches))
        yield gauge

    def _report(self, ref: ConfigurationRef, texts: Sequence[str]) -> None:
        now = self._monotonic()
        if not texts:
            before = self._different.pop(ref, None)
            if before is not None and before.texts:
                _log.info("registration as expected again", **_log_fields(ref))
            return
        seen = self._different.setdefault(ref, _Difference(now))
        is_settled = now - seen.since >= self._settle_seconds
        is_due = texts != seen.texts or now - seen.reported_at >= _REMIND_SECONDS
        if is_settled and is_due:
            self._different[ref] = _Difference(seen.since, texts, now)
            _log.error("registration changed", **_log_fields(ref), differences=list(texts))
            self._try_to_send_event(f"{ref.kind.value}/{ref.name}: {'; '.join(texts)}")

    def _try_to_send_event(self, text: str) -> None:
        try:
            self._send_event(text)
        except ClusterError as error:
            _log.warning("event not created", error=str(error))


def make_watch(
    connection: Connection, expected: str, settle_seconds: float, interval_seconds: float
) -> RegistrationWatch:
    """A watch with the expectation in the file `expected`; outside of pods, it sends no events."""
    source = EventSource.this_pod()
    return RegistrationWatch(
        lambda: read_expectation(expected),
        KubernetesConfigurations(connection).get_configuration,
        partial(source.warn, connection, _REASON, _ACTION) if source else lambda _: None,
        settle_seconds=settle_seconds,
        interval_seconds=interval_seconds,
    )


def _log_fields(ref: ConfigurationRef) -> dict[str, str]:
    return {"kind": ref.kind.value, "configuration": ref.name}


_POLICY_REASON, _POLICY_ACTION = "PolicyRefused", "LoadPolicy"
_policy_log = structlog.get_logger("gpuward.policy")


class PolicyWatch(Controller):
    """Loads the policy in the file `path` in each pass that finds another content.

    `send_event` creates a Kubernetes Event with a text; it may raise ClusterError. A policy that
    cannot be used is reported by the second pass that finds it, because half of a file may be
    wrong, and again every half hour.
    """

    def __init__(
        self,
        path: str,
        send_event: Callable[[str], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(
            _policy_log, "policy not checked", stale_seconds=_REMIND_SECONDS, monotonic=monotonic
        )
        self._path = path
        self._send_event = send_event
        self._content = b""
        self._error = ""
        self._is_seen = False
        self._is_refused = False  # as the log says
        self._reported_at = -math.inf

    def _reconcile(self, _report: object) -> None:
        before, self._error = self._error, self._load()
        if self._error != before:
            if self._is_refused and not self._error:
                self._is_refused = False
                _policy_log.info("policy restored")
            self._reported_at = -math.inf
        elif self._error and self._monotonic() - self._reported_at >= _REMIND_SECONDS:
            self._reported_at = self._monotonic()
            self._report()

    def _load(self) -> str:
        """Why the policy in the file cannot be used; empty if it can."""
        try:
            content = read_policy_file(self._path)
        except PolicyError as error:
            self._is_seen = False
            return str(error)
        if self._is_seen and content == self._content:
            return self._error
        self._content, self._is_seen = content, True
        try:
            parse_policy(content, self._path).rule_set()
        except PolicyError as error:
            return str(error)
        return ""

    def _report(self) -> None:
        self._is_refused = True
        _policy_log.error("policy refused", error=self._error)
        try:
            self._send_event(f"the webhook cannot use the policy: {self._error}")
        except ClusterError as error:
            _policy_log.warning("event not created", error=str(error))


def make_policy_watch(connection: Connection, path: str) -> PolicyWatch:
    """A watch over the policy in the file `path`; outside of pods, it sends no events."""
    source = EventSource.this_pod()
    if source is None:
        return PolicyWatch(path, lambda _: None)
    return PolicyWatch(
        path, lambda text: source.warn(connection, _POLICY_REASON, _POLICY_ACTION, text)
    )

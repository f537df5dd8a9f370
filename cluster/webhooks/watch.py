"""Watch the webhook configurations and the policy file, and report what is wrong with them."""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import structlog
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from cluster.api.client import KubernetesConfigurations
from cluster.api.connection import Connection
from cluster.api.errors import (
    ClusterError,
    ConfigurationRef,
    ConflictError,
    MissingError,
    Object,
)
from cluster.api.events import event_sender
from cluster.control_loop import Controller, Watch
from cluster.webhooks.comparison import Expectation, ExpectationError, differences, read_expectation
from policies.loading import PolicyError, load_policy, read_policy_file

_REMIND_SECONDS = 1800.0  # below the hour for which API servers keep an event
# No upgrade deletes a configuration, so one that is missing is reported sooner than a difference.
_MISSING_SECONDS = 10.0
# A user who forbids the repair, and then deletes a configuration, needs API servers to know both.
_REPAIR_SECONDS = 1.0
# After so many intervals without a comparison, the last result says nothing any more.
_STALE_INTERVALS = 6
_REASON, _ACTION = "RegistrationChanged", "CompareRegistration"
_REPAIRED_REASON, _REPAIRED_ACTION = "RegistrationRepaired", "RepairRegistration"
_log = structlog.get_logger("gpuward.registration")


class _Difference(NamedTuple):
    """Differences of one configuration: the monotonic times of the first and of the last report."""

    since: float
    texts: Sequence[str] = ()
    reported_at: float = -math.inf


class Repair(NamedTuple):
    """Creates configurations that a user has deleted.

    `create` creates one from its manifest; it raises ClusterError. `send_event` creates a
    Kubernetes Event with a text; it may raise ClusterError. `service_exists` says whether there is
    a Service, by its namespace and name; it raises ClusterError. `wait` waits so many seconds.
    """

    create: Callable[[ConfigurationRef, Object], None]
    send_event: Callable[[str], None]
    service_exists: Callable[[str, str], bool]
    wait: Callable[[float], None] = time.sleep


class RegistrationWatch(Controller):
    """Compares the configurations in each pass, and collects the result as a metric.

    `read` returns the expectation, `get` a configuration, and `send_event` creates a Kubernetes
    Event with a text. Differences are reported once they have existed for `settle_seconds`, and
    again every half hour. An upgrade writes configurations and expectation at once, but the kubelet
    may take over a minute to update the mounted expectation. That a configuration does not exist
    is reported sooner. `interval_seconds` is the time between two comparisons.

    With `repair`, a configuration that has not existed for a second is created again.
    """

    def __init__(
        self,
        read: Callable[[], Expectation],
        get: Callable[[ConfigurationRef], Object | None],
        send_event: Callable[[str], None],
        *,
        settle_seconds: float,
        interval_seconds: float = 10.0,
        repair: Repair | None = None,
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
        self._repair = repair
        self._not_repaired = ""
        self._repaired: Counter[ConfigurationRef] = Counter()

    def _reconcile(self, _report: object) -> None:
        expected = self._read()
        found = {ref: self._get(ref) for ref in expected}
        if self._repair and None in found.values():
            self._create_missing(self._repair, expected, found)
        texts = {ref: differences(manifest, found[ref]) for ref, manifest in expected.items()}
        self._different = {ref: seen for ref, seen in self._different.items() if ref in found}
        for ref, configuration in found.items():
            self._report(ref, texts[ref], is_missing=configuration is None)
        self._matches = {ref: not texts[ref] for ref in found}

    def _create_missing(
        self, repair: Repair, expected: Expectation, found: dict[ConfigurationRef, Object | None]
    ) -> None:
        """Create what is missing in `found` and still is a second later."""
        repair.wait(_REPAIR_SECONDS)
        for ref in [ref for ref, configuration in found.items() if configuration is None]:
            found[ref] = self._get(ref)
            if found[ref] is None and self._create(repair, ref, expected[ref]):
                found[ref] = self._get(ref)

    def _create(self, repair: Repair, ref: ConfigurationRef, manifest: Object) -> bool:
        """Create a configuration; whether there is one now."""
        try:
            # A user who uninstalls gpuward deletes the Service within this second, before or after
            # the configurations. A configuration without its Service would refuse or delay pods.
            if gone := [name for name in _services(manifest) if not repair.service_exists(*name)]:
                namespace, name = gone[0]
                raise MissingError(f"service/{name} in {namespace} does not exist either")
            repair.create(ref, manifest)
        except ConflictError:  # another client has created it meanwhile
            return True
        except ClusterError as error:
            if str(error) != self._not_repaired:
                _log.error("registration not repaired", **_log_fields(ref), error=str(error))
            self._not_repaired = str(error)
            return False
        self._not_repaired = ""
        self._repaired[ref] += 1
        _log.error("registration repaired", **_log_fields(ref))
        text = f"{ref.kind.value}/{ref.name}: somebody has deleted it, and gpuward created it again"
        self._try_to_send(repair.send_event, text)
        return True

    def _on_failure(self, error: Exception) -> None:
        del error
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
        if self._repair is None:
            return
        counter = CounterMetricFamily(
            "gpuward_registration_repairs",
            "How many times the webhook configuration did not exist and was created again.",
            labels=("kind", "name"),
        )
        for ref in {**self._matches, **self._repaired}:
            counter.add_metric((ref.kind.value, ref.name), self._repaired[ref])
        yield counter

    def _report(self, ref: ConfigurationRef, texts: Sequence[str], *, is_missing: bool) -> None:
        now = self._monotonic()
        if not texts:
            before = self._different.pop(ref, None)
            if before is not None and before.texts:
                _log.info("registration as expected again", **_log_fields(ref))
            return
        seen = self._different.setdefault(ref, _Difference(now))
        settle_seconds = self._settle_seconds
        if is_missing:
            settle_seconds = min(settle_seconds, _MISSING_SECONDS)
        is_settled = now - seen.since >= settle_seconds
        is_due = texts != seen.texts or now - seen.reported_at >= _REMIND_SECONDS
        if is_settled and is_due:
            self._different[ref] = _Difference(seen.since, texts, now)
            _log.error("registration changed", **_log_fields(ref), differences=list(texts))
            text = f"{ref.kind.value}/{ref.name}: {'; '.join(texts)}"
            self._try_to_send(self._send_event, text)

    def _try_to_send(self, send_event: Callable[[str], None], text: str) -> None:
        try:
            send_event(text)
        except ClusterError as error:
            _log.warning("event not created", error=str(error))


def _services(manifest: Object) -> list[tuple[str, str]]:
    """The Services that a webhook configuration names: namespace and name, each once."""
    found = [webhook["clientConfig"].get("service") for webhook in manifest.get("webhooks") or ()]
    return sorted({(service["namespace"], service["name"]) for service in found if service})


def make_watch(
    connection: Connection,
    expected: str,
    settle_seconds: float,
    interval_seconds: float,
    *,
    repair: bool = False,
    complete: Callable[[ConfigurationRef], None] = lambda _: None,
) -> RegistrationWatch:
    """A watch with the expectation in the file `expected`; outside of pods, it sends no events.

    With `repair`, it creates configurations again that a user has deleted, and calls `complete`
    with each.
    """
    configurations = KubernetesConfigurations(connection)

    def create(ref: ConfigurationRef, manifest: Object) -> None:
        configurations.create(ref, manifest)
        with contextlib.suppress(ClusterError):  # the next pass makes up for it
            complete(ref)

    repaired = event_sender(connection, _REPAIRED_REASON, _REPAIRED_ACTION)
    return RegistrationWatch(
        lambda: read_expectation(expected),
        configurations.get_configuration,
        event_sender(connection, _REASON, _ACTION),
        settle_seconds=settle_seconds,
        interval_seconds=interval_seconds,
        repair=Repair(create, repaired, configurations.service_exists) if repair else None,
    )


def watch_changes(
    changes: Callable[[ConfigurationRef], Iterator[None]],
    refs: Iterable[ConfigurationRef],
    react: Callable[[ConfigurationRef], object] = lambda _: None,
) -> list[Watch]:
    """Return watches that wake a loop as soon as one of the configurations changes or is deleted.

    `changes` watches one, as `KubernetesConfigurations.changes` does; `react` is that of `Watch`.
    """
    return [
        Watch(f"{ref.kind.value}/{ref.name}", partial(changes, ref), partial(react, ref))
        for ref in refs
    ]


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
        """Return why the policy in the file cannot be used; empty if it can."""
        try:
            content = read_policy_file(self._path)
        except PolicyError as error:
            self._is_seen = False
            return str(error)
        if self._is_seen and content == self._content:
            return self._error
        self._content, self._is_seen = content, True
        try:
            load_policy(content, self._path).rule_set()
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
    return PolicyWatch(path, event_sender(connection, _POLICY_REASON, _POLICY_ACTION))

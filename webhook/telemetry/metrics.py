"""The metrics.

No label takes its value from a request; labels are paths, modes, outcomes, rules, reasons and the
namespaces that the administrator lists. One thread counts everything in plain dictionaries, which a
scrape converts to Prometheus' format: the counters of the client library, with their locks, take
ten times as long for each request.
"""

from __future__ import annotations

import datetime
import platform
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, get_type_hints

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from rules.engine.rule_set import PolicyException
from terminal import installed_version
from webhook.admission.answer import Answer
from webhook.admission.decision import Outcome
from webhook.registration import ROUTES, Route


def counter_metric(
    name: str, text: str, labels: tuple[str, ...], values: Mapping[Any, int]
) -> Metric:
    """A counter of gpuward with its value for each combination of labels."""
    family = CounterMetricFamily(f"gpuward_{name}", text, labels=labels)
    for label_values, value in values.items():
        family.add_metric(label_values, value)
    return family


class MetricInfo(NamedTuple):
    """The metric of a field: its type, its name after `gpuward_`, and its help text."""

    kind: type[GaugeMetricFamily | CounterMetricFamily]
    name: str
    text: str


_Gauge, _Counter = GaugeMetricFamily, CounterMetricFamily


class ServerState(NamedTuple):
    """The state of the server. Times are Unix times in seconds.

    The annotation of a field describes its metric. `policy_digest` and `build` are labels of two.
    """

    policy_valid: Annotated[
        bool, MetricInfo(_Gauge, "policy_valid", "1 if the policy in the file is the active one.")
    ]
    policy_since: Annotated[
        float,
        MetricInfo(_Gauge, "policy_loaded_timestamp_seconds", "When the active policy was loaded."),
    ]
    certificate_expiry: Annotated[
        float | None,
        MetricInfo(
            _Gauge, "certificate_not_after_timestamp_seconds", "When the certificate expires."
        ),
    ]
    certificate_seconds: Annotated[
        float | None,
        MetricInfo(_Gauge, "certificate_expiry_seconds", "Seconds until the certificate expires."),
    ]
    connections: Annotated[
        int,
        MetricInfo(
            _Gauge, "connections", "Open TLS connections, including those in their handshake."
        ),
    ]
    waiting: Annotated[
        int,
        MetricInfo(_Gauge, "waiting_requests", "Requests whose body has not arrived completely."),
    ]
    reserved_large_body_bytes: Annotated[
        int,
        MetricInfo(
            _Gauge, "large_body_bytes", "Bytes reserved for large bodies that are being read."
        ),
    ]
    large_reviews: Annotated[
        int,
        MetricInfo(
            _Gauge, "large_reviews", "Large reviews that are being evaluated, or wait for it."
        ),
    ]
    ended_workers: Annotated[
        int,
        MetricInfo(
            _Counter,
            "ended_evaluations",
            "Evaluations that were ended: too slow, or too much memory.",
        ),
    ]
    cache_hits: Annotated[
        int, MetricInfo(_Counter, "decision_cache_hits", "Reviews answered by a kept decision.")
    ]
    cache_misses: Annotated[
        int,
        MetricInfo(
            _Counter, "decision_cache_misses", "Reviews whose new decision the cache may keep."
        ),
    ]
    cache_bytes: Annotated[
        int, MetricInfo(_Gauge, "decision_cache_bytes", "Bytes that kept decisions take.")
    ]
    dropped_log_lines: Annotated[
        int,
        MetricInfo(_Counter, "dropped_log_lines", "Log lines dropped because nobody read them."),
    ]
    draining: Annotated[
        bool, MetricInfo(_Gauge, "draining", "1 while the server drains before it stops.")
    ]
    policy_loads: Annotated[
        int, MetricInfo(_Counter, "policy_loads", "Policies loaded since the start.")
    ]
    policy_failures: Annotated[
        int,
        MetricInfo(
            _Counter, "policy_reload_failures", "Changes of the policy file that cannot be used."
        ),
    ]
    gpu_exceptions: Annotated[
        int,
        MetricInfo(_Gauge, "gpu_exceptions", "GpuExceptions that apply, or have ended lately."),
    ]
    gpu_exceptions_valid: Annotated[
        bool,
        MetricInfo(
            _Gauge,
            "gpu_exceptions_valid",
            "0 if the file with GpuExceptions is not used, or soon not.",
        ),
    ]
    inventory_objects: Annotated[
        int,
        MetricInfo(_Gauge, "inventory_objects", "Other objects of the cluster that rules know."),
    ]
    inventory_valid: Annotated[
        bool,
        MetricInfo(
            _Gauge, "inventory_valid", "0 if the files of the inventory are not used, or soon not."
        ),
    ]
    certificate_failures: Annotated[
        int,
        MetricInfo(
            _Counter, "certificate_reload_failures", "Attempts to load the certificate that failed."
        ),
    ]
    policy_digest: str
    build: Mapping[str, str]


_METRIC_INFO_BY_FIELD: dict[str, MetricInfo] = {
    field: hint.__metadata__[0]
    for field, hint in get_type_hints(ServerState, include_extras=True).items()
    if hasattr(hint, "__metadata__")
}


def state_metrics(state: ServerState) -> Iterator[Metric]:
    """The metrics of one scrape."""
    for field, (kind, name, text) in _METRIC_INFO_BY_FIELD.items():
        value = getattr(state, field)
        if value is not None:
            yield kind(f"gpuward_{name}", text, value)
    yield _info_metric("policy", "The active policy.", {"sha256": state.policy_digest or "default"})
    yield _info_metric("build", "The versions of gpuward and of Python.", state.build)


def _info_metric(name: str, text: str, facts: Mapping[str, str]) -> Metric:
    """A gauge that is always 1 and has `facts` as labels."""
    family = GaugeMetricFamily(f"gpuward_{name}_info", text, labels=tuple(facts))
    family.add_metric(tuple(facts.values()), 1)
    return family


MAX_EXCEPTIONS = 200
"""Of more exceptions with an end, only those that end first have a metric."""
_MAX_LABEL_CHARACTERS = 128
_LABELS = ("exception", "rules", "namespaces", "reason")


def exception_metric(exceptions: Sequence[PolicyException], now: float) -> GaugeMetricFamily:
    """The seconds, from the Unix time `now`, until each exception with an end stops to apply.

    `exception` is its number in the policy, from 1 on. The other labels describe it for people.
    """
    family = GaugeMetricFamily(
        "gpuward_exception_expiry_seconds",
        "Seconds until an exception of the policy ends; negative after that.",
        labels=_LABELS,
    )
    ending = [
        (_end_of_day(exception.expires) - now, number, exception)
        for number, exception in enumerate(exceptions, 1)
        if exception.expires is not None
    ]
    for seconds, number, exception in sorted(ending, key=lambda row: row[:2])[:MAX_EXCEPTIONS]:
        texts = (", ".join(exception.rules), ", ".join(exception.namespaces), exception.reason)
        family.add_metric((str(number), *(text[:_MAX_LABEL_CHARACTERS] for text in texts)), seconds)
    return family


def _end_of_day(last_day: datetime.date) -> float:
    """The Unix time at which `last_day` is over, in UTC."""
    begin = datetime.datetime.combine(last_day, datetime.time(), tzinfo=datetime.UTC)
    return begin.timestamp() + 86400.0


DURATION_BUCKETS_SECONDS = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.5,
    2.0,
)

_RULE_OUTCOMES_HELP = "Objects in which a rule found something, by the strongest outcome."
_NAMESPACE_OUTCOMES_HELP = "The same in listed namespaces, without dry runs."
_RULE_FAILURES_HELP = "Rules that failed on an object: bugs in gpuward."
_HTTP_ERRORS_HELP = "Requests that got an HTTP error and no decision, by reason."
_REJECTED_HELP = "Connections that were closed before a request, by reason."
_INTERNAL_ERRORS_HELP = "Requests that a bug in gpuward left without an evaluation."


class _DurationHistogram:
    """A histogram of durations."""

    def __init__(self) -> None:
        self.counts = [0] * (len(DURATION_BUCKETS_SECONDS) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count one request that took `seconds`."""
        self.counts[bisect_left(DURATION_BUCKETS_SECONDS, seconds)] += 1
        self.sum += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Each upper bound with the number of requests within it."""
        bounds = [*(str(bound) for bound in DURATION_BUCKETS_SECONDS), "+Inf"]
        return [(bound, sum(self.counts[: i + 1])) for i, bound in enumerate(bounds)]


class Metrics:
    """All metrics, in a registry of their own. For use by one thread."""

    def __init__(self, namespaces: Collection[str] = ()) -> None:
        """Outcomes in `namespaces` are also counted by namespace."""
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self.registry.register(_FunctionCollector(self._collect))
        self._namespaces = frozenset(namespaces)
        self._requests: Counter[tuple[Route, Outcome, bool]] = Counter()
        self._durations = {route.webhook: _DurationHistogram() for route in ROUTES.values()}
        self._rule_outcomes: dict[tuple[Route, bool], Counter[tuple[str, str]]]
        self._rule_outcomes = defaultdict(Counter)
        self._namespace_outcomes: Counter[tuple[tuple[str, str], Route, str]] = Counter()
        self._rule_failures: Counter[str] = Counter()
        self._http_errors: Counter[str] = Counter()
        self._rejected_connections: Counter[str] = Counter()
        self._internal_errors = 0

    def add_state(self, read: Callable[[], ServerState]) -> None:
        """Add the gauges; `read` is called at every scrape."""
        self.registry.register(_FunctionCollector(lambda: state_metrics(read())))

    def add_exceptions(self, read: Callable[[], Sequence[PolicyException]]) -> None:
        """Add the gauge of the policy's exceptions; `read` is called at every scrape."""
        self.registry.register(_FunctionCollector(lambda: [exception_metric(read(), time.time())]))

    def count_review(self, route: Route, answer: Answer, seconds: float) -> None:
        """Count one review with its answer and the time that it took."""
        namespace, dry_run = answer.envelope.namespace, answer.envelope.dry_run
        self._requests[route, answer.outcome, dry_run] += 1
        self._durations[route.webhook].observe(seconds)
        by_namespace = not dry_run and namespace in self._namespaces
        rule_outcomes = self._rule_outcomes[route, dry_run]
        for rule_and_outcome in answer.rule_outcomes.items():
            rule_outcomes[rule_and_outcome] += 1
            if by_namespace:
                self._namespace_outcomes[rule_and_outcome, route, namespace] += 1
        for rule, _ in answer.failures:
            self._rule_failures[rule] += 1

    def count_internal_error(self) -> None:
        """Count a request that could not be evaluated because of a bug."""
        self._internal_errors += 1

    def count_http_error(self, reason: str) -> None:
        """Count a request that got an HTTP error; `reason` must not come from a request."""
        self._http_errors[reason] += 1

    def count_rejected_connection(self, reason: str) -> None:
        """Count a connection that was closed before a request; `reason` as above."""
        self._rejected_connections[reason] += 1

    def _collect(self) -> Iterator[Metric]:
        yield counter_metric(
            "requests",
            "Reviews answered, by path, mode and outcome.",
            ("path", "mode", "outcome", "dry_run"),
            {
                (*_label_values(route), outcome, _true_or_false(dry_run)): n
                for (route, outcome, dry_run), n in self._requests.items()
            },
        )
        yield self._duration_histogram()
        values = {
            (*rule_and_outcome, *_label_values(route), _true_or_false(dry_run)): n
            for (route, dry_run), counts in self._rule_outcomes.items()
            for rule_and_outcome, n in counts.items()
        }
        labels = ("rule", "outcome", "path", "mode")
        yield counter_metric("rule_outcomes", _RULE_OUTCOMES_HELP, (*labels, "dry_run"), values)
        # Not `namespace`: Prometheus gives every sample that label, with the webhook's own.
        values = {
            (*rule_and_outcome, *_label_values(route), namespace): n
            for (rule_and_outcome, route, namespace), n in self._namespace_outcomes.items()
        }
        names = (*labels, "object_namespace")
        yield counter_metric("namespace_rule_outcomes", _NAMESPACE_OUTCOMES_HELP, names, values)
        for name, text, label, counts in (
            ("rule_failures", _RULE_FAILURES_HELP, "rule", self._rule_failures),
            ("http_errors", _HTTP_ERRORS_HELP, "reason", self._http_errors),
            ("rejected_connections", _REJECTED_HELP, "reason", self._rejected_connections),
        ):
            yield counter_metric(name, text, (label,), {(value,): n for value, n in counts.items()})
        yield counter_metric(
            "internal_errors", _INTERNAL_ERRORS_HELP, (), {(): self._internal_errors}
        )

    def _duration_histogram(self) -> Metric:
        text = "Time to decode, evaluate and encode one review."
        family = HistogramMetricFamily("gpuward_request_duration_seconds", text, labels=("path",))
        for path, durations in self._durations.items():
            family.add_metric((path,), durations.buckets(), durations.sum)
        return family


class _FunctionCollector(Collector):
    """Collects the metrics of one scrape from a function."""

    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterable[Metric]:
        """The metrics at this moment."""
        return self._collect()

    def describe(self) -> Iterable[Metric]:
        """Nothing: the metrics depend on what has happened so far."""
        return ()


def _true_or_false(flag: bool) -> str:  # noqa: FBT001
    return "true" if flag else "false"


def _label_values(route: Route) -> tuple[str, str]:
    return route.webhook, route.mode.word


def build_info() -> Mapping[str, str]:
    """The versions of gpuward and of Python; gpuward's is empty if it is not installed."""
    return {"version": installed_version(), "python": platform.python_version()}

"""The metrics.

No label takes its value from a request; labels are paths, modes, outcomes, rules, reasons and the
namespaces that the administrator lists. One thread counts everything in plain dictionaries, which a
scrape converts to Prometheus' format: the counters of the client library, with their locks, take
ten times as long for each request.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from registration.routes import ROUTES, Route
from rules.policy_exception import PolicyException
from webhook.admission.answer import Answer
from webhook.admission.decision import Outcome
from webhook.telemetry.exceptions import exception_metric
from webhook.telemetry.server_state import ServerState, counter, state_metrics

BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.0)

_RULE_OUTCOMES_HELP = "Objects in which a rule found something, by the strongest outcome."
_NAMESPACE_OUTCOMES_HELP = "The same in listed namespaces, without dry runs."
_RULE_FAILURES_HELP = "Rules that failed on an object: bugs in gpuward."
_HTTP_ERRORS_HELP = "Requests that got an HTTP error and no decision, by reason."
_REJECTED_HELP = "Connections that were closed before a request, by reason."
_INTERNAL_ERRORS_HELP = "Requests that a bug in gpuward left without an evaluation."


class _Durations:
    """A histogram of durations."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count one request that took `seconds`."""
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.sum += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Each upper bound with the number of requests within it."""
        bounds = [*(str(bound) for bound in BUCKETS), "+Inf"]
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
        self._durations = {route.webhook: _Durations() for route in ROUTES.values()}
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
        yield counter(
            "requests",
            "Reviews answered, by path, mode and outcome.",
            ("path", "mode", "outcome", "dry_run"),
            {
                (*_label_values(route), outcome, _word(dry_run)): n
                for (route, outcome, dry_run), n in self._requests.items()
            },
        )
        yield self._duration_histogram()
        values = {
            (*rule_and_outcome, *_label_values(route), _word(dry_run)): n
            for (route, dry_run), counts in self._rule_outcomes.items()
            for rule_and_outcome, n in counts.items()
        }
        labels = ("rule", "outcome", "path", "mode")
        yield counter("rule_outcomes", _RULE_OUTCOMES_HELP, (*labels, "dry_run"), values)
        # Not `namespace`: Prometheus gives every sample that label, with the webhook's own.
        values = {
            (*rule_and_outcome, *_label_values(route), namespace): n
            for (rule_and_outcome, route, namespace), n in self._namespace_outcomes.items()
        }
        names = (*labels, "object_namespace")
        yield counter("namespace_rule_outcomes", _NAMESPACE_OUTCOMES_HELP, names, values)
        for name, text, label, counts in (
            ("rule_failures", _RULE_FAILURES_HELP, "rule", self._rule_failures),
            ("http_errors", _HTTP_ERRORS_HELP, "reason", self._http_errors),
            ("rejected_connections", _REJECTED_HELP, "reason", self._rejected_connections),
        ):
            yield counter(name, text, (label,), {(value,): n for value, n in counts.items()})
        yield counter("internal_errors", _INTERNAL_ERRORS_HELP, (), {(): self._internal_errors})

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


def _word(flag: bool) -> str:  # noqa: FBT001
    return "true" if flag else "false"


def _label_values(route: Route) -> tuple[str, str]:
    return route.webhook, route.mode.word

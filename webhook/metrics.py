"""The metrics. No label takes its value from a request: doors, modes, outcomes, rules, reasons.

Everything is counted on one thread, so plain dictionaries do, and are put into Prometheus'
form when somebody asks: the library's own counters, with their locks, cost a call ten times
as much.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from webhook.answer import Answer, Outcome
from webhook.routes import ROUTES, Route
from webhook.state import State, counter, gauges

BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.0)

_VERDICTS = "Objects about which a rule had something to say, by the strongest that came of it."
_FAILED = "Rules that failed on an object: faults of gpuward."
_REFUSED = "Calls that got an HTTP error and no decision, by reason."
_TURNED_AWAY = "Connections that were closed before a request, by reason."
_FAULTS = "Calls that a fault of gpuward left unjudged."


class _Durations:
    """How many calls took how long."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        """One call took so long."""
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.sum += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Upper bounds with how many calls stayed within them."""
        bounds = [*(str(bound) for bound in BUCKETS), "+Inf"]
        return [(bound, sum(self.counts[: i + 1])) for i, bound in enumerate(bounds)]


class Metrics:
    """Everything that is counted, in a registry of its own. For one thread."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self.registry.register(_Collected(self._collect))
        self._requests: Counter[tuple[Route, Outcome]] = Counter()
        self._durations = {route.door: _Durations() for route in ROUTES.values()}
        self._verdicts: Counter[tuple[tuple[str, str], Route]] = Counter()
        self._failed: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._turned_away: Counter[str] = Counter()
        self._faults = 0

    def watch(self, read: Callable[[], State]) -> None:
        """Report at every scrape what `read` says."""
        self.registry.register(_Collected(lambda: gauges(read())))

    def answered(self, route: Route, answer: Answer, seconds: float) -> None:
        """One review was answered, in so many seconds."""
        self._requests[route, answer.outcome] += 1
        self._durations[route.door].observe(seconds)
        for verdict in answer.verdicts.items():
            self._verdicts[verdict, route] += 1
        for failure in answer.failures:
            self._failed[failure.rule] += 1

    def fault(self) -> None:
        """A call could not be judged for a bug of ours."""
        self._faults += 1

    def refused(self, reason: str) -> None:
        """A call got an HTTP error; `reason` is one of our own words."""
        self._refused[reason] += 1

    def turned_away(self, reason: str) -> None:
        """A connection was closed before a request; `reason` is one of our own words."""
        self._turned_away[reason] += 1

    def _collect(self) -> Iterator[Metric]:
        yield counter(
            "requests",
            "Reviews answered, by path, mode and what came of them.",
            ("path", "mode", "outcome"),
            {(*_words(route), outcome): n for (route, outcome), n in self._requests.items()},
        )
        yield self._taken()
        values = {(*verdict, *_words(route)): n for (verdict, route), n in self._verdicts.items()}
        yield counter("verdicts", _VERDICTS, ("rule", "verdict", "path", "mode"), values)
        for name, text, label, words in (
            ("rule_failures", _FAILED, "rule", self._failed),
            ("refused_calls", _REFUSED, "reason", self._refused),
            ("refused_connections", _TURNED_AWAY, "reason", self._turned_away),
        ):
            yield counter(name, text, (label,), {(word,): n for word, n in words.items()})
        yield counter("faults", _FAULTS, (), {(): self._faults})

    def _taken(self) -> Metric:
        text = "Time to decode, judge and encode one review."
        family = HistogramMetricFamily("gpuward_request_duration_seconds", text, labels=("path",))
        for door, durations in self._durations.items():
            family.add_metric((door,), durations.buckets(), durations.sum)
        return family


class _Collected(Collector):
    """Asks a function for the metrics of one scrape."""

    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterable[Metric]:
        """The metrics as they are now."""
        return self._collect()

    def describe(self) -> Iterable[Metric]:
        """Nothing: what there is depends on what has happened."""
        return ()


def _words(route: Route) -> tuple[str, str]:
    return route.door, route.mode.word

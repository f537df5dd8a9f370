"""What the server is like at the moment, as metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, cast

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric


def counter(name: str, text: str, labels: tuple[str, ...], values: Mapping[Any, int]) -> Metric:
    """A counter of ours with the values of its labels."""
    family = CounterMetricFamily(f"gpuward_{name}", text, labels=labels)
    for words, value in values.items():
        family.add_metric(words, value)
    return family


_Numbers = tuple[float | None, ...]
_Counts = tuple[int, ...]
_GAUGES = (
    ("policy_valid", "1 if the policy file holds what is in force."),
    ("policy_loaded_timestamp_seconds", "When the policy in force was taken."),
    ("certificate_not_after_timestamp_seconds", "When the certificate expires."),
    ("certificate_expiry_seconds", "Seconds until the certificate expires."),
    ("connections", "Open TLS connections, those in their handshake included."),
    ("waiting_requests", "Requests whose body is still on its way."),
    ("large_body_bytes", "Bytes set aside for large bodies on their way."),
    ("draining", "1 while the server is on its way out."),
)
_COUNTERS = (
    ("policy_loads", "Policies taken since the start."),
    ("policy_refusals", "Changes of the policy file that were refused."),
    ("certificate_reload_failures", "Readings of the certificate that failed."),
)


class State(NamedTuple):
    """What is so at the moment of a scrape; times are Unix times in seconds.

    The fields stand as the metrics do: gauges first, then counters.
    """

    policy_valid: bool
    policy_since: float
    certificate_expiry: float | None
    certificate_seconds: float | None
    connections: int
    waiting: int
    large_bytes: int
    draining: bool
    policy_loads: int
    policy_refusals: int
    certificate_failures: int
    policy_digest: str


def gauges(state: State) -> Iterator[Metric]:
    """The metrics of one scrape."""
    counted = len(_GAUGES)
    for (name, text), value in zip(_GAUGES, cast("_Numbers", state[:counted]), strict=True):
        if value is not None:
            yield GaugeMetricFamily(f"gpuward_{name}", text, value)
    for (name, text), value in zip(_COUNTERS, cast("_Counts", state[counted:-1]), strict=True):
        yield counter(name, text, (), {(): value})
    policy = GaugeMetricFamily("gpuward_policy_info", "The policy in force.", labels=("sha256",))
    policy.add_metric((state.policy_digest or "default",), 1)
    yield policy

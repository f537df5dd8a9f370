"""The gauges: the state of the server at the moment of a scrape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NamedTuple, get_type_hints

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric


def counter(name: str, text: str, labels: tuple[str, ...], values: Mapping[Any, int]) -> Metric:
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


_G, _C = GaugeMetricFamily, CounterMetricFamily


class ServerState(NamedTuple):
    """The state of the server. Times are Unix times in seconds.

    The annotation of a field describes its metric. `policy_digest` and `build` are labels of two.
    """

    policy_valid: Annotated[
        bool, MetricInfo(_G, "policy_valid", "1 if the policy in the file is the active one.")
    ]
    policy_since: Annotated[
        float,
        MetricInfo(_G, "policy_loaded_timestamp_seconds", "When the active policy was loaded."),
    ]
    certificate_expiry: Annotated[
        float | None,
        MetricInfo(_G, "certificate_not_after_timestamp_seconds", "When the certificate expires."),
    ]
    certificate_seconds: Annotated[
        float | None,
        MetricInfo(_G, "certificate_expiry_seconds", "Seconds until the certificate expires."),
    ]
    connections: Annotated[
        int,
        MetricInfo(_G, "connections", "Open TLS connections, including those in their handshake."),
    ]
    waiting: Annotated[
        int, MetricInfo(_G, "waiting_requests", "Requests whose body has not arrived completely.")
    ]
    large_bytes: Annotated[
        int,
        MetricInfo(_G, "large_body_bytes", "Bytes reserved for large bodies that are being read."),
    ]
    large_reviews: Annotated[
        int,
        MetricInfo(_G, "large_reviews", "Large reviews that are being evaluated, or wait for it."),
    ]
    ended_workers: Annotated[
        int,
        MetricInfo(
            _C, "ended_evaluations", "Evaluations that were ended: too slow, or too much memory."
        ),
    ]
    cache_hits: Annotated[
        int, MetricInfo(_C, "decision_cache_hits", "Reviews answered by a kept decision.")
    ]
    cache_misses: Annotated[
        int,
        MetricInfo(_C, "decision_cache_misses", "Reviews whose new decision the cache may keep."),
    ]
    cache_bytes: Annotated[
        int, MetricInfo(_G, "decision_cache_bytes", "Bytes that kept decisions take.")
    ]
    dropped_log_lines: Annotated[
        int, MetricInfo(_C, "dropped_log_lines", "Log lines dropped because nobody read them.")
    ]
    draining: Annotated[
        bool, MetricInfo(_G, "draining", "1 while the server drains before it stops.")
    ]
    policy_loads: Annotated[int, MetricInfo(_C, "policy_loads", "Policies loaded since the start.")]
    policy_failures: Annotated[
        int,
        MetricInfo(_C, "policy_reload_failures", "Changes of the policy file that cannot be used."),
    ]
    gpu_exceptions: Annotated[
        int,
        MetricInfo(_G, "gpu_exceptions", "GpuExceptions that apply, or have ended lately."),
    ]
    gpu_exceptions_valid: Annotated[
        bool,
        MetricInfo(
            _G, "gpu_exceptions_valid", "0 if the file with GpuExceptions is not used, or soon not."
        ),
    ]
    inventory_objects: Annotated[
        int,
        MetricInfo(_G, "inventory_objects", "Other objects of the cluster that rules know."),
    ]
    inventory_valid: Annotated[
        bool,
        MetricInfo(
            _G, "inventory_valid", "0 if the files of the inventory are not used, or soon not."
        ),
    ]
    certificate_failures: Annotated[
        int,
        MetricInfo(
            _C, "certificate_reload_failures", "Attempts to load the certificate that failed."
        ),
    ]
    policy_digest: str
    build: Mapping[str, str]


_METRICS: dict[str, MetricInfo] = {
    field: hint.__metadata__[0]
    for field, hint in get_type_hints(ServerState, include_extras=True).items()
    if hasattr(hint, "__metadata__")
}


def state_metrics(state: ServerState) -> Iterator[Metric]:
    """The metrics of one scrape."""
    for field, (kind, name, text) in _METRICS.items():
        value = getattr(state, field)
        if value is not None:
            yield kind(f"gpuward_{name}", text, value)
    yield _info("policy", "The active policy.", {"sha256": state.policy_digest or "default"})
    yield _info("build", "The versions of gpuward and of Python.", state.build)


def _info(name: str, text: str, facts: Mapping[str, str]) -> Metric:
    """A gauge that is always 1 and has `facts` as labels."""
    family = GaugeMetricFamily(f"gpuward_{name}_info", text, labels=tuple(facts))
    family.add_metric(tuple(facts.values()), 1)
    return family

"""What the server is like at the moment, as metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NamedTuple, get_type_hints

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric


def counter(name: str, text: str, labels: tuple[str, ...], values: Mapping[Any, int]) -> Metric:
    """A counter of ours with the values of its labels."""
    family = CounterMetricFamily(f"gpuward_{name}", text, labels=labels)
    for words, value in values.items():
        family.add_metric(words, value)
    return family


class Shown(NamedTuple):
    """How a field of the state is shown: as what, under which name (after `gpuward_`), and why."""

    kind: type[GaugeMetricFamily | CounterMetricFamily]
    name: str
    text: str


_G, _C = GaugeMetricFamily, CounterMetricFamily


class State(NamedTuple):
    """What is so at the moment of a scrape; times are Unix times in seconds.

    Each field carries its metric; the digest is a label of one.
    """

    policy_valid: Annotated[
        bool, Shown(_G, "policy_valid", "1 if the policy file holds what is in force.")
    ]
    policy_since: Annotated[
        float, Shown(_G, "policy_loaded_timestamp_seconds", "When the policy in force was taken.")
    ]
    certificate_expiry: Annotated[
        float | None,
        Shown(_G, "certificate_not_after_timestamp_seconds", "When the certificate expires."),
    ]
    certificate_seconds: Annotated[
        float | None,
        Shown(_G, "certificate_expiry_seconds", "Seconds until the certificate expires."),
    ]
    connections: Annotated[
        int, Shown(_G, "connections", "Open TLS connections, those in their handshake included.")
    ]
    waiting: Annotated[
        int, Shown(_G, "waiting_requests", "Requests whose body is still on its way.")
    ]
    large_bytes: Annotated[
        int, Shown(_G, "large_body_bytes", "Bytes set aside for large bodies on their way.")
    ]
    draining: Annotated[bool, Shown(_G, "draining", "1 while the server is on its way out.")]
    policy_loads: Annotated[int, Shown(_C, "policy_loads", "Policies taken since the start.")]
    policy_refusals: Annotated[
        int, Shown(_C, "policy_refusals", "Changes of the policy file that were refused.")
    ]
    certificate_failures: Annotated[
        int, Shown(_C, "certificate_reload_failures", "Readings of the certificate that failed.")
    ]
    policy_digest: str


_SHOWN: dict[str, Shown] = {
    field: hint.__metadata__[0]
    for field, hint in get_type_hints(State, include_extras=True).items()
    if hasattr(hint, "__metadata__")
}


def gauges(state: State) -> Iterator[Metric]:
    """The metrics of one scrape."""
    for field, (kind, name, text) in _SHOWN.items():
        value = getattr(state, field)
        if value is not None:
            yield kind(f"gpuward_{name}", text, value)
    policy = GaugeMetricFamily("gpuward_policy_info", "The policy in force.", labels=("sha256",))
    policy.add_metric((state.policy_digest or "default",), 1)
    yield policy

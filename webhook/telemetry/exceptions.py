"""The metric of the policy's exceptions: how long each of them still holds."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from prometheus_client.core import GaugeMetricFamily

from rules.policy_exception import PolicyException

MAX_EXCEPTIONS = 200
"""Of more exceptions with an end, only those that end first have a metric."""
_MAX_LABEL_LENGTH = 128
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
        (_end(exception.expires) - now, number, exception)
        for number, exception in enumerate(exceptions, 1)
        if exception.expires is not None
    ]
    for seconds, number, exception in sorted(ending, key=lambda row: row[:2])[:MAX_EXCEPTIONS]:
        texts = (", ".join(exception.rules), ", ".join(exception.namespaces), exception.reason)
        family.add_metric((str(number), *(text[:_MAX_LABEL_LENGTH] for text in texts)), seconds)
    return family


def _end(last_day: datetime.date) -> float:
    """The Unix time at which `last_day` is over, in UTC."""
    begin = datetime.datetime.combine(last_day, datetime.time(), tzinfo=datetime.UTC)
    return begin.timestamp() + 86400.0

"""What a panel of the dashboard is, and what its questions are made of."""

from __future__ import annotations

from typing import NamedTuple

OURS = 'namespace=~"$namespace", job=~"$job"'
ENTRIES = 'name=~".+[.]gpuward[.]io"'
RATE = "$__rate_interval"
RANGE = "$__range"


class Panel(NamedTuple):
    """A panel; `queries` are expressions by their legend, `width` is out of 24.

    `worst` is from where on a single figure is shown in red; negative, below its absolute.
    """

    title: str
    description: str
    unit: str
    queries: dict[str, str]
    kind: str = "timeseries"
    width: int = 8
    worst: float | None = None


def counted(metric: str, by: str, matchers: str = OURS, over: str = "1h") -> str:
    """How many events there were, also if it was the first one ever.

    A counter with labels appears with its first event, so that increase() sees no rise: what
    was not there at the beginning counts with its value.
    """
    series = f"{metric}{{{matchers}}}"
    old = f"increase({series}[{over}]) and {series} offset {over}"
    return f"sum by ({by}) (({old}) or last_over_time({series}[{over}]))"


def rule_outcomes(matchers: str, by: str = "rule", over: str = "1h") -> str:
    """About how many objects rules said that."""
    return counted("gpuward_rule_outcomes_total", by, f"{OURS}, {matchers}", over)


def rate(metric: str, by: str, matchers: str = OURS) -> str:
    """How many a second."""
    return f"sum by ({by}) (rate({metric}{{{matchers}}}[{RATE}]))"


def quantile(share: str, metric: str, by: str, matchers: str) -> str:
    """What this share of the observations stays below."""
    return f"histogram_quantile({share}, {rate(f'{metric}_bucket', f'{by}, le', matchers)})"

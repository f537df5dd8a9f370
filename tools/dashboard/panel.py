"""The type of a panel of the dashboard, and the parts of its PromQL queries."""

from __future__ import annotations

from typing import NamedTuple

OURS = 'namespace=~"$namespace", job=~"$job"'
ENTRIES = 'name=~".+[.]gpuward[.]io"'
RATE = "$__rate_interval"
RANGE = "$__range"


class Panel(NamedTuple):
    """A panel of the dashboard.

    `unit` is one of Grafana's units. `queries` are PromQL expressions by their legend. `kind` is
    one of Grafana's panel types. `width` is in Grafana's columns, of which a row has 24.
    `worst` is the threshold at which a single value turns red: values of at least `worst`, or, if
    `worst` is negative, values below its absolute value.
    """

    title: str
    description: str
    unit: str
    queries: dict[str, str]
    kind: str = "timeseries"
    width: int = 8
    worst: float | None = None


def counted(metric: str, by: str, matchers: str = OURS, over: str = "1h") -> str:
    """Return PromQL for the number of events in the time `over`, by the labels `by`.

    A counter with labels appears only with its first event, so increase() does not count that
    event. So a series that did not exist at the start of the time counts with its whole value.
    """
    series = f"{metric}{{{matchers}}}"
    increases = f"increase({series}[{over}]) and {series} offset {over}"
    return f"sum by ({by}) (({increases}) or last_over_time({series}[{over}]))"


def rule_outcomes(matchers: str, by: str = "rule", over: str = "1h") -> str:
    """Return PromQL for the number of rule outcomes that `matchers` select, without dry runs."""
    selected = f'{OURS}, {matchers}, dry_run="false"'
    return counted("gpuward_rule_outcomes_total", by, selected, over)


def rate(metric: str, by: str, matchers: str = OURS) -> str:
    """Return PromQL for the number of events per second."""
    return f"sum by ({by}) (rate({metric}{{{matchers}}}[{RATE}]))"


def quantile(share: str, metric: str, by: str, matchers: str) -> str:
    """Return PromQL for the value that `share` (0 to 1) of the observations stay below."""
    return f"histogram_quantile({share}, {rate(f'{metric}_bucket', f'{by}, le', matchers)})"

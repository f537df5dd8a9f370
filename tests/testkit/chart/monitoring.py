"""Read the alerts and the dashboard of the chart, and run promtool on them."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.testkit.chart.rendering import WITHOUT_COLLECTION, Manifest, find_one, render
from tests.testkit.control_plane.build import Programs
from tests.testkit.paths import DOCS

ENABLED = {"enabled": True}
ALL_ENABLED = {"serviceMonitor": ENABLED, "prometheusRule": ENABLED, "dashboard": ENABLED}
# Variables of Grafana, with a value that Grafana could fill in.
GRAFANA_VARIABLES = {"$__range": "1d", "$__rate_interval": "5m", "$namespace": ".*", "$job": ".*"}
_NOT_METRICS = re.compile(r'"[^"]*"|\{[^}]*\}|\[[^]]*\]|\b(?:by|on)\s*\([^)]*\)|\b[\d.]+[smhd]?\b')
_WORD = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_PROMQL_WORDS = {
    *("and", "or", "unless", "offset", "absent", "count", "histogram_quantile", "increase"),
    *("last_over_time", "max", "min", "rate", "sum", "time", "vector"),
}


def render_monitoring(monitoring: Any = ALL_ENABLED, **values: Any) -> list[Manifest]:
    """Render the chart with values below `monitoring`, and others."""
    return render(json.dumps({"monitoring": monitoring, **values}))


def alerts(**values: Any) -> dict[str, Manifest]:
    """The alerts by their names; `values` are further values of the chart."""
    rule = find_one(render_monitoring(**values), "PrometheusRule")
    (group,) = rule["spec"]["groups"]
    return {alert["alert"]: alert for alert in group["rules"]}


def dashboard() -> Any:
    """The dashboard as Grafana loads it."""
    (text,) = find_one(render_monitoring(), "ConfigMap", "gpuward-dashboard")["data"].values()
    return json.loads(text)


def panels() -> list[Any]:
    """The panels of the dashboard, without the rows between them."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def dashboard_queries() -> dict[str, str]:
    """Every query of the dashboard, by the panel's title and the legend."""
    return {
        f"{panel['title']}: {target['legendFormat']}": _fill_variables(target["expr"])
        for panel in panels()
        for target in panel["targets"]
    }


def metrics_in(expression: str) -> set[str]:
    """The metrics that an expression queries."""
    return set(_WORD.findall(_NOT_METRICS.sub(" ", expression))) - _PROMQL_WORDS


def labels_in(expression: str) -> set[str]:
    """The labels that an expression selects or groups by."""
    grouped = re.findall(r"\b(?:by|on|without)\s*\(([^)]*)\)", expression)
    selected = re.findall(r'(\w+)\s*(?:=~|!~|!=|=)\s*"', expression)
    return {label for group in grouped for label in _WORD.findall(group)} | set(selected)


def documented_labels() -> dict[str, set[str]]:
    """The labels of each metric of gpuward in the tables of the manual."""
    found: dict[str, set[str]] = {}
    for page in ("webhook-server.md", "audit.md"):
        for line in (DOCS / page).read_text(encoding="utf-8").splitlines():
            if line.startswith("| `gpuward_"):
                _, names, labels, *_ = line.split("|")
                found |= {name: set(_WORD.findall(labels)) for name in _WORD.findall(names)}
    return found


def rules_file(folder: Path, rules: list[Any]) -> Path:
    """A file of rules as Prometheus reads it."""
    file = folder / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "gpuward", "rules": rules}]}))
    return file


def run_promtool(tools: Programs, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run promtool."""
    command = [str(tools["promtool"]), *map(str, arguments)]
    environment = {**os.environ, **WITHOUT_COLLECTION}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


def _fill_variables(expression: str) -> str:
    for word, value in GRAFANA_VARIABLES.items():
        expression = expression.replace(word, value)
    return expression

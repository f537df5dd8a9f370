"""What the chart makes for Prometheus and Grafana, and Prometheus' own judgement of it."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.testkit.chart.rendering import Manifest, rendered, the
from tests.testkit.control_plane.build import Programs

ON = {"enabled": True}
EVERYTHING = {"serviceMonitor": ON, "prometheusRule": ON, "dashboard": ON}
# Grafana's own words, as it would fill them in.
GRAFANA = {"$__range": "1d", "$__rate_interval": "5m", "$namespace": ".*", "$job": ".*"}
_SURROUNDINGS = re.compile(r'"[^"]*"|\{[^}]*\}|\[[^]]*\]|\b(?:by|on)\s*\([^)]*\)|\b[\d.]+[smhd]?\b')
_WORDS = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_LANGUAGE = {
    *("and", "or", "unless", "offset", "absent", "count", "histogram_quantile", "increase"),
    *("last_over_time", "max", "min", "rate", "sum", "time", "vector"),
}


def with_monitoring(monitoring: Any = EVERYTHING, **values: Any) -> list[Manifest]:
    """The chart with these values below `monitoring`, and others."""
    return rendered(json.dumps({"monitoring": monitoring, **values}))


def alerts(**values: Any) -> dict[str, Manifest]:
    """The alerts by their names; `values` are further ones of the chart."""
    rule = the(with_monitoring(**values), "PrometheusRule")
    (group,) = rule["spec"]["groups"]
    return {alert["alert"]: alert for alert in group["rules"]}


def dashboard() -> Any:
    """The dashboard as Grafana gets it."""
    (text,) = the(with_monitoring(), "ConfigMap", "gpuward-dashboard")["data"].values()
    return json.loads(text)


def panels() -> list[Any]:
    """Its panels, without the rows between them."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def questions() -> dict[str, str]:
    """Every expression of the dashboard, by the panel's title and the legend."""
    return {
        f"{panel['title']}: {target['legendFormat']}": _filled(target["expr"])
        for panel in panels()
        for target in panel["targets"]
    }


def metrics_in(expression: str) -> set[str]:
    """The metrics that an expression asks for."""
    return set(_WORDS.findall(_SURROUNDINGS.sub(" ", expression))) - _LANGUAGE


def rules_file(folder: Path, rules: list[Any]) -> Path:
    """A file of rules as Prometheus reads it."""
    file = folder / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "gpuward", "rules": rules}]}))
    return file


def promtool(tools: Programs, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run promtool."""
    command = [str(tools["promtool"]), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def _filled(expression: str) -> str:
    for word, value in GRAFANA.items():
        expression = expression.replace(word, value)
    return expression

"""Write the chart's Grafana dashboard: `python -m tools.dashboard`.

With `--check`, only report whether the file is stale.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

from tools.dashboard.audit import AUDIT
from tools.dashboard.calls import API_SERVERS, REQUESTS
from tools.dashboard.decisions import DECISIONS, TO_DENY
from tools.dashboard.panel import Panel
from tools.dashboard.parts import CERTIFICATES, PODS, POLICY
from tools.generated_file import ROOT, write_or_compare

FILE = ROOT / "charts" / "gpuward" / "files" / "dashboard.json"
SECTIONS = {
    "Before mode deny": TO_DENY,
    "Decisions": DECISIONS,
    "Audit (as a Deployment)": AUDIT,
    "API servers (if they are scraped)": API_SERVERS,
    "Requests": REQUESTS,
    "Certificates": CERTIFICATES,
    "Policy": POLICY,
    "Pods": PODS,
}
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH, HEIGHT = 24, 8
# The version of Grafana's dashboard format. Grafana migrates dashboards of older versions.
SCHEMA = 42


def main(arguments: list[str]) -> int:
    """Write the file, or compare it if `arguments` is `["--check"]`.

    Returns the exit status: 1 if the file is stale.
    """
    text = json.dumps(dashboard(), indent=1, ensure_ascii=False) + "\n"
    return write_or_compare(FILE, text, arguments)


def dashboard() -> dict[str, Any]:
    """Return the dashboard as the JSON object that Grafana imports."""
    return {
        "uid": "gpuward",
        "title": "gpuward",
        "description": "The decisions of gpuward, and the state of its pods.",
        "tags": ["gpuward", "kubernetes", "gpu"],
        "schemaVersion": SCHEMA,
        "editable": True,
        "graphTooltip": 1,
        "time": {"from": "now-24h", "to": "now"},
        "refresh": "1m",
        "timezone": "",
        "links": [_link("The manual", "docs/monitoring.md"), _link("The rules", "docs/rules")],
        "annotations": {"list": []},
        "templating": {"list": list(_variables())},
        "panels": [{"id": number, **panel} for number, panel in enumerate(_panels(), 1)],
    }


def _link(title: str, path: str) -> dict[str, Any]:
    url = f"https://github.com/gpuward/gpuward/blob/main/{path}"
    return {"title": title, "type": "link", "url": url, "targetBlank": True}


def _variables() -> Iterator[dict[str, Any]]:
    yield {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
    }
    series = '{__name__=~"gpuward_policy_valid|gpuward_certs_leader", namespace=~"$namespace"}'
    for name, query in (
        ("namespace", "label_values(gpuward_policy_valid, namespace)"),
        ("job", f"label_values({series}, job)"),
    ):
        yield {
            "name": name,
            "label": name.capitalize(),
            "type": "query",
            "datasource": SOURCE,
            "definition": query,
            "query": {"query": query, "refId": name},
            "refresh": 2,
            "sort": 1,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
        }


def _panels() -> Iterator[dict[str, Any]]:
    """Yield each section as a row, followed by its panels from left to right."""
    top = 0
    for title, panels in SECTIONS.items():
        position = {"h": 1, "w": WIDTH, "x": 0, "y": top}
        yield {"type": "row", "title": title, "collapsed": False, "panels": [], "gridPos": position}
        top, left = top + 1, 0
        for panel in panels:
            if left + panel.width > WIDTH:
                top, left = top + HEIGHT, 0
            yield _panel_json(panel, {"h": HEIGHT, "w": panel.width, "x": left, "y": top})
            left += panel.width
        top += HEIGHT


def _panel_json(panel: Panel, position: dict[str, int]) -> dict[str, Any]:
    """Return a panel in Grafana's format."""
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": SOURCE,
        "gridPos": position,
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _options(panel.kind),
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": SOURCE,
                "editorMode": "code",
                "expr": expression,
                "legendFormat": legend,
                # A panel that is not a time series shows one value of the whole time range.
                "instant": panel.kind != "timeseries",
                "range": panel.kind == "timeseries",
            }
            for number, (legend, expression) in enumerate(panel.queries.items())
        ],
    }


def _defaults(panel: Panel) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0, "noValue": "none"}
    if panel.kind == "timeseries":
        defaults["custom"] = {"lineWidth": 1, "fillOpacity": 10, "showPoints": "never"}
    if panel.worst is not None:
        defaults |= {"color": {"mode": "thresholds"}, "thresholds": _thresholds(panel.worst)}
    return defaults


def _thresholds(worst: float) -> dict[str, Any]:
    is_minimum = worst < 0
    steps = [
        {"color": "red" if is_minimum else "green", "value": None},
        {"color": "green" if is_minimum else "red", "value": abs(worst)},
    ]
    return {"mode": "absolute", "steps": steps}


def _options(kind: str) -> dict[str, Any]:
    if kind == "timeseries":
        legend = {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull", "max"]}
        return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}
    options: dict[str, Any] = {"reduceOptions": {"calcs": ["lastNotNull"], "values": False}}
    if kind == "bargauge":
        return options | {"orientation": "horizontal", "displayMode": "basic"}
    return options | {"colorMode": "value", "graphMode": "none"}


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

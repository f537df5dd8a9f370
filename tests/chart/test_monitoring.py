"""What the chart makes for Prometheus and Grafana: whom it concerns, and that it can be read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.testkit.chart.monitoring import (
    ON,
    alerts,
    dashboard,
    metrics_in,
    panels,
    promtool,
    questions,
    rules_file,
    with_monitoring,
)
from tests.testkit.chart.rendering import NAMESPACE, of_kind, refusal, rendered, the
from tests.testkit.control_plane.build import Programs
from tests.testkit.paths import ROOT
from tools.dashboard.__main__ import main as make_dashboard

KINDS = ("ServiceMonitor", "PrometheusRule")
MANUAL = ROOT / "docs" / "monitoring.md"
BY_KIND = [
    ("serviceMonitor", "ServiceMonitor", "gpuward"),
    ("prometheusRule", "PrometheusRule", "gpuward"),
    ("dashboard", "ConfigMap", "gpuward-dashboard"),
]


def test_nothing_of_it_is_made_unasked() -> None:
    plain = rendered()
    assert not [made for made in plain if made["kind"] in KINDS]
    assert not of_kind(plain, "ConfigMap", "gpuward-dashboard")


@pytest.mark.parametrize(("key", "kind", "name"), BY_KIND)
def test_each_is_made_alone_where_and_as_it_is_asked_for(key: str, kind: str, name: str) -> None:
    wanted = {"labels": {"release": "kps"}, "annotations": {"a/b": "c"}, "namespace": "monitoring"}
    made = with_monitoring({key: ON | wanted})
    found = the(made, kind, name)
    assert found["metadata"]["namespace"] == "monitoring"
    assert found["metadata"]["labels"]["release"] == "kps"
    assert found["metadata"]["labels"]["app.kubernetes.io/instance"] == "gpuward"
    assert found["metadata"]["annotations"] == {"a/b": "c"}
    assert len(made) == len(rendered()) + 1
    elsewhere = the(with_monitoring({key: ON}), kind, name)
    assert elsewhere["metadata"]["namespace"] == NAMESPACE


@pytest.mark.parametrize("mode", ["self", "certManager"])
def test_prometheus_is_led_to_every_port_with_metrics_and_to_no_other(mode: str) -> None:
    made = with_monitoring(certificates={"mode": mode})
    spec = the(made, "ServiceMonitor")["spec"]
    assert spec["namespaceSelector"] == {"matchNames": [NAMESPACE]}
    wanted = spec["selector"]["matchLabels"].items()
    services = [s for s in of_kind(made, "Service") if wanted <= s["metadata"]["labels"].items()]
    (endpoint,) = spec["endpoints"]
    led_to = {}
    for service in services:
        (port,) = [p for p in service["spec"]["ports"] if p["name"] == endpoint["port"]]
        led_to[service["metadata"]["name"]] = port["port"]
    certs = {"gpuward-certs": 8081} if mode == "self" else {}
    assert led_to == {"gpuward-replicas": 8080} | certs


def test_how_is_scraped_is_the_users_choice() -> None:
    relabeling = {"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"}
    dropped = {"sourceLabels": ["__name__"], "regex": "python_.*", "action": "drop"}
    choices = {
        "interval": "15s",
        "scrapeTimeout": "5s",
        "relabelings": [relabeling],
        "metricRelabelings": [dropped],
    }
    spec = the(with_monitoring({"serviceMonitor": ON | choices}), "ServiceMonitor")["spec"]
    (endpoint,) = spec["endpoints"]
    assert endpoint == {"port": "metrics", "path": "/metrics", "scheme": "http"} | choices


def test_alerts_are_left_out_and_labelled_as_asked() -> None:
    choices = {"disabled": ["GpuwardDenialsRise"], "additionalLabels": {"team": "platform"}}
    found = alerts(monitoring={"prometheusRule": ON | choices})
    assert alerts().keys() - found.keys() == {"GpuwardDenialsRise"}
    assert {alert["labels"]["team"] for alert in found.values()} == {"platform"}
    misspelt = '{"monitoring": {"prometheusRule": {"enabled": true, "disabled": ["GpuwardDwon"]}}}'
    assert 'there is no alert "GpuwardDwon"; there are GpuwardDown' in refusal(misspelt)


def test_alerts_about_the_certificate_controller_need_one() -> None:
    given = {"mode": "certManager"}
    gone = alerts().keys() - alerts(certificates=given).keys()
    assert gone == {name for name, a in alerts().items() if "gpuward_certs_" in a["expr"]}
    assert len(gone) == 5


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"certificates": {"mode": "certManager"}},
        {"certificates": {"mode": "existingSecret", "existingSecret": {"name": "own"}}},
        {"registration": {"failurePolicy": "Fail", "timeoutSeconds": 30}, "mode": "deny"},
    ],
    ids=["default", "cert-manager", "existing-secret", "fail"],
)
def test_alerts_can_be_read_by_prometheus(
    chart_tools: Programs, tmp_path: Path, values: dict[str, Any]
) -> None:
    if values.get("certificates", {}).get("mode") == "existingSecret":
        values["certificates"]["caBundle"] = "-----BEGIN CERTIFICATE-----\n"
    found = alerts(**values)
    file = rules_file(tmp_path, list(found.values()))
    done = promtool(chart_tools, "check", "rules", "--lint=all", "--lint-fatal", file)
    assert f"SUCCESS: {len(found)} rules found" in done.stdout, done.stdout + done.stderr
    # What stands for a value has been replaced by it.
    assert not re.findall(r"\$[A-Z_]+", str(found))


def test_how_bad_it_is_follows_from_what_happens_without_gpuward() -> None:
    severity = {
        (policy, mode): alerts(registration={"failurePolicy": policy}, mode=mode)["GpuwardDown"]
        for policy, mode in (("Ignore", "warn"), ("Ignore", "deny"), ("Fail", "warn"))
    }
    assert [a["labels"]["severity"] for a in severity.values()] == [
        *("warning", "critical", "critical")
    ]
    assert "admitted without evaluation" in severity["Ignore", "deny"]["annotations"]["description"]
    assert "pods cannot be created" in severity["Fail", "warn"]["annotations"]["description"]


def test_every_alert_says_what_to_do_and_has_its_section_in_the_manual() -> None:
    sections = re.findall(r"^### (Gpuward\w+)$", MANUAL.read_text(encoding="utf-8"), re.MULTILINE)
    found = alerts()
    assert sections == list(found)
    for name, alert in found.items():
        notes = alert["annotations"]
        assert notes.keys() == {"summary", "description", "runbook_url"}
        assert notes["runbook_url"].endswith(f"/docs/monitoring.md#{name.lower()}")
        assert alert["labels"]["severity"] in {"warning", "critical"}
        assert alert["labels"]["namespace"] == NAMESPACE
        assert len(notes["description"].split()) >= 20


def test_the_dashboard_is_fresh() -> None:
    assert make_dashboard(["--check"]) == 0, "run make docs"


def test_every_panel_says_what_it_shows() -> None:
    for panel in panels():
        assert panel["title"]
        assert len(panel["description"].split()) >= 3
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["targets"]
        assert panel["datasource"]["uid"] == "${datasource}"


def test_panels_stand_beside_each_other_and_not_on_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        rows = range(place["y"], place["y"] + place["h"])
        columns = range(place["x"], place["x"] + place["w"])
        cells = {(x, y) for x in columns for y in rows}
        assert max(columns) < 24
        assert not cells & taken, panel["title"]
        taken |= cells
    ids = [panel["id"] for panel in dashboard()["panels"]]
    assert len(set(ids)) == len(ids)


def test_the_dashboard_can_be_read_by_prometheus(chart_tools: Programs, tmp_path: Path) -> None:
    # The manual asks, too.
    asked = re.findall(r"```text\n(.*?)```", MANUAL.read_text(encoding="utf-8"), re.DOTALL)
    assert len(asked) == 1
    rules = [
        {"record": f"panel:query:{number}", "expr": expression}
        for number, expression in enumerate([*questions().values(), *asked])
    ]
    done = promtool(chart_tools, "check", "rules", rules_file(tmp_path, rules))
    assert f"SUCCESS: {len(rules)} rules found" in done.stdout, done.stdout + done.stderr
    assert not [expression for expression in questions().values() if "$" in expression]


def test_the_manual_asks_for_metrics_that_dashboard_and_alerts_know() -> None:
    known = {m for e in questions().values() for m in metrics_in(e)}
    known |= {m for alert in alerts().values() for m in metrics_in(alert["expr"])}
    text = MANUAL.read_text(encoding="utf-8")
    named = set(re.findall(r"\b(?:gpuward|apiserver|process)_\w+[a-z]\b", text))
    assert named
    assert named <= known

"""The chart's objects for Prometheus and Grafana: when they exist, and that they are valid."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.testkit.chart.monitoring import (
    ENABLED,
    alerts,
    dashboard,
    dashboard_queries,
    documented_labels,
    labels_in,
    metrics_in,
    panels,
    render_monitoring,
    rules_file,
    run_promtool,
)
from tests.testkit.chart.rendering import NAMESPACE, find_one, of_kind, render, render_error
from tests.testkit.control_plane.build import Programs
from tests.testkit.paths import ROOT

KINDS = ("ServiceMonitor", "PrometheusRule")
MANUAL = ROOT / "docs" / "monitoring.md"
# Prometheus gives every sample these.
TARGET_LABELS = ("namespace", "pod", "job", "instance")
# tests/chart/test_monitoring_live.py reads them at a real API server.
API_SERVER_LABELS = {"name", "kind", "error_type"}
OTHER_LABELS = {"gpuward_registration_as_expected": {"kind", "name"}}
BY_KIND = [
    ("serviceMonitor", "ServiceMonitor", "gpuward"),
    ("prometheusRule", "PrometheusRule", "gpuward"),
    ("dashboard", "ConfigMap", "gpuward-dashboard"),
]


def test_no_monitoring_object_is_created_by_default() -> None:
    plain = render()
    assert not [made for made in plain if made["kind"] in KINDS]
    assert not of_kind(plain, "ConfigMap", "gpuward-dashboard")


@pytest.mark.parametrize(("key", "kind", "name"), BY_KIND)
def test_each_object_can_be_created_alone_with_its_namespace_and_labels(
    key: str, kind: str, name: str
) -> None:
    wanted = {"labels": {"release": "kps"}, "annotations": {"a/b": "c"}, "namespace": "monitoring"}
    made = render_monitoring({key: ENABLED | wanted})
    found = find_one(made, kind, name)
    assert found["metadata"]["namespace"] == "monitoring"
    assert found["metadata"]["labels"]["release"] == "kps"
    assert found["metadata"]["labels"]["app.kubernetes.io/instance"] == "gpuward"
    assert found["metadata"]["annotations"] == {"a/b": "c"}
    assert len(made) == len(render()) + 1
    elsewhere = find_one(render_monitoring({key: ENABLED}), kind, name)
    assert elsewhere["metadata"]["namespace"] == NAMESPACE


@pytest.mark.parametrize("mode", ["self", "certManager"])
def test_the_service_monitor_selects_exactly_the_metrics_ports(mode: str) -> None:
    made = render_monitoring(certificates={"mode": mode})
    spec = find_one(made, "ServiceMonitor")["spec"]
    assert spec["namespaceSelector"] == {"matchNames": [NAMESPACE]}
    wanted = spec["selector"]["matchLabels"].items()
    services = [s for s in of_kind(made, "Service") if wanted <= s["metadata"]["labels"].items()]
    (endpoint,) = spec["endpoints"]
    selected_ports = {}
    for service in services:
        (port,) = [p for p in service["spec"]["ports"] if p["name"] == endpoint["port"]]
        selected_ports[service["metadata"]["name"]] = port["port"]
    other = "gpuward-certs" if mode == "self" else "gpuward-watch"
    assert selected_ports == {"gpuward-replicas": 8080, other: 8081}


def test_scrape_settings_come_from_the_values() -> None:
    relabeling = {"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"}
    dropped = {"sourceLabels": ["__name__"], "regex": "python_.*", "action": "drop"}
    choices = {
        "interval": "15s",
        "scrapeTimeout": "5s",
        "relabelings": [relabeling],
        "metricRelabelings": [dropped],
    }
    spec = find_one(render_monitoring({"serviceMonitor": ENABLED | choices}), "ServiceMonitor")[
        "spec"
    ]
    (endpoint,) = spec["endpoints"]
    assert endpoint == {"port": "metrics", "path": "/metrics", "scheme": "http"} | choices


def test_alerts_can_be_disabled_and_labelled() -> None:
    choices = {"disabled": ["GpuwardDenialsRise"], "additionalLabels": {"team": "platform"}}
    found = alerts(monitoring={"prometheusRule": ENABLED | choices})
    assert alerts().keys() - found.keys() == {"GpuwardDenialsRise"}
    assert {alert["labels"]["team"] for alert in found.values()} == {"platform"}
    misspelt = '{"monitoring": {"prometheusRule": {"enabled": true, "disabled": ["GpuwardDwon"]}}}'
    assert 'there is no alert "GpuwardDwon"; there are GpuwardDown' in render_error(misspelt)


def test_alerts_about_the_certificate_controller_exist_only_with_it() -> None:
    given = {"mode": "certManager"}
    gone = alerts().keys() - alerts(certificates=given).keys()
    assert gone == {name for name, a in alerts().items() if "gpuward_certs_" in a["expr"]}
    assert len(gone) == 5


@pytest.mark.parametrize("mode", ["self", "certManager"])
def test_alerts_about_the_registration_exist_only_while_it_is_watched(mode: str) -> None:
    given = {"mode": mode}
    unwatched = alerts(certificates=given, registration={"watch": {"enabled": False}})
    gone = alerts(certificates=given).keys() - unwatched.keys()
    assert gone == {"GpuwardRegistrationChanged", "GpuwardRegistrationUnchecked"}


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
def test_prometheus_accepts_the_alerts(
    chart_tools: Programs, tmp_path: Path, values: dict[str, Any]
) -> None:
    if values.get("certificates", {}).get("mode") == "existingSecret":
        values["certificates"]["caBundle"] = "-----BEGIN CERTIFICATE-----\n"
    found = alerts(**values)
    file = rules_file(tmp_path, list(found.values()))
    done = run_promtool(chart_tools, "check", "rules", "--lint=all", "--lint-fatal", file)
    assert f"SUCCESS: {len(found)} rules found" in done.stdout, done.stdout + done.stderr
    # All placeholders in the alerts have been replaced.
    assert not re.findall(r"\$[A-Z_]+", str(found))


def test_the_severity_follows_from_the_effect_of_an_outage() -> None:
    severity = {
        (policy, mode): alerts(registration={"failurePolicy": policy}, mode=mode)["GpuwardDown"]
        for policy, mode in (("Ignore", "warn"), ("Ignore", "deny"), ("Fail", "warn"))
    }
    assert [a["labels"]["severity"] for a in severity.values()] == [
        *("warning", "critical", "critical")
    ]
    assert "admitted without evaluation" in severity["Ignore", "deny"]["annotations"]["description"]
    assert "pods cannot be created" in severity["Fail", "warn"]["annotations"]["description"]


def test_every_alert_has_a_description_and_a_section_in_the_manual() -> None:
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


def test_every_label_that_is_queried_is_one_of_its_metric() -> None:
    labels_of = documented_labels() | OTHER_LABELS
    for expression in [*dashboard_queries().values(), *(a["expr"] for a in alerts().values())]:
        known = set(TARGET_LABELS)
        for metric in metrics_in(expression):
            family = metric.removesuffix("_bucket")
            known |= labels_of.get(family, set()) | ({"le"} if family != metric else set())
            known |= API_SERVER_LABELS if family.startswith("apiserver_") else set()
        assert labels_in(expression) <= known, expression


def test_every_label_in_a_legend_is_one_that_the_query_keeps() -> None:
    for panel in panels():
        for target in panel["targets"]:
            grouped = re.match(r"\w+ by \(([^)]*)\)", target["expr"])
            kept = grouped[1].split(", ") if grouped else TARGET_LABELS
            if target["expr"].startswith("histogram_quantile"):
                kept = labels_in(target["expr"]) - {"le"}
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= set(kept)


def test_every_panel_has_a_title_and_a_description() -> None:
    for panel in panels():
        assert panel["title"]
        assert len(panel["description"].split()) >= 3
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["targets"]
        assert panel["datasource"]["uid"] == "${datasource}"


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        position = panel["gridPos"]
        rows = range(position["y"], position["y"] + position["h"])
        columns = range(position["x"], position["x"] + position["w"])
        cells = {(x, y) for x in columns for y in rows}
        assert max(columns) < 24
        assert not cells & taken, panel["title"]
        taken |= cells
    ids = [panel["id"] for panel in dashboard()["panels"]]
    assert len(set(ids)) == len(ids)


def test_prometheus_accepts_the_dashboards_queries(chart_tools: Programs, tmp_path: Path) -> None:
    # The manual has queries, too.
    manual_queries = re.findall(r"```text\n(.*?)```", MANUAL.read_text(encoding="utf-8"), re.DOTALL)
    assert len(manual_queries) == 2
    rules = [
        {"record": f"panel:query:{number}", "expr": expression}
        for number, expression in enumerate([*dashboard_queries().values(), *manual_queries])
    ]
    done = run_promtool(chart_tools, "check", "rules", rules_file(tmp_path, rules))
    assert f"SUCCESS: {len(rules)} rules found" in done.stdout, done.stdout + done.stderr
    assert not [expression for expression in dashboard_queries().values() if "$" in expression]


def test_the_manual_names_only_metrics_of_dashboard_and_alerts() -> None:
    known = {m for e in dashboard_queries().values() for m in metrics_in(e)}
    known |= {m for alert in alerts().values() for m in metrics_in(alert["expr"])}
    text = MANUAL.read_text(encoding="utf-8")
    named = set(re.findall(r"\b(?:gpuward|apiserver|process)_\w+[a-z]\b", text))
    assert named
    assert named <= known

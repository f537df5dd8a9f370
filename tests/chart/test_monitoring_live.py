"""The chart's monitoring objects and queries, checked with a real API server and real metrics."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from cluster.audit.service import AuditController, AuditRun
from cluster.control_loop import ControlLoop
from cluster.webhooks.watch import RegistrationWatch
from tests.testkit.admission.registered_webhook import create
from tests.testkit.admission.reviews import container, pod
from tests.testkit.admission.server_process import ENDINGS, Server
from tests.testkit.certs.fake_cluster import FakeTime, MemoryCluster, controller
from tests.testkit.chart.monitoring import (
    ENABLED,
    alerts,
    dashboard_queries,
    metrics_in,
    render_monitoring,
)
from tests.testkit.chart.rendering import Manifest, find_one, of_kind, render
from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually
from tests.testkit.paths import ROOT
from webhook.admission.decision import RULE_OUTCOMES
from webhook.registration import NAME_LABEL

ADMISSION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
UNREACHABLE_URL = "https://127.0.0.1:1/"
# Prometheus' own metric: whether a target could be scraped.
PROMETHEUS_METRICS = {"up"}
PREFIXES = ("gpuward_", "process_", "apiserver_")


def queried_metrics(prefix: str) -> set[str]:
    """The metrics with a prefix that an alert or a panel queries."""
    expressions = [*dashboard_queries().values(), *(alert["expr"] for alert in alerts().values())]
    found = {metric for expression in expressions for metric in metrics_in(expression)}
    assert not {m for m in found if not m.startswith(PREFIXES)} - PROMETHEUS_METRICS
    return {metric for metric in found if metric.startswith(prefix)}


def exposed_metrics(text: str) -> set[str]:
    """The metrics in the text of an endpoint, also those without a sample yet."""
    return {
        family.name + end
        for family in text_string_to_metric_families(text)
        for end in ENDINGS.get(family.type, ("",))
    }


def test_the_webhook_exposes_every_metric_that_is_queried(server: Server) -> None:
    others = {
        m
        for name in ("certs", "registration", "audit")
        for m in queried_metrics(f"gpuward_{name}_")
    }
    wanted = queried_metrics("gpuward_") - others
    assert len(wanted) > 15
    assert wanted | queried_metrics("process_") <= exposed_metrics(server.get("/metrics")[1])


def test_the_webhook_has_every_label_value_that_is_queried() -> None:
    expressions = " ".join(
        [*dashboard_queries().values(), *(alert["expr"] for alert in alerts().values())]
    )
    outcomes = label_values("outcome", expressions)
    assert len(outcomes) > 4
    assert outcomes <= RULE_OUTCOMES
    source = "".join(file.read_text(encoding="utf-8") for file in ROOT.glob("webhook/**/*.py"))
    reasons = label_values("reason", expressions)
    assert len(reasons) > 7
    assert not [reason for reason in reasons if f'"{reason}"' not in source]


def label_values(label: str, expressions: str) -> set[str]:
    """The values of a label that the expressions select."""
    found = re.findall(rf'\b{label}=~?"([^"]+)"', expressions)
    return {value for alternatives in found for value in alternatives.split("|")}


def test_the_certificate_controller_exposes_every_metric_that_is_queried() -> None:
    reconciler = controller(MemoryCluster(), FakeTime(), replicas=lambda: {"10.0.0.1": None})
    reconciler.reconcile()
    reconciler.reconcile()
    assert len(queried_metrics("gpuward_certs_")) == 9
    assert queried_metrics("gpuward_certs_") <= exposed_metrics(reconciler.metrics().decode())


def test_the_watch_exposes_every_metric_that_is_queried() -> None:
    watch = RegistrationWatch(dict, lambda _: None, lambda _: None, settle_seconds=0)
    exposed = exposed_metrics(watch.metrics().decode())
    assert queried_metrics("gpuward_registration_") == exposed
    beside_it = ControlLoop((controller(MemoryCluster(), FakeTime()), watch), seconds=10)
    assert exposed < exposed_metrics(beside_it.metrics().decode())


def test_the_audit_exposes_every_metric_that_is_queried() -> None:
    def audit(_: object) -> AuditRun:
        raise NotImplementedError

    exposed = exposed_metrics(AuditController(audit).metrics().decode())
    assert queried_metrics("gpuward_audit_") < exposed
    manual = (ROOT / "docs" / "audit.md").read_text(encoding="utf-8")
    assert exposed == set(re.findall(r"^\| `(gpuward_audit_\w+)`", manual, re.MULTILINE))


@pytest.fixture
def failing_webhooks(plane: ControlPlane) -> Iterator[str]:
    """A namespace with webhooks named like gpuward's that fail or whose conditions fail."""
    namespace = plane.namespace()
    plane.create(ADMISSION, configuration(namespace))
    yield namespace
    plane.request("DELETE", f"{ADMISSION}/{namespace}")


def configuration(namespace: str) -> Manifest:
    """Webhooks for one namespace, one for each kind of failure."""
    condition = {"name": "decides", "expression": "object.spec.containers[9].name == 'x'"}
    never_matches = {"name": "decides", "expression": "false"}
    variants: dict[str, dict[str, Any]] = {
        "excluded": {"matchConditions": [never_matches]},
        "condition": {"matchConditions": [condition]},
        "open": {},
        "closed": {"failurePolicy": "Fail"},
    }
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods"],
    }
    common = {
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": UNREACHABLE_URL},
        "failurePolicy": "Ignore",
        "namespaceSelector": {"matchLabels": {NAME_LABEL: namespace}},
        "rules": [rule],
        "sideEffects": "None",
    }
    entries = [
        common | {"name": f"{name}.test.gpuward.io"} | more for name, more in variants.items()
    ]
    return {"metadata": {"name": namespace}, "webhooks": entries}


def test_the_api_server_exposes_every_metric_that_is_queried(
    plane: ControlPlane, failing_webhooks: str
) -> None:
    def counted_metrics() -> set[str]:
        create(plane, failing_webhooks, pod(container()), dry_run=True)
        # Not with the Prometheus parser, which appends `_total` to some names.
        return set(re.findall(r"^apiserver_\w+(?=\{)", metrics(plane), re.MULTILINE))

    wanted = queried_metrics("apiserver_")
    assert len(wanted) == 6
    eventually(lambda: wanted <= counted_metrics(), what="every kind of webhook failure is counted")
    for metric, labels in {
        "webhook_fail_open_count": 'name="open',
        "webhook_rejection_count": 'error_type="calling_webhook_error",name="closed',
        "match_condition_evaluation_errors_total": 'kind="webhook",name="condition',
        "match_condition_exclusions_total": 'kind="webhook",name="excluded',
    }.items():
        assert f"\napiserver_admission_{metric}{{{labels}.test.gpuward.io" in metrics(plane)


def metrics(plane: ControlPlane) -> str:
    """The metrics of the API server, as Prometheus would read them."""
    return str(plane.request("GET", "/metrics").body)


def test_the_values_of_the_manual_are_accepted(chart_kinds: Cluster) -> None:
    manual = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
    (values,) = re.findall(r"```yaml\n(.*?)```", manual, re.DOTALL)
    made = render(values)
    parts = [find_one(made, "ServiceMonitor"), find_one(made, "PrometheusRule")]
    assert {o["metadata"]["labels"]["release"] for o in parts} == {"kube-prometheus-stack"}
    parts += [*of_kind(made, "NetworkPolicy"), find_one(made, "ConfigMap", "gpuward-dashboard")]
    assert dry_run(chart_kinds, parts).count("created (server dry run)") == len(parts)
    # The network policies let Prometheus reach the ports that the ServiceMonitor selects.
    ingress_rules = [rule for o in parts for rule in o.get("spec", {}).get("ingress", [])]
    ports = {p["port"] for r in ingress_rules if "monitoring" in str(r) for p in r["ports"]}
    assert ports == {8080, 8081}


@pytest.mark.parametrize("mode", ["self", "certManager"])
def test_the_api_server_accepts_the_objects(chart_kinds: Cluster, mode: str) -> None:
    relabeling = {"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"}
    scraped = {"scrapeTimeout": "5s", "relabelings": [relabeling]}
    monitor = ENABLED | scraped | {"metricRelabelings": [relabeling | {"action": "replace"}]}
    values = {"serviceMonitor": monitor, "prometheusRule": ENABLED, "dashboard": ENABLED}
    made = render_monitoring(values, certificates={"mode": mode})
    kinds = ("ServiceMonitor", "PrometheusRule")
    wanted = [find_one(made, kind) for kind in kinds] + of_kind(
        made, "ConfigMap", "gpuward-dashboard"
    )
    done = dry_run(chart_kinds, wanted)
    assert sorted(line.split()[0] for line in done.splitlines()) == [
        "configmap/gpuward-dashboard",
        "prometheusrule.monitoring.coreos.com/gpuward",
        "servicemonitor.monitoring.coreos.com/gpuward",
    ]
    # The API server reports unknown fields.
    wanted[0]["spec"]["endpoints"][0]["intervall"] = "5s"
    assert 'unknown field "spec.endpoints[0].intervall"' in dry_run(chart_kinds, wanted)


def dry_run(cluster: Cluster, objects: list[Manifest]) -> str:
    """Create the objects as a dry run, in a new namespace; returns the output of kubectl."""
    namespace = cluster.namespace()
    in_namespace = [o | {"metadata": o["metadata"] | {"namespace": namespace}} for o in objects]
    command = ("create", "--dry-run=server", "--validate=strict", "--filename=-")
    done = cluster.kubectl(*command, input=yaml.safe_dump_all(in_namespace), check=False)
    return done.stdout + done.stderr

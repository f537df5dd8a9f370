"""What the chart makes for Prometheus, before a real API server and beside real metrics."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from registration.configurations import NAME_LABEL
from tests.testkit.admission.registered_webhook import ENDINGS, Server, create
from tests.testkit.admission.reviews import container, pod
from tests.testkit.certs.fake_cluster import MemoryCluster, Time, controller
from tests.testkit.chart.monitoring import ON, alerts, metrics_in, questions, with_monitoring
from tests.testkit.chart.rendering import Manifest, of_kind, rendered, the
from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually
from tests.testkit.paths import ROOT
from webhook.admission.outcomes import RULE_OUTCOMES

ADMISSION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
NOBODY = "https://127.0.0.1:1/"
# Prometheus' own: whether a target could be scraped.
PROMETHEUS = {"up"}
BEGINNINGS = ("gpuward_", "process_", "apiserver_")


def asked_for(beginning: str) -> set[str]:
    """The metrics with that beginning for which an alert or a panel asks."""
    expressions = [*questions().values(), *(alert["expr"] for alert in alerts().values())]
    found = {metric for expression in expressions for metric in metrics_in(expression)}
    assert not {m for m in found if not m.startswith(BEGINNINGS)} - PROMETHEUS
    return {metric for metric in found if metric.startswith(beginning)}


def names_in(text: str) -> set[str]:
    """The metrics in what Prometheus reads, also those that have no sample yet."""
    return {
        family.name + end
        for family in text_string_to_metric_families(text)
        for end in ENDINGS.get(family.type, ("",))
    }


def test_the_server_has_all_that_is_asked_of_it(server: Server) -> None:
    wanted = {m for m in asked_for("gpuward_") if not m.startswith("gpuward_certs_")}
    assert len(wanted) > 15
    assert wanted | asked_for("process_") <= names_in(server.get("/metrics")[1])


def test_the_server_has_the_words_that_are_asked_for() -> None:
    asked = " ".join([*questions().values(), *(alert["expr"] for alert in alerts().values())])
    outcomes = values_of("outcome", asked)
    assert len(outcomes) > 4
    assert outcomes <= RULE_OUTCOMES
    source = "".join(file.read_text(encoding="utf-8") for file in ROOT.glob("webhook/**/*.py"))
    reasons = values_of("reason", asked)
    assert len(reasons) > 7
    assert not [reason for reason in reasons if f'"{reason}"' not in source]


def values_of(label: str, expressions: str) -> set[str]:
    """The values of a label that are asked for."""
    found = re.findall(rf'\b{label}=~?"([^"]+)"', expressions)
    return {value for alternatives in found for value in alternatives.split("|")}


def test_the_certificate_controller_has_all_that_is_asked_of_it() -> None:
    works = controller(MemoryCluster(), Time(), replicas=lambda: {"10.0.0.1": None})
    works.reconcile()
    works.reconcile()
    assert len(asked_for("gpuward_certs_")) == 9
    assert asked_for("gpuward_certs_") <= names_in(works.status.metrics().decode())


@pytest.fixture
def troubled(plane: ControlPlane) -> Iterator[str]:
    """A namespace whose webhooks, called as ours are, are not there or cannot be decided on."""
    namespace = plane.namespace()
    plane.create(ADMISSION, configuration(namespace))
    yield namespace
    plane.request("DELETE", f"{ADMISSION}/{namespace}")


def configuration(namespace: str) -> Manifest:
    """Webhooks that fail in each way, for one namespace."""
    condition = {"name": "decides", "expression": "object.spec.containers[9].name == 'x'"}
    spared = {"name": "decides", "expression": "false"}
    ways: dict[str, dict[str, Any]] = {
        "spared": {"matchConditions": [spared]},
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
        "clientConfig": {"url": NOBODY},
        "failurePolicy": "Ignore",
        "namespaceSelector": {"matchLabels": {NAME_LABEL: namespace}},
        "rules": [rule],
        "sideEffects": "None",
    }
    entries = [common | {"name": f"{way}.test.gpuward.io"} | more for way, more in ways.items()]
    return {"metadata": {"name": namespace}, "webhooks": entries}


def test_the_api_server_has_all_that_is_asked_of_it(plane: ControlPlane, troubled: str) -> None:
    def counted() -> set[str]:
        create(plane, troubled, pod(container()), dry_run=True)
        # As they are written: the parser would call some of them something with `_total`.
        return set(re.findall(r"^apiserver_\w+(?=\{)", metrics(plane), re.MULTILINE))

    wanted = asked_for("apiserver_")
    assert len(wanted) == 6
    eventually(lambda: wanted <= counted(), what="every way in which a webhook fails is counted")
    for metric, labels in {
        "webhook_fail_open_count": 'name="open',
        "webhook_rejection_count": 'error_type="calling_webhook_error",name="closed',
        "match_condition_evaluation_errors_total": 'kind="webhook",name="condition',
        "match_condition_exclusions_total": 'kind="webhook",name="spared',
    }.items():
        assert f"\napiserver_admission_{metric}{{{labels}.test.gpuward.io" in metrics(plane)


def metrics(plane: ControlPlane) -> str:
    """What Prometheus would read of the API server."""
    return str(plane.request("GET", "/metrics").body)


def test_the_manuals_values_are_accepted(chart_kinds: Cluster) -> None:
    manual = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
    (values,) = re.findall(r"```yaml\n(.*?)```", manual, re.DOTALL)
    made = rendered(values)
    parts = [the(made, "ServiceMonitor"), the(made, "PrometheusRule")]
    assert {o["metadata"]["labels"]["release"] for o in parts} == {"kube-prometheus-stack"}
    parts += [*of_kind(made, "NetworkPolicy"), the(made, "ConfigMap", "gpuward-dashboard")]
    assert applied(chart_kinds, parts).count("created (server dry run)") == len(parts)
    # Prometheus is let in to what it is led to.
    let_in = [rule for o in parts for rule in o.get("spec", {}).get("ingress", [])]
    ports = {p["port"] for r in let_in if "monitoring" in str(r) for p in r["ports"]}
    assert ports == {8080, 8081}


@pytest.mark.parametrize("mode", ["self", "certManager"])
def test_the_api_server_accepts_the_objects(chart_kinds: Cluster, mode: str) -> None:
    relabeling = {"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"}
    scraped = {"scrapeTimeout": "5s", "relabelings": [relabeling]}
    monitor = ON | scraped | {"metricRelabelings": [relabeling | {"action": "replace"}]}
    values = {"serviceMonitor": monitor, "prometheusRule": ON, "dashboard": ON}
    made = with_monitoring(values, certificates={"mode": mode})
    kinds = ("ServiceMonitor", "PrometheusRule")
    wanted = [the(made, kind) for kind in kinds] + of_kind(made, "ConfigMap", "gpuward-dashboard")
    done = applied(chart_kinds, wanted)
    assert sorted(line.split()[0] for line in done.splitlines()) == [
        "configmap/gpuward-dashboard",
        "prometheusrule.monitoring.coreos.com/gpuward",
        "servicemonitor.monitoring.coreos.com/gpuward",
    ]
    # It would have seen a field that does not exist.
    wanted[0]["spec"]["endpoints"][0]["intervall"] = "5s"
    assert 'unknown field "spec.endpoints[0].intervall"' in applied(chart_kinds, wanted)


def applied(cluster: Cluster, objects: list[Manifest]) -> str:
    """What the API server says to these objects, in a namespace of their own."""
    namespace = cluster.namespace()
    moved = [o | {"metadata": o["metadata"] | {"namespace": namespace}} for o in objects]
    command = ("create", "--dry-run=server", "--validate=strict", "--filename=-")
    done = cluster.kubectl(*command, input=yaml.safe_dump_all(moved), check=False)
    return done.stdout + done.stderr

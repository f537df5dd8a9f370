"""The network policies and the Services of the chart."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.testkit.chart.rendering import (
    CI_VALUES,
    find_one,
    of_kind,
    pod_specs,
    render,
    render_error,
)

POLICY_CHECKS = {"policy-check", "policy-test"}


def policy(text: str = "", name: str = "gpuward") -> dict[str, Any]:
    spec: dict[str, Any] = find_one(render(text), "NetworkPolicy", name)["spec"]
    return spec


def ports(rule: dict[str, Any]) -> list[int]:
    return [port["port"] for port in rule["ports"]]


def test_the_webhook_has_no_egress() -> None:
    spec = policy()
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert "egress" not in spec


def test_by_default_the_webhook_port_is_open_and_the_metrics_ports_are_closed() -> None:
    assert policy()["ingress"] == [{"ports": [{"port": 10250, "protocol": "TCP"}]}]
    clients = policy("", "gpuward-clients")
    assert "Ingress" in clients["policyTypes"]
    assert "ingress" not in clients


def test_callers_can_be_limited_and_gpuwards_own_stay_allowed() -> None:
    cidr = {"ipBlock": {"cidr": "10.0.0.0/28"}}
    (rule,) = policy("networkPolicy: {webhookFrom: [{ipBlock: {cidr: 10.0.0.0/28}}]}")["ingress"]
    assert ports(rule) == [10250]
    assert rule["from"][0] == cidr
    components = [
        peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"]
        for peer in rule["from"][1:]
    ]
    assert components == ["certs", "doctor", "test", "watch"]


def test_metrics_are_open_only_to_the_given_peers() -> None:
    text = "networkPolicy: {metricsFrom: [{namespaceSelector: {matchLabels: {team: sre}}}]}"
    allowed = [{"namespaceSelector": {"matchLabels": {"team": "sre"}}}]
    _, rule = policy(text)["ingress"]
    assert (ports(rule), rule["from"]) == ([8080], allowed)
    (rule,) = policy(text, "gpuward-clients")["ingress"]
    assert (ports(rule), rule["from"]) == ([8081], allowed)


ALL_CLIENTS = """\
certificates: {mode: certManager}
gpuExceptions: {enabled: true}
clusterInventory: {enabled: true}
audit: {enabled: true}
console: {enabled: true}
doctor: {enabled: true}
"""


def test_clients_of_the_api_server_have_only_the_egress_they_need() -> None:
    spec = policy("networkPolicy: {apiServerPorts: [6443]}", "gpuward-clients")
    (term,) = spec["podSelector"]["matchExpressions"]
    components = {*pod_specs(render()), *pod_specs(render(ALL_CLIENTS))}
    assert {*term["values"]} == components - {"webhook", *POLICY_CHECKS}
    server, names, webhook = spec["egress"]
    assert (ports(server), "to" in server) == ([6443], False)
    assert set(ports(names)) == {53, 5353}
    assert ports(webhook) == [10250]
    selected = webhook["to"][0]["podSelector"]["matchLabels"]
    assert selected["app.kubernetes.io/component"] == "webhook"


def test_by_default_api_servers_are_reached_on_the_ports_that_distributions_choose() -> None:
    server, *_ = policy("", "gpuward-clients")["egress"]
    kubeadm, minikube, microk8s = 6443, 8443, 16443
    assert ports(server) == [443, kubeadm, minikube, microk8s]


def test_only_the_given_peers_may_connect_to_the_console() -> None:
    closed = policy("console: {enabled: true}", "gpuward-console")
    assert (closed["policyTypes"], "ingress" in closed) == (["Ingress"], False)
    peer = {"podSelector": {"matchLabels": {"app": "proxy"}}}
    text = "console: {enabled: true, from: [{podSelector: {matchLabels: {app: proxy}}}]}"
    (rule,) = policy(f"{text}\nports: {{console: 18088}}", "gpuward-console")["ingress"]
    assert (ports(rule), rule["from"]) == ([18088], [peer])


PROMETHEUS = "http://prometheus.monitoring:9090/prefix"


def test_the_console_may_connect_to_the_prometheus_that_is_named() -> None:
    peer = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    prometheus = {"url": PROMETHEUS, "to": [peer]}
    text = yaml.safe_dump({"console": {"enabled": True, "prometheus": prometheus}})
    spec = policy(text, "gpuward-console")
    assert (spec["policyTypes"], spec["egress"]) == (["Ingress", "Egress"], [{"to": [peer]}])
    (container,) = pod_specs(render(text))["console"]["containers"]
    assert f"--prometheus={PROMETHEUS}" in container["args"]


def test_a_prometheus_that_the_console_could_not_reach_is_refused() -> None:
    prometheus = {"url": PROMETHEUS}
    values = {"console": {"enabled": True, "prometheus": prometheus}}
    assert "console.prometheus.to" in render_error(yaml.safe_dump(values))
    assert render(yaml.safe_dump({**values, "networkPolicy": {"enabled": False}}))


@pytest.mark.parametrize("url", ["http://user:secret@prometheus", "prometheus:9090"])
def test_the_address_of_prometheus_has_no_password(url: str) -> None:
    values = {"console": {"enabled": True, "prometheus": {"url": url, "to": [{"podSelector": {}}]}}}
    assert "prometheus" in render_error(yaml.safe_dump(values))


def test_the_addresses_of_api_servers_can_be_given() -> None:
    peers = [{"ipBlock": {"cidr": "10.0.0.0/28"}}]
    spec = policy(
        "networkPolicy: {apiServerTo: [{ipBlock: {cidr: 10.0.0.0/28}}]}", "gpuward-clients"
    )
    server, names, _ = spec["egress"]
    assert server["to"] == peers
    assert "to" not in names


def test_webhook_pods_in_the_host_network_are_reachable() -> None:
    """These pods have the addresses of nodes, which no pod selector matches."""
    spec = policy("hostNetwork: true\nports: {webhook: 19443}", "gpuward-clients")
    assert spec["egress"][2] == {"ports": [{"port": 19443, "protocol": "TCP"}]}


def test_network_policies_use_the_ports_of_the_values() -> None:
    text = "ports: {webhook: 19443, metrics: 18080, certs: 18081}\nnetworkPolicy: "
    text += "{metricsFrom: [{podSelector: {}}]}"
    assert [ports(rule) for rule in policy(text)["ingress"]] == [[19443], [18080]]
    clients = policy(text, "gpuward-clients")
    assert [ports(rule) for rule in clients["ingress"]] == [[18081]]
    assert ports(clients["egress"][2]) == [19443]


@pytest.mark.parametrize("name", CI_VALUES)
def test_network_policies_select_gpuwards_pods_and_can_be_disabled(name: str) -> None:
    objects = render(CI_VALUES[name])
    labels = find_one(objects, "Deployment", "gpu-guard" if name == "everything" else "gpuward")
    for made in of_kind(objects, "NetworkPolicy"):
        selected = made["spec"]["podSelector"]["matchLabels"]
        same = {k: v for k, v in selected.items() if not k.endswith("/component")}
        assert same.items() <= labels["spec"]["template"]["metadata"]["labels"].items()
    assert bool(of_kind(objects, "NetworkPolicy")) == (name != "everything")


def test_services_to_scrape_are_labelled() -> None:
    marked = {
        service["metadata"]["name"]: [p["name"] for p in service["spec"]["ports"]]
        for service in of_kind(render(), "Service")
        if service["metadata"]["labels"].get("gpuward.io/scrape") == "true"
    }
    assert marked == {"gpuward-replicas": ["https", "metrics"], "gpuward-certs": ["metrics"]}


def test_the_service_has_the_given_cluster_ip() -> None:
    assert "clusterIP" not in find_one(render(), "Service", "gpuward")["spec"]
    objects = render("service: {clusterIP: 10.96.7.7, annotations: {a: b}}")
    service = find_one(objects, "Service", "gpuward")
    assert service["spec"]["clusterIP"] == "10.96.7.7"
    assert service["metadata"]["annotations"] == {"a": "b"}


def test_the_checks_of_the_policy_have_no_connections() -> None:
    spec = policy("", "gpuward-policy-checks")
    (term,) = spec["podSelector"]["matchExpressions"]
    assert {*term["values"]} == POLICY_CHECKS
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert not {"ingress", "egress"} & spec.keys()

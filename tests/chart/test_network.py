"""Who reaches the chart's pods, and whom they reach."""

from __future__ import annotations

from typing import Any

import pytest

from tests.testkit.chart.rendering import CI_VALUES, of_kind, pod_specs, rendered, the


def policy(text: str = "", name: str = "gpuward") -> dict[str, Any]:
    spec: dict[str, Any] = the(rendered(text), "NetworkPolicy", name)["spec"]
    return spec


def ports(rule: dict[str, Any]) -> list[int]:
    return [port["port"] for port in rule["ports"]]


def test_the_webhook_asks_nobody_for_anything() -> None:
    spec = policy()
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert spec["egress"] == []


def test_at_first_anybody_may_call_the_webhook_and_nobody_may_read_metrics() -> None:
    assert policy()["ingress"] == [{"ports": [{"port": 10250, "protocol": "TCP"}]}]
    assert policy("", "gpuward-clients")["ingress"] == []


def test_callers_can_be_named_and_our_own_are_not_shut_out() -> None:
    cidr = {"ipBlock": {"cidr": "10.0.0.0/28"}}
    (rule,) = policy("networkPolicy: {webhookFrom: [{ipBlock: {cidr: 10.0.0.0/28}}]}")["ingress"]
    assert ports(rule) == [10250]
    assert rule["from"][0] == cidr
    components = [
        peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"]
        for peer in rule["from"][1:]
    ]
    assert components == ["certs", "test"]


def test_metrics_are_open_to_those_who_are_named_alone() -> None:
    text = "networkPolicy: {metricsFrom: [{namespaceSelector: {matchLabels: {team: sre}}}]}"
    allowed = [{"namespaceSelector": {"matchLabels": {"team": "sre"}}}]
    _, rule = policy(text)["ingress"]
    assert (ports(rule), rule["from"]) == ([8080], allowed)
    (rule,) = policy(text, "gpuward-clients")["ingress"]
    assert (ports(rule), rule["from"]) == ([8081], allowed)


def test_what_asks_the_api_server_may_do_just_that() -> None:
    spec = policy("networkPolicy: {apiServerPorts: [6443]}", "gpuward-clients")
    (term,) = spec["podSelector"]["matchExpressions"]
    assert {*term["values"]} == {*pod_specs(rendered())} - {"webhook"}
    server, names, webhook = spec["egress"]
    assert (ports(server), "to" in server) == ([6443], False)
    assert set(ports(names)) == {53, 5353}
    assert ports(webhook) == [10250]
    selected = webhook["to"][0]["podSelector"]["matchLabels"]
    assert selected["app.kubernetes.io/component"] == "webhook"


def test_api_servers_can_be_named() -> None:
    peers = [{"ipBlock": {"cidr": "10.0.0.0/28"}}]
    spec = policy(
        "networkPolicy: {apiServerTo: [{ipBlock: {cidr: 10.0.0.0/28}}]}", "gpuward-clients"
    )
    server, names, _ = spec["egress"]
    assert server["to"] == peers
    assert "to" not in names


def test_pods_in_the_network_of_the_nodes_are_reached_too() -> None:
    """They have the addresses of nodes, which no selector of pods finds."""
    spec = policy("hostNetwork: true\nports: {webhook: 19443}", "gpuward-clients")
    assert spec["egress"][2] == {"ports": [{"port": 19443, "protocol": "TCP"}]}


def test_policies_speak_of_the_ports_of_the_values() -> None:
    text = "ports: {webhook: 19443, metrics: 18080, certs: 18081}\nnetworkPolicy: "
    text += "{metricsFrom: [{podSelector: {}}]}"
    assert [ports(rule) for rule in policy(text)["ingress"]] == [[19443], [18080]]
    clients = policy(text, "gpuward-clients")
    assert [ports(rule) for rule in clients["ingress"]] == [[18081]]
    assert ports(clients["egress"][2]) == [19443]


@pytest.mark.parametrize("name", CI_VALUES)
def test_policies_select_our_own_pods_and_can_be_left_out(name: str) -> None:
    objects = rendered(CI_VALUES[name])
    labels = the(objects, "Deployment", "gpu-guard" if name == "everything" else "gpuward")
    for made in of_kind(objects, "NetworkPolicy"):
        selected = made["spec"]["podSelector"]["matchLabels"]
        same = {k: v for k, v in selected.items() if not k.endswith("/component")}
        assert same.items() <= labels["spec"]["template"]["metadata"]["labels"].items()
    assert bool(of_kind(objects, "NetworkPolicy")) == (name != "everything")


def test_what_is_to_be_scraped_is_marked() -> None:
    marked = {
        service["metadata"]["name"]: [p["name"] for p in service["spec"]["ports"]]
        for service in of_kind(rendered(), "Service")
        if service["metadata"]["labels"].get("gpuward.io/scrape") == "true"
    }
    assert marked == {"gpuward-replicas": ["https", "metrics"], "gpuward-certs": ["metrics"]}


def test_a_given_address_is_that_of_the_service() -> None:
    assert "clusterIP" not in the(rendered(), "Service", "gpuward")["spec"]
    objects = rendered("service: {clusterIP: 10.96.7.7, annotations: {a: b}}")
    service = the(objects, "Service", "gpuward")
    assert service["spec"]["clusterIP"] == "10.96.7.7"
    assert service["metadata"]["annotations"] == {"a": "b"}

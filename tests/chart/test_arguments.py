"""The arguments in the chart's containers: valid, and about files and objects that exist."""

from __future__ import annotations

import argparse
from pathlib import PurePosixPath
from typing import Any

import pytest

from cluster.audit.cli import make_parser as audit_parser
from cluster.controllers.certs_command import make_parser as certs_parser
from cluster.controllers.exceptions_command import make_parser as exceptions_parser
from cluster.controllers.inventory_command import make_parser as inventory_parser
from cluster.doctor.cli import make_parser as doctor_parser
from cluster.webhooks.cli import make_parser as webhooks_parser
from lint.policy.cli import make_parser as policy_parser
from policies.controller_files import EXCEPTIONS_FILE
from tests.testkit.chart.rendering import (
    CI_VALUES,
    NAMESPACE,
    Manifest,
    find_one,
    of_kind,
    pod_specs,
    render,
)
from webhook.options import make_parser as serve_parser

every_values = pytest.mark.parametrize("name", CI_VALUES)
SELF = [name for name in CI_VALUES if name in {"default", "deny", "everything"}]


def parsed_arguments(spec: dict[str, Any]) -> argparse.Namespace:
    """The arguments of a pod's only container, as gpuward parses them."""
    verb, *rest = spec["containers"][0]["args"]
    parsers = {
        "certs": certs_parser,
        "webhooks": webhooks_parser,
        "serve": serve_parser,
        "policy": policy_parser,
        "exceptions": exceptions_parser,
        "audit": audit_parser,
        "doctor": doctor_parser,
        "inventory": inventory_parser,
    }
    return parsers[verb]().parse_args(rest)


def container_port(spec: dict[str, Any], name: str) -> int:
    (found,) = (p["containerPort"] for p in spec["containers"][0]["ports"] if p["name"] == name)
    return int(found)


def mounted_files(spec: dict[str, Any], objects: list[Manifest]) -> dict[str, set[str] | None]:
    """The files in every mounted folder; None where the chart does not define them."""
    found: dict[str, set[str] | None] = {}
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    for mount in spec["containers"][0]["volumeMounts"]:
        volume = volumes[mount["name"]]
        made = of_kind(objects, "ConfigMap", volume.get("configMap", {}).get("name", "?"))
        items = volume.get("secret", {}).get("items")
        files = {item["path"] for item in items} if items else None
        found[mount["mountPath"]] = set(made[0].get("data", ())) if made else files
    return found


@every_values
def test_the_webhook_reads_mounted_files_and_listens_at_the_target_ports(name: str) -> None:
    objects = render(CI_VALUES[name])
    spec = pod_specs(objects)["webhook"]
    options, folders = parsed_arguments(spec), mounted_files(spec, objects)
    assert folders[options.certificate] == {"tls.crt", "tls.key"}
    for policy in (PurePosixPath(options.policy), PurePosixPath(options.fallback_policy)):
        assert policy.name in (folders[str(policy.parent)] or set())
    assert options.policy != options.fallback_policy
    assert options.listen == f":{container_port(spec, 'https')}"
    assert options.metrics_listen == f":{container_port(spec, 'metrics')}"
    configuration = find_one(objects, "ValidatingWebhookConfiguration")
    (service,) = {
        (entry["clientConfig"]["service"]["name"], entry["clientConfig"]["service"]["namespace"])
        for entry in configuration["webhooks"]
    }
    assert options.server_name == f"{service[0]}.{service[1]}.svc"
    ports = find_one(objects, "Service", service[0])["spec"]["ports"]
    assert [(p["port"], p["targetPort"]) for p in ports] == [(443, "https")]


def test_the_values_become_arguments_of_the_webhook() -> None:
    objects = render(CI_VALUES["everything"])
    spec = pod_specs(objects)["webhook"]
    options = parsed_arguments(spec)
    assert (options.listen, options.metrics_listen) == (":19443", ":18080")
    assert (options.drain_seconds, options.log_level) == (5, "warning")
    assert options.max_in_flight == 128
    assert options.log_user_names
    assert options.count_namespace == ["team-vision", "team-speech"]
    authority = PurePosixPath(options.client_ca)
    assert authority.name == "ca.crt"
    assert str(authority.parent) in mounted_files(spec, objects)
    assert {"name": "client-ca", "configMap": {"name": "api-servers"}} in spec["volumes"]


def test_the_webhook_mounts_the_secret_of_the_chosen_source() -> None:
    expected = {
        "default": "gpuward-tls",
        "cert-manager": "gpuward-cert-manager-tls",
        "existing-secret": "gpuward-serving",
    }
    for name, secret in expected.items():
        objects = render(CI_VALUES[name])
        volumes = pod_specs(objects)["webhook"]["volumes"]
        (found,) = (v["secret"]["secretName"] for v in volumes if "secret" in v)
        assert found == secret
    made = {
        c["spec"]["secretName"] for c in of_kind(render(CI_VALUES["cert-manager"]), "Certificate")
    }
    assert expected["cert-manager"] in made


@pytest.mark.parametrize("name", SELF)
def test_the_certificate_controller_gets_the_names_of_the_charts_objects(name: str) -> None:
    objects = render(CI_VALUES[name])
    spec = pod_specs(objects)["certs"]
    options = parsed_arguments(spec)
    assert options.namespace == NAMESPACE
    assert find_one(objects, "Service", options.service)
    replicas = find_one(objects, "Service", options.headless_service)["spec"]
    assert (replicas["clusterIP"], replicas["publishNotReadyAddresses"]) == ("None", True)
    # Which it creates, so it needs the right to.
    account = find_one(objects, "Role", spec["serviceAccountName"])
    rules = {rule["resources"][0]: rule["resourceNames"] for rule in account["rules"][:2]}
    names = {"secrets": [options.ca_secret, options.secret], "leases": [options.lease]}
    assert rules == names
    volumes = pod_specs(objects)["webhook"]["volumes"]
    assert [v["secret"]["secretName"] for v in volumes if "secret" in v] == [options.secret]
    for kind in ("mutating", "validating"):
        called = getattr(options, f"{kind}_configuration")
        assert find_one(objects, f"{kind.title()}WebhookConfiguration", called)
    assert options.status_port == container_port(spec, "metrics")
    if name != "everything":  # it disables the watch
        expected = PurePosixPath(options.expected_registration)
        assert expected.name in (mounted_files(spec, objects)[str(expected.parent)] or set())
    assert options.serving_port == container_port(pod_specs(objects)["webhook"], "https")
    assert [p["port"] for p in replicas["ports"] if p["name"] == "https"] == [options.serving_port]


@pytest.mark.parametrize("name", ["cert-manager", "existing-secret"])
def test_the_watch_and_the_test_read_the_mounted_expectation(name: str) -> None:
    objects = render(CI_VALUES[name])
    for component in ("watch", "test"):
        spec = pod_specs(objects)[component]
        expected = PurePosixPath(parsed_arguments(spec).expected)
        assert mounted_files(spec, objects)[str(expected.parent)] == {expected.name, "objects.txt"}
    assert parsed_arguments(pod_specs(objects)["watch"]).status_port == 8081


@pytest.mark.parametrize(
    ("name", "component"),
    [("default", "certs"), ("cert-manager", "watch"), ("everything", "doctor")],
)
def test_what_watches_reads_the_mounted_policy(name: str, component: str) -> None:
    objects = render(CI_VALUES[name])
    spec = pod_specs(objects)[component]
    policy = PurePosixPath(parsed_arguments(spec).policy)
    assert mounted_files(spec, objects)[str(policy.parent)] == {policy.name}


def test_the_webhook_reads_what_the_controller_for_the_inventory_writes() -> None:
    listed = "configMaps: true, nodes: true, nodeNames: true, queues: true, namespaces: true"
    objects = render(f"clusterInventory: {{enabled: true, {listed}, parts: 3}}")
    controller, webhook = (pod_specs(objects)[name] for name in ("inventory", "webhook"))
    options = parsed_arguments(controller)
    assert options.namespace == NAMESPACE
    assert options.read_config_maps
    assert options.read_nodes
    assert options.read_node_names
    assert options.read_queues
    assert options.read_namespaces
    assert len(options.config_maps) == 3
    for name in options.config_maps:
        assert not find_one(objects, "ConfigMap", name).get("data")
    folder = parsed_arguments(webhook).inventory
    (mount,) = (m for m in webhook["containers"][0]["volumeMounts"] if m["mountPath"] == folder)
    (volume,) = (v for v in webhook["volumes"] if v["name"] == mount["name"])
    assert volume["projected"]["sources"] == [
        {"configMap": {"name": name, "optional": True}} for name in options.config_maps
    ]
    serving = parsed_arguments(webhook)
    assert (options.policy, options.fallback_policy) == (serving.policy, serving.fallback_policy)


def test_the_webhook_reads_what_the_controller_for_gpu_exceptions_writes() -> None:
    objects = render(CI_VALUES["deny"])
    controller, webhook = (pod_specs(objects)[name] for name in ("exceptions", "webhook"))
    options = parsed_arguments(controller)
    assert options.namespace == NAMESPACE
    assert not find_one(objects, "ConfigMap", options.config_map).get("data")
    file = PurePosixPath(parsed_arguments(webhook).gpu_exceptions)
    assert file.name == EXCEPTIONS_FILE
    (mount,) = (
        mount["name"]
        for mount in webhook["containers"][0]["volumeMounts"]
        if mount["mountPath"] == str(file.parent)
    )
    source = {"name": options.config_map, "optional": True}
    assert {"name": mount, "configMap": source} in webhook["volumes"]
    folders = mounted_files(controller, objects)
    serving = parsed_arguments(webhook)
    for own, served in (
        (options.policy, serving.policy),
        (options.fallback_policy, serving.fallback_policy),
    ):
        assert own == served
        assert PurePosixPath(own).name in (folders[str(PurePosixPath(own).parent)] or set())
    assert options.status_port == container_port(controller, "metrics")


def test_certificate_lifetimes_come_from_the_values() -> None:
    text = "certificates: {self: {authorityDays: 30, servingDays: 0.5}}"
    options = parsed_arguments(pod_specs(render(text))["certs"])
    assert (options.ca_days, options.leaf_days) == (30, 0.5)


def test_the_controller_also_publishes_the_authority_given_in_the_values() -> None:
    given = CI_VALUES["existing-secret"].read_text(encoding="utf-8")
    objects = render(given.replace("mode: existingSecret", "mode: self"))
    variables = pod_specs(objects)["certs"]["containers"][0]["env"]
    (value,) = (v["value"] for v in variables if v["name"] == "GPUWARD_CERTS_ALSO_TRUST")
    assert value.startswith("-----BEGIN CERTIFICATE-----\n")


@every_values
def test_the_chart_renders_no_object_that_a_controller_fills(name: str) -> None:
    """A tool that replaces objects would empty it, and some tools never apply a Lease."""
    objects = render(CI_VALUES[name])
    assert all("data" in made for made in of_kind(objects, "Secret"))
    assert of_kind(objects, "Lease") == []


def test_hooks_run_valid_commands_on_the_configurations_of_the_chart() -> None:
    objects = render()
    called = [find_one(objects, f"{k}WebhookConfiguration") for k in ("Mutating", "Validating")]
    names = [[made["metadata"]["name"]] for made in called]
    options = parsed_arguments(pod_specs(objects)["test"])
    assert [options.mutating_configuration, options.validating_configuration] == names


@every_values
@pytest.mark.parametrize("component", ["policy-check", "policy-test"])
def test_the_checks_of_the_policy_read_the_file_that_they_mount(name: str, component: str) -> None:
    objects = render(CI_VALUES[name])
    spec = pod_specs(objects)[component]
    file = PurePosixPath(parsed_arguments(spec).file)
    assert file.name in (mounted_files(spec, objects)[str(file.parent)] or set())

"""The notes that helm prints after an installation: correct for the values, valid commands."""

from __future__ import annotations

import pytest

from tests.testkit.chart.documented_commands import commands, unknown_options
from tests.testkit.chart.rendering import CHART, CI_VALUES, HELMS, NAMESPACE, run_helm
from tests.testkit.control_plane.plane import ControlPlane

LIMITS = "{rules: [absurd-count], namespaces: a, longestDays: 7}"


def notes(text: str = "", *, release: str = "gpuward", name: str | None = None) -> str:
    """The notes of an installation with these values; helm 4 prints them without a cluster."""
    done = run_helm(
        *("install", release, str(CHART), f"--namespace={NAMESPACE}", "--dry-run=client"),
        values=[CI_VALUES[name]] if name else [text],
        helm="helm4",
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\nNOTES:\n")[1]


@pytest.mark.parametrize(
    ("text", "expected", "unexpected"),
    [
        (
            "",
            [
                "in mode warn",
                "refuses nothing: users get warnings",
                "mode=deny",
                "without evaluation",
            ],
            ["WARNING", "firewall", "CronJob", "clusterInventory", "nodeGuard"],
        ),
        ("mode: audit", ["in mode audit", "it only records"], ["users get warnings"]),
        ("mode: off", ["in mode off", "API servers send nothing", "mode=audit"], ["warnings"]),
        ("mode: deny", ["There gpuward fixes pods, and refuses"], ["Steps to", "refuses nothing"]),
        (
            "mode: deny\nregistration: {failurePolicy: Fail}",
            ["WARNING: while gpuward is down", "or pods\nto which a rule may apply"],
            ["admitted without evaluation"],
        ),
        (
            "registration: {failurePolicy: Fail, matchConditions: false}",
            ["WARNING: while gpuward is down", "or pods (failurePolicy Fail)"],
            ["may apply"],
        ),
        ("replicaCount: 1", ["WARNING: gpuward has fewer than two pods"], []),
        ("replicaCount: 0", ["WARNING: gpuward has fewer than two pods"], []),
        ("mode: deny\nminimumMode: warn", ["down to warn", "(not below warn)"], []),
        (
            "mode: deny\nminimumMode: deny",
            ["cannot choose another mode", "whoever may edit the policy"],
            ["may label namespaces"],
        ),
        ("registration: {excludedNamespaces: [a, b]}", [f"{NAMESPACE}, a, b."], []),
        ("ports: {webhook: 9443}", ["firewall rule from the control plane to port 9443"], []),
        ("mode: warn", ["STEP LEFT: let only API servers call", "port 10250 of the"], []),
        ("clientCAConfigMap: x", [], ["STEP LEFT"]),
        ("networkPolicy: {webhookFrom: [{ipBlock: {cidr: 10.0.0.0/28}}]}", [], ["STEP LEFT"]),
        (
            "networkPolicy: {enabled: false, webhookFrom: [{ipBlock: {cidr: 10.0.0.0/28}}]}",
            ["STEP LEFT"],
            [],
        ),
        (
            "gpuExceptions: {enabled: true}",
            ["may approve GpuExceptions", "WARNING: the policy has no gpuExceptions"],
            ["owners cannot ask"],
        ),
        (f"policy: {{gpuExceptions: [{LIMITS}]}}", ["owners cannot ask"], ["approve"]),
        (
            f"gpuExceptions: {{enabled: true}}\npolicy: {{gpuExceptions: [{LIMITS}]}}",
            ["may approve GpuExceptions"],
            ["WARNING: the policy"],
        ),
        (
            "audit: {enabled: true}",
            ['CronJob gpuward-audit evaluates what runs, at "17 * * * *"', "component=audit"],
            ["WARNING", "policyreports"],
        ),
        (
            "audit: {enabled: true, kind: Deployment}",
            [
                "Deployment gpuward-audit evaluates what runs, every 3600 seconds",
                "set audit.publish or audit.events",
            ],
            ["WARNING", "CronJob", "component=audit"],
        ),
        (
            "audit: {enabled: true, publish: policyreport}",
            [
                "kubectl get policyreports.wgpolicyk8s.io -A",
                "WARNING: this cluster has no wgpolicyk8s.io/v1alpha2/PolicyReport, so",
            ],
            ["component=audit"],
        ),
        (
            "audit: {enabled: true, publish: openreports}",
            ["kubectl get reports.openreports.io -A", "no openreports.io/v1alpha1/Report, so"],
            [],
        ),
        (
            "console: {enabled: true}",
            ["kubectl port-forward -n gpuward-system svc/gpuward-console 8088:80"],
            ["WARNING"],
        ),
        ("clusterInventory: {enabled: true}", ["knows other objects"], ["may list the ConfigMaps"]),
        (
            "clusterInventory: {enabled: true, nodes: true}",
            ["GPU pods\nfor which no node fits are warned about"],
            ["may list the ConfigMaps"],
        ),
        (
            "clusterInventory: {enabled: true, configMaps: true}",
            ["controller may list the ConfigMaps of all namespaces"],
            [],
        ),
        (
            "nodeGuard: {enabled: true}",
            ["labels of nodes: ack.node.gpu.schedule.", "cluster administrators are refused too"],
            ["Only the users"],
        ),
        (
            "nodeGuard: {enabled: true, users: [pools]}",
            ["Only the users, groups and service accounts in nodeGuard"],
            ["administrators"],
        ),
        (
            "adminAccessGuard: {enabled: true}",
            ["admin access to devices", "cluster administrators are refused too"],
            ["Only the users"],
        ),
        (
            "adminAccessGuard: {enabled: true, groups: [admins]}",
            ["Only the users, groups and service accounts in adminAccessGuard"],
            ["administrators"],
        ),
        ("fullnameOverride: guard", ["guard-policy"], ["gpuward-policy"]),
    ],
)
def test_the_notes_describe_the_values(
    text: str, expected: list[str], unexpected: list[str]
) -> None:
    output = notes(text)
    for part in expected:
        assert part in output
    for part in unexpected:
        assert part not in output


@pytest.mark.parametrize("name", CI_VALUES)
def test_the_notes_are_well_formatted(name: str) -> None:
    output = notes(name=name)
    assert "<no value>" not in output
    assert "{{" not in output
    assert "\n\n\n" not in output
    assert not any(line != line.rstrip() for line in output.splitlines())


@pytest.mark.parametrize("mode", ["deny", "off"])
def test_every_command_of_the_notes_is_valid(mode: str) -> None:
    found = commands(notes(f"mode: {mode}", release="prod"))
    assert ["helm", "test", "prod", "-n", NAMESPACE] in found
    assert ["gpuward", "webhooks", "remove"] in found
    assert len(found) == (4 if mode == "deny" else 10)
    assert [problem for words in found for problem in unknown_options(words)] == []


def test_an_option_that_does_not_exist_is_found() -> None:
    for command in ("helm test x --no-such", "kubectl get -Z", "gpuward webhooks remove --nope"):
        assert unknown_options(command.split())


def test_the_kubectl_commands_of_the_notes_work(plane: ControlPlane) -> None:
    namespace = plane.namespace()
    for words in commands(notes("mode: warn")):
        if words[0] != "kubectl":
            continue
        arguments = [namespace if word in {"NAME", NAMESPACE} else word for word in words[1:]]
        plane.kubectl(*arguments)
    labels = plane.request("GET", f"/api/v1/namespaces/{namespace}").body["metadata"]["labels"]
    assert labels["gpuward.io/mode"] == "deny"


@pytest.mark.parametrize("helm", HELMS)
def test_both_helms_print_the_notes(plane: ControlPlane, helm: str) -> None:
    options = (f"--namespace={NAMESPACE}", "--create-namespace", "--dry-run=client")
    done = plane.run(helm, "install", "gpuward", str(CHART), *options)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\nNOTES:\n")[1].strip() == notes().strip()

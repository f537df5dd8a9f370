"""The pods of the chart: replicas, scheduling, security contexts, probes and rollouts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.testkit.chart.rendering import (
    CI_VALUES,
    containers_of,
    find_one,
    of_kind,
    pod_specs,
    render,
)

every_values = pytest.mark.parametrize("name", CI_VALUES)
SELF = ("default", "deny")


def deployment(text: str = "", name: str = "gpuward") -> dict[str, Any]:
    spec: dict[str, Any] = find_one(render(text), "Deployment", name)["spec"]
    return spec


@every_values
def test_every_container_runs_as_non_root_with_a_read_only_file_system(name: str) -> None:
    objects = render(CI_VALUES[name])
    for spec in pod_specs(objects).values():
        context = spec["securityContext"]
        assert context["runAsNonRoot"] is True
        assert context["runAsUser"] == context["runAsGroup"] == 65532
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        for volume in spec.get("volumes", []):
            assert {"name"} < set(volume) <= {"name", "secret", "configMap"}
    for container in containers_of(objects):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert all(mount["readOnly"] for mount in container.get("volumeMounts", []))


@every_values
def test_every_pod_has_no_service_links_and_has_resource_requests(name: str) -> None:
    objects = render(CI_VALUES[name])
    assert all(spec["enableServiceLinks"] is False for spec in pod_specs(objects).values())
    for container in containers_of(objects):
        assert {"cpu", "memory"} <= set(container["resources"]["requests"])
        assert "memory" in container["resources"]["limits"]


@every_values
def test_no_pod_tolerates_the_taints_of_gpu_nodes(name: str) -> None:
    for spec in pod_specs(render(CI_VALUES[name])).values():
        assert spec["nodeSelector"]["kubernetes.io/os"] == "linux"
        keys = [toleration.get("key") for toleration in spec.get("tolerations", [])]
        assert keys == (["CriticalAddonsOnly"] if name == "everything" else [])


def test_the_termination_grace_period_is_longer_than_the_drain() -> None:
    for text, seconds in (("", 15), ("drainSeconds: 60", 60), ("drainSeconds: 0", 0)):
        spec = deployment(text)["template"]["spec"]
        assert f"--drain-seconds={seconds}" in spec["containers"][0]["args"]
        assert spec["terminationGracePeriodSeconds"] >= seconds + 10


def test_a_new_policy_starts_a_new_pod_of_the_console() -> None:
    """It reads the policy once."""
    template = [
        deployment(f"console: {{enabled: true}}\npolicy: {{rules: {rules}}}", "gpuward-console")
        for rules in ("{}", "{absurd-count: {action: warn}}", "{}")
    ]
    first, other, same = (made["template"] for made in template)
    assert first == same
    assert first != other


def test_a_rolling_update_adds_a_pod_first_unless_host_ports_prevent_it() -> None:
    assert deployment()["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
    }
    own_ports = "hostNetwork: true\nports: {webhook: 19443}"
    assert deployment(own_ports)["strategy"]["rollingUpdate"] == {
        "maxSurge": 0,
        "maxUnavailable": 1,
    }


def test_pods_are_spread_over_nodes_and_zones_if_possible() -> None:
    spec = deployment()
    constraints = spec["template"]["spec"]["topologySpreadConstraints"]
    keys = [constraint["topologyKey"] for constraint in constraints]
    assert keys == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
    for constraint in constraints:
        assert constraint["whenUnsatisfiable"] == "ScheduleAnyway"
        assert constraint["labelSelector"] == spec["selector"]
        assert constraint["matchLabelKeys"] == ["pod-template-hash"]
    chosen = find_one(render(CI_VALUES["everything"]), "Deployment", "gpu-guard")["spec"]
    (only,) = chosen["template"]["spec"]["topologySpreadConstraints"]
    assert only["whenUnsatisfiable"] == "DoNotSchedule"


@every_values
def test_probes_use_the_port_without_tls(name: str) -> None:
    for component, spec in pod_specs(render(CI_VALUES[name])).items():
        (container,) = spec["containers"]
        gets = {
            probe: container[probe]["httpGet"]
            for probe in ("livenessProbe", "readinessProbe", "startupProbe")
            if probe in container
        }
        paths = {probe: get["path"] for probe, get in gets.items()}
        if component in ("webhook", "console"):
            assert paths == {"livenessProbe": "/healthz", "readinessProbe": "/readyz"}
        else:
            # With the values "everything" the audit is a Deployment.
            is_controller = component in ("certs", "exceptions", "watch")
            is_controller |= (component, name) == ("audit", "everything")
            assert paths.get("livenessProbe") == ("/healthz" if is_controller else None)
        port = "http" if component == "console" else "metrics"
        assert all((get["port"], get["scheme"]) == (port, "HTTP") for get in gets.values())


@pytest.mark.parametrize(
    ("text", "budgets"),
    [
        ("", 1),
        ("replicaCount: 1", 0),
        ("replicaCount: 0", 0),
        ("podDisruptionBudget: {enabled: false}", 0),
        ("replicaCount: 1\nautoscaling: {enabled: true}", 1),
        ("autoscaling: {enabled: true, minReplicas: 1}", 0),
    ],
)
def test_a_disruption_budget_is_made_only_where_it_blocks_no_node_drain(
    text: str, budgets: int
) -> None:
    objects = render(text)
    found = of_kind(objects, "PodDisruptionBudget")
    assert len(found) == budgets
    for budget in found:
        assert budget["spec"]["maxUnavailable"] == 1
        assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
        assert budget["spec"]["selector"] == deployment(text)["selector"]


def test_only_the_autoscaler_sets_replicas_if_it_is_enabled() -> None:
    assert deployment()["replicas"] == 2
    assert not of_kind(render(), "HorizontalPodAutoscaler")
    text = "replicaCount: 5\nautoscaling: {enabled: true}"
    assert "replicas" not in deployment(text)
    scaler = find_one(render(text), "HorizontalPodAutoscaler")["spec"]
    assert scaler["scaleTargetRef"]["name"] == "gpuward"
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (2, 6)


@pytest.mark.parametrize("name", SELF)
def test_there_is_one_certificate_controller_and_the_service_does_not_select_it(name: str) -> None:
    objects = render(CI_VALUES[name])
    spec = find_one(objects, "Deployment", "gpuward-certs")["spec"]
    assert spec["replicas"] == 1
    (service,) = (
        s["spec"] for s in of_kind(objects, "Service") if s["metadata"]["name"] == "gpuward"
    )
    assert not service["selector"].items() <= spec["template"]["metadata"]["labels"].items()


@pytest.mark.parametrize("name", sorted({*CI_VALUES} - {*SELF, "everything"}))
def test_other_certificate_modes_have_no_controller(name: str) -> None:
    objects = render(CI_VALUES[name])
    assert not of_kind(objects, "Deployment", "gpuward-certs")
    secrets = {secret["metadata"]["name"] for secret in of_kind(objects, "Secret")}
    assert not secrets & {"gpuward-ca", "gpuward-tls"}
    assert not of_kind(objects, "Lease")
    assert "certs" not in {
        m["metadata"]["labels"]["app.kubernetes.io/component"]
        for m in objects
        if m["kind"] != "NetworkPolicy"
    }


@every_values
def test_selectors_match_exactly_the_pods_of_their_component(name: str) -> None:
    objects = render(CI_VALUES[name])
    pods = {
        made["metadata"]["labels"]["app.kubernetes.io/component"]: made["spec"]["template"]
        for made in of_kind(objects, "Deployment")
    }
    for made in of_kind(objects, "Deployment") + of_kind(objects, "Service"):
        component = made["metadata"]["labels"]["app.kubernetes.io/component"]
        selector = made["spec"]["selector"]
        selector = selector.get("matchLabels", selector)
        found = {
            key
            for key, pod in pods.items()
            if selector.items() <= pod["metadata"]["labels"].items()
        }
        assert found == {component}

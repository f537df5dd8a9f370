"""No pod of a user evicts gpuward, and API servers that limit priority classes accept its pods."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.testkit.admission.reviews import container, pod
from tests.testkit.chart.rendering import CI_VALUES, find_one, of_kind, pod_specs, render
from tests.testkit.control_plane.build import Programs
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually

PAGE = Path("docs/resilience.md")
HIGHEST = "system-node-critical"
QUOTA = "gpuward-priority"
# As GKE has it: open-policy-agent/gatekeeper issue 1120 quotes what its API servers answer.
LIMITED = """\
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
  - name: ResourceQuota
    configuration:
      apiVersion: apiserver.config.k8s.io/v1
      kind: ResourceQuotaConfiguration
      limitedResources:
        - resource: pods
          matchScopes:
            - scopeName: PriorityClass
              operator: In
              values: [system-node-critical, system-cluster-critical]
"""
NEEDED = ("webhook", "certs", "watch", "exceptions", "inventory")
EVERYTHING = "{gpuExceptions: {enabled: true}, clusterInventory: {enabled: true}}"


def priorities(*values: Any) -> dict[str, Any]:
    """The priority class of the pods of each component."""
    specs = pod_specs(render(*values)).items()
    return {component: spec.get("priorityClassName") for component, spec in specs}


def test_what_decides_has_the_highest_priority_and_no_other_pod_has_it() -> None:
    found = priorities(EVERYTHING)
    assert {component for component, name in found.items() if name} == {*found} & {*NEEDED}
    assert {name for name in found.values() if name} == {HIGHEST}
    assert {"webhook", "certs", "exceptions", "inventory"} <= found.keys()


def test_a_class_of_ones_own_is_for_all_pods_and_needs_no_quota() -> None:
    objects = render("priorityClassName: platform")
    assert {spec["priorityClassName"] for spec in pod_specs(objects).values()} == {"platform"}
    assert not of_kind(objects, "ResourceQuota")


def test_no_class() -> None:
    text = 'priorityClassName: ""'
    assert {*priorities(text).values()} == {None}
    assert not of_kind(render(text), "ResourceQuota")


def test_the_quota_can_be_left_out() -> None:
    assert of_kind(render(), "ResourceQuota", QUOTA)
    assert not of_kind(render(CI_VALUES["everything"]), "ResourceQuota")


@pytest.fixture(scope="module")
def limiting(control_plane_programs: Programs, tmp_path_factory: Any) -> Iterator[ControlPlane]:
    """A control plane that limits the classes of the system, as those of GKE do."""
    file: Path = tmp_path_factory.mktemp("limits") / "admission.yaml"
    file.write_text(LIMITED, encoding="utf-8")
    flags = (f"--admission-control-config-file={file}",)
    with ControlPlane(control_plane_programs, api_server_flags=flags) as plane:
        yield plane


def of_class(name: str, cpu: str = "1") -> dict[str, Any]:
    """A pod of a priority class; without one if `name` is empty."""
    made = pod(container("main", resources={"requests": {"cpu": cpu}}))
    if name:
        made["spec"]["priorityClassName"] = name
    return made


def created(plane: ControlPlane, namespace: str, name: str, **options: Any) -> Any:
    """Return the API server's answer to the creation of such a pod."""
    made = of_class(name, **options)
    made["metadata"] = {"generateName": "pod-", "namespace": namespace}
    return plane.request("POST", f"/api/v1/namespaces/{namespace}/pods", made)


def test_api_servers_that_limit_the_class_accept_gpuward_and_nobody_else(
    limiting: ControlPlane,
) -> None:
    home, tenants = limiting.namespace(), limiting.namespace()
    refused = created(limiting, home, HIGHEST)
    assert refused.status >= 400
    assert "insufficient quota to match these scopes" in str(refused.body)
    quota = find_one(render(), "ResourceQuota", QUOTA)
    quota["metadata"]["namespace"] = home
    limiting.create(f"/api/v1/namespaces/{home}/resourcequotas", quota)
    eventually(lambda: created(limiting, home, HIGHEST).status == 201, what="the pod is accepted")
    assert created(limiting, tenants, HIGHEST).status >= 400
    assert created(limiting, tenants, "").status == 201


def documented_quota() -> dict[str, Any]:
    """The quota for namespaces of users in docs/resilience.md."""
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    found: dict[str, Any] = yaml.safe_load(block)
    return found


def test_the_documented_quota_refuses_the_classes_of_the_system_and_no_other_pod(
    plane: ControlPlane,
) -> None:
    namespace = plane.namespace()
    plane.create(f"/api/v1/namespaces/{namespace}/resourcequotas", documented_quota())
    refused = partial(created, plane, namespace)
    for name in (HIGHEST, "system-cluster-critical"):
        eventually(lambda: refused(name).status == 403, what=f"pods of {name} are refused")  # noqa: B023  # called at once
    assert created(plane, namespace, "").status == 201


def node_of(plane: ControlPlane, path: str) -> str:
    """The node on which a pod runs; empty if it is gone or waits."""
    found = plane.request("GET", path)
    is_there = found.status == 200 and "deletionTimestamp" not in found.body["metadata"]
    return found.body["spec"].get("nodeName", "") if is_there else ""


def test_a_pod_of_the_highest_class_evicts_others_and_not_gpuward(plane: ControlPlane) -> None:
    """The node of 64 cores has room for one of these pods."""
    plane.gpu_node("judge", taint=False, labels={"only": "judge"})
    namespace = plane.namespace()

    def start(name: str) -> str:
        made = of_class(name, cpu="40")
        made["metadata"] = {"generateName": "pod-", "namespace": namespace}
        made["spec"]["nodeSelector"] = {"only": "judge"}
        path = f"/api/v1/namespaces/{namespace}/pods"
        return f"{path}/{plane.create(path, made)['metadata']['name']}"

    try:
        unprotected = start("")
        eventually(lambda: node_of(plane, unprotected) == "judge", what="a pod runs")
        gpuward = start(pod_specs(render())["webhook"]["priorityClassName"])
        eventually(lambda: node_of(plane, gpuward) == "judge", what="it takes the node")
        assert not node_of(plane, unprotected)
        attackers = [start(HIGHEST) for _ in range(3)]
        eventually(lambda: is_unschedulable(plane, attackers), what="the attackers wait")
        assert not any(node_of(plane, attacker) for attacker in attackers)
        assert node_of(plane, gpuward) == "judge"
    finally:
        plane.request("DELETE", "/api/v1/nodes/judge")


def is_unschedulable(plane: ControlPlane, paths: list[str]) -> bool:
    """Return whether the scheduler looked at one of the pods.

    Then it found neither room nor a pod to evict. Raises AssertionError with the status of the pods
    if it did not.
    """
    found = [plane.request("GET", path).body["status"] for path in paths]
    conditions = [condition for status in found for condition in status.get("conditions", ())]
    assert any(
        condition.get("reason") == "Unschedulable"
        and "No preemption victims found" in condition.get("message", "")
        for condition in conditions
        if condition["type"] == "PodScheduled"
    ), found
    return True

"""`gpuward why` and the events of a running kube-scheduler agree about 200 random Pending pods."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http import HTTPStatus
from random import Random
from typing import Any

import pytest

from cluster.api.connection import Connection
from cluster.snapshot.snapshot import Snapshot
from cluster.source.api_server import ApiServerSource
from cluster.why.explainer import Explainer, Workload
from cluster.why.explanation import Answer, Explanation
from policies.loading import default_policy
from tests.cluster_commands.test_why_on_a_cluster import COUNTS_OTHER_NODES, counts
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually
from tests.testkit.dry_runs import minor_version
from tests.testkit.scheduling.random_clusters import random_scenario

PODS = 200
CONFLICT = "pod affinity terms conflict"
"""The reason that kube-scheduler says once, and not with a number of nodes."""
COUNTS_PORTS_OF_SIDECARS = 37
"""A minor version of Kubernetes that does; 31 does not (kubernetes/kubernetes#132040)."""
PREFIX = "random-"
NOT_READY = "node.kubernetes.io/not-ready"
OURS = {"key": "gpuward.test/random", "operator": "Exists", "effect": "NoSchedule"}


def renamed(value: Any) -> Any:
    """`value` with names of nodes that no other test has."""
    text = json.dumps(value)
    for number in range(10):
        text = text.replace(f'"n{number}"', f'"{PREFIX}n{number}"')
    return json.loads(text)


def on_a_plane(
    plane: ControlPlane, pod: dict[str, Any], name: str, namespace: str
) -> dict[str, Any]:
    """A pod of a scenario as a user may create it, without volumes and what needs other objects.

    Nor has it a field that API servers drop or refuse by default.
    """
    spec = renamed(pod["spec"])
    for field in ("overhead", "priority", "volumes", "hostNetwork", "hostUsers"):
        spec.pop(field, None)
    spec["tolerations"] = [*spec.get("tolerations", []), OURS]
    for field in ("containers", "initContainers"):
        for container in spec.get(field, []):
            container["image"] = "i"
            container.pop("volumeMounts", None)
            if "restartPolicyRules" in container:
                container.setdefault("restartPolicy", "Never")
    for container in spec.get("initContainers", []):
        if minor_version(plane) < COUNTS_PORTS_OF_SIDECARS:
            container.pop("ports", None)
    metadata = {"name": name, "namespace": namespace, "labels": pod["metadata"]["labels"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def agrees(found: Explanation) -> bool:
    said = found.scheduler
    if found.fitting or "nodes are available" not in said:
        return False
    if CONFLICT in said:
        return {*counts(found.summary)} == {CONFLICT}
    return counts(found.summary) == counts(said)


def not_ready(plane: ControlPlane) -> set[str]:
    return {
        node["metadata"]["name"]
        for node in plane.request("GET", "/api/v1/nodes").body["items"]
        if any(taint["key"] == NOT_READY for taint in node["spec"].get("taints", ()))
    }


@pytest.fixture
def namespace(plane: ControlPlane) -> Iterator[str]:
    """A namespace with pods on seven nodes."""
    random = Random(48)  # noqa: S311  # not a secret
    scenario = next(s for s in iter(lambda: random_scenario(random), None) if len(s.nodes) == 7)
    home, names = plane.namespace(), []
    for raw in renamed(scenario.nodes):
        raw["metadata"]["annotations"] = {"kwok.x-k8s.io/node": "fake"}
        spec = raw["spec"]
        kept = [one for one in spec["taints"] if one["effect"] == "NoSchedule"]  # none is evicted
        taints = [one for one in kept if not one["key"].startswith("node.kubernetes.io/")]
        spec["taints"] = [*taints, {"key": OURS["key"], "effect": OURS["effect"]}]
        plane.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", **raw})
        names.append(raw["metadata"]["name"])
    # Until a new node is ready it has a taint, by which `why` would say that no pod fits.
    eventually(lambda: not {*names} & not_ready(plane), what="the nodes are ready")
    path = f"/api/v1/namespaces/{home}/pods"
    for number in range(14):
        placed = on_a_plane(plane, random_scenario(random).pod, f"placed-{number}", home)
        placed["spec"]["nodeName"] = names[number % len(names)]
        placed["spec"].pop("topologySpreadConstraints", None)
        plane.request("POST", path, placed)  # some are no pods that an API server accepts
    yield home
    for name in names:
        plane.request("DELETE", f"/api/v1/nodes/{name}")


def test_both_say_the_same_of_each_pod(plane: ControlPlane, namespace: str) -> None:
    source = ApiServerSource(Connection.like_kubectl(str(plane.kubeconfig)))
    profile = default_policy().profile
    random = Random(200)  # noqa: S311  # the same
    counts_others = minor_version(plane) >= COUNTS_OTHER_NODES
    before = Explainer(Snapshot(source, profile), namespace=namespace)
    path, made = f"/api/v1/namespaces/{namespace}/pods", 0
    while made < PODS:
        pod = on_a_plane(plane, random_scenario(random).pod, f"waits-{made}", namespace)
        names_nodes = "matchFields" in json.dumps(pod)
        if names_nodes and not counts_others:
            continue
        if before.explain_workload(Workload(pod, 1)).answer is Answer.CANNOT:
            made += plane.request("POST", path, pod).status == HTTPStatus.CREATED

    def explained() -> list[Explanation]:
        return [*Explainer(Snapshot(source, profile), namespace=namespace).explain_pending()]

    def agreed() -> list[Explanation]:
        found = explained()
        others = [(o.name, o.summary, o.scheduler) for o in found if not agrees(o)]
        assert not others, others[:3]
        return found

    found = eventually(agreed, what="that both say the same")
    assert len(found) == PODS
    # Kinds of reasons; nodes that other tests have left on the plane add some.
    assert len({reason for one in found for reason in counts(one.summary)}) >= 7

"""`gpuward why` agrees with kube-scheduler: its events are the oracle."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import partial
from http import HTTPStatus
from typing import Any

import pytest

from cluster.api.connection import Connection
from cluster.snapshot.snapshot import Snapshot
from cluster.source.api_server import ApiServerSource
from cluster.source.objects import PODS
from cluster.why.explainer import Explainer, Workload
from cluster.why.explanation import Answer, Explanation
from policies.loading import default_policy
from tests.testkit.control_plane.objects import gpu_node
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually
from tests.testkit.dry_runs import minor_version

PROFILE = default_policy().profile
GPU = "nvidia.com/gpu"
COUNTS_OTHER_NODES = 37
"""A minor version of Kubernetes that does; 31 does not, and those between were not tried."""
TAINT = {"key": "gpuward.test/why", "value": "x", "effect": "NoSchedule"}
LABELS = {"gpuward.test/pod": "takes"}
OURS = [{"key": "gpuward.test/why", "operator": "Exists"}]
# Older releases name the taint, and newer ones do not.
_TAINT_TEXT = re.compile(r"node\(s\) had untolerated taint.*")


def limits(gpus: int, cpu: str = "1") -> list[Any]:
    amounts = {"cpu": cpu, "memory": "1Gi", **({GPU: str(gpus)} if gpus else {})}
    return [{"name": "main", "image": "i", "resources": {"limits": amounts, "requests": amounts}}]


def affinity(*requirements: dict[str, Any], fields: tuple[dict[str, Any], ...] = ()) -> Any:
    term = {"matchExpressions": list(requirements), "matchFields": list(fields)}
    required = {"nodeSelectorTerms": [term]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def of_pods(field: str, label: str) -> Any:
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"gpuward.test/pod": label}},
    }
    return {field: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


# What keeps each pod from every node.
PODS_BY_NAME: dict[str, dict[str, Any]] = {
    "too-many-cards": {"containers": limits(9), "tolerations": OURS},
    "too-many-now": {"containers": limits(4), "tolerations": OURS},
    "too-much-cpu": {"containers": limits(2, "63"), "tolerations": OURS},
    "both": {"containers": limits(5, "200"), "tolerations": OURS},
    "no-toleration": {"containers": limits(1)},
    "selects-nothing": {
        "containers": limits(1),
        "tolerations": OURS,
        "nodeSelector": {"gpuward.test/model": "c"},
    },
    "selects-some": {
        "containers": limits(7),
        "tolerations": OURS,
        "nodeSelector": {"gpuward.test/model": "a"},
    },
    "affinity": {
        "containers": limits(1),
        "tolerations": OURS,
        "affinity": affinity({"key": "gpuward.test/size", "operator": "Gt", "values": ["80"]}),
    },
    "names-a-node": {
        "containers": limits(7),
        "tolerations": OURS,
        "affinity": affinity(
            fields=({"key": "metadata.name", "operator": "In", "values": ["why-a-0"]},)
        ),
    },
    "init-container": {
        "containers": limits(1),
        "initContainers": [{**limits(9)[0], "name": "init"}],
        "tolerations": OURS,
    },
    "port-taken": {
        "containers": [{**limits(1)[0], "ports": [{"containerPort": 80, "hostPort": 9400}]}],
        "tolerations": OURS,
    },
    "beside-nobody": {
        "containers": limits(0),
        "tolerations": OURS,
        "affinity": of_pods("podAffinity", "nobody"),
    },
    "away-from-all": {
        "containers": limits(0),
        "tolerations": OURS,
        "affinity": of_pods("podAntiAffinity", "takes"),
    },
    "uneven": {
        "containers": limits(0),
        "tolerations": OURS,
        "topologySpreadConstraints": [
            {
                "topologyKey": "gpuward.test/model",
                "maxSkew": 1,
                "minDomains": 9,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"gpuward.test/pod": "takes"}},
            }
        ],
    },
    "no-free-volume": {
        "containers": limits(0),
        "tolerations": OURS,
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "why-local"}}],
    },
    "too-many-volumes": {
        "containers": limits(0),
        "tolerations": OURS,
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "why-csi"}}],
    },
    **{
        name: {
            "containers": limits(1),
            "tolerations": OURS,
            "schedulingGates": [{"name": gate}],
        }
        for name, gate in (("gated", "gpuward.test/gate"), ("queued", "kueue.x-k8s.io/admission"))
    },
}
PROVISIONERS = {"why-local": "kubernetes.io/no-provisioner", "why-csi": "csi.gpuward.test"}


@pytest.fixture(scope="module")
def namespace(plane: ControlPlane) -> Iterator[str]:
    home = plane.namespace()
    names = []
    for model, size, count in (("a", "40", 3), ("b", "80", 2)):
        for number in range(count):
            name = f"why-{model}-{number}"
            labels = {"gpuward.test/model": model, "gpuward.test/size": size}
            node = gpu_node(name, GPU, 8, labels, taint=False)
            node["spec"]["taints"] = [TAINT]
            node["spec"]["unschedulable"] = name == "why-b-1"
            plane.create("/api/v1/nodes", node)
            names.append(name)
            driver = {"name": "csi.gpuward.test", "nodeID": name, "allocatable": {"count": 0}}
            csi_node = {"metadata": {"name": name}, "spec": {"drivers": [driver]}}
            plane.create("/apis/storage.k8s.io/v1/csinodes", csi_node)
    for name, provisioner in PROVISIONERS.items():
        made = {"provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
        plane.create("/apis/storage.k8s.io/v1/storageclasses", {"metadata": {"name": name}, **made})
        claim = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": name,
        }
        plane.create(
            f"/api/v1/namespaces/{home}/persistentvolumeclaims",
            {"metadata": {"name": name}, "spec": claim},
        )
    path = f"/api/v1/namespaces/{home}/pods"
    for number, name in enumerate(names[:-1]):
        # Each leaves two cards, and no CPU on some nodes.
        spec = {
            "containers": [
                {
                    **limits(6, "30" if number % 2 else "62")[0],
                    "ports": [{"containerPort": 80, "hostPort": 9400}],
                }
            ],
            "tolerations": OURS,
            "nodeSelector": {"kubernetes.io/hostname": name},
        }
        plane.create(path, {"metadata": {"name": f"takes-{name}", "labels": LABELS}, "spec": spec})
    for number in range(len(names) - 1):
        taken = f"{path}/takes-{names[number]}"
        eventually(partial(has_node, plane, taken))
    for name, spec in PODS_BY_NAME.items():
        plane.create(path, {"metadata": {"name": name, "labels": LABELS}, "spec": spec})
    yield home
    for name in names:
        answer = plane.request("DELETE", f"/api/v1/nodes/{name}")
        assert answer.status == HTTPStatus.OK
        plane.request("DELETE", f"/apis/storage.k8s.io/v1/csinodes/{name}")
    for name in PROVISIONERS:
        plane.request("DELETE", f"/apis/storage.k8s.io/v1/storageclasses/{name}")


def has_node(plane: ControlPlane, path: str) -> bool:
    return "nodeName" in plane.request("GET", path).body["spec"]


def counts(message: str) -> Counter[str]:
    """Return how many nodes each reason of a message has, such as `3 Insufficient cpu`."""
    # What follows is about preemption.
    reasons = message.partition(" nodes are available: ")[2].partition(". ")[0]
    found: Counter[str] = Counter()
    for reason in reasons.rstrip(". ").split(", "):
        number, _, text = reason.partition(" ")
        found[_TAINT_TEXT.sub("node(s) had untolerated taint", text)] += int(number)
    return found


def said(plane: ControlPlane, namespace: str, name: str) -> str:
    """Return the scheduler's last message about a pod."""
    pod = plane.request("GET", f"/api/v1/namespaces/{namespace}/pods/{name}").body
    conditions = pod["status"].get("conditions", [])
    return next((c.get("message", "") for c in conditions if c["type"] == "PodScheduled"), "")


@pytest.mark.parametrize("name", [name for name in PODS_BY_NAME if name not in {"gated", "queued"}])
def test_the_sums_are_those_of_the_scheduler(
    plane: ControlPlane, namespace: str, name: str
) -> None:
    if name == "names-a-node" and minor_version(plane) < COUNTS_OTHER_NODES:
        pytest.skip("the scheduler of this release does not count the nodes that are not named")
    source = ApiServerSource(Connection.like_kubectl(str(plane.kubeconfig)))

    def agrees() -> bool:
        pod = source.get(PODS, namespace, name)
        assert pod is not None
        found = Explainer(Snapshot(source, PROFILE)).explain(pod)
        message = said(plane, namespace, name)
        if "nodes are available" not in message:
            return False
        assert not found.fitting
        return counts(found.summary) == counts(message)

    # Nodes of other tests come and go: until the scheduler has seen the same ones.
    eventually(agrees, what=said(plane, namespace, name))


def test_a_gate_is_what_the_scheduler_says(plane: ControlPlane, namespace: str) -> None:
    source = ApiServerSource(Connection.like_kubectl(str(plane.kubeconfig)))
    pod = source.get(PODS, namespace, "gated")
    assert pod is not None
    found = Explainer(Snapshot(source, PROFILE)).explain(pod)
    assert found.verdict == "it waits for the scheduling gates gpuward.test/gate"
    eventually(lambda: "gates" in said(plane, namespace, "gated"))
    assert found.fitting


def test_a_gate_of_kueue_is_no_error_where_kueue_is_not(
    plane: ControlPlane, namespace: str
) -> None:
    source = ApiServerSource(Connection.like_kubectl(str(plane.kubeconfig)))
    pod = source.get(PODS, namespace, "queued")
    assert pod is not None
    snapshot = Snapshot(source, PROFILE)
    found = Explainer(snapshot).explain(pod)
    assert found.verdict == "it waits for the scheduling gates kueue.x-k8s.io/admission"
    assert "the Workload that says why is not known here" in found.hurdles[0].remedy
    assert snapshot.missing_rights == ()


def test_pods_of_lower_priority_may_go(plane: ControlPlane) -> None:
    home, name = plane.namespace(), "why-preemption"
    node = gpu_node(name, GPU, 8, {}, taint=False)
    node["spec"]["taints"] = [{**TAINT, "key": name}]
    plane.create("/api/v1/nodes", node)
    path = f"/api/v1/namespaces/{home}/pods"
    for value, class_name, policy in ((8, "why-evicts", None), (7, "why-waits", "Never")):
        made = {"metadata": {"name": class_name}, "value": value}
        made |= {"preemptionPolicy": policy} if policy else {}
        plane.create("/apis/scheduling.k8s.io/v1/priorityclasses", made)
    own = [{"key": name, "operator": "Exists"}]
    only = {"tolerations": own, "nodeSelector": {"kubernetes.io/hostname": name}}
    try:
        plane.create(path, {"metadata": {"name": "low"}, "spec": {"containers": limits(8), **only}})
        eventually(partial(has_node, plane, f"{path}/low"))
        source = ApiServerSource(Connection.like_kubectl(str(plane.kubeconfig)))

        def asked(class_name: str) -> Explanation:
            """Return the explanation of the pod before it exists; then it is created."""
            spec = {"containers": limits(8), "priorityClassName": class_name, **only}
            pod = {"metadata": {"name": class_name, "namespace": home}, "spec": spec}
            found = Explainer(Snapshot(source, PROFILE)).explain_workload(Workload(pod, 1))
            # API servers know a new class of priorities a little later.
            eventually(lambda: plane.create(path, pod), what=f"a pod of {class_name}")
            return found

        waits = asked("why-waits")
        assert (waits.answer, waits.evicting) == (Answer.CANNOT, ())
        eventually(lambda: "Insufficient" in said(plane, home, "why-waits"))
        evicts = asked("why-evicts")
        assert (evicts.answer, evicts.evicting) == (Answer.NOT_KNOWN, (name,))
        eventually(partial(has_node, plane, f"{path}/why-evicts"))
        assert not has_node(plane, f"{path}/why-waits")
    finally:
        plane.request("DELETE", f"/api/v1/nodes/{name}")
        for class_name in ("why-evicts", "why-waits"):
            plane.request("DELETE", f"/apis/scheduling.k8s.io/v1/priorityclasses/{class_name}")

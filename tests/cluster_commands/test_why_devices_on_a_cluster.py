"""`gpuward why` and a real kube-scheduler agree about pods that ask for devices."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
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

NODE, DRIVER, CLASS = "why-devices", "why.example.com", "why-devices"
PROFILE = default_policy().profile
RESOURCE = "example.com/why-device"
COUNTS_TAINTS_AND_RESOURCES = 37
"""A minor version in which both are stable."""
API = "/apis/resource.k8s.io/v1"


def device(name: str, model: str, **content: Any) -> dict[str, Any]:
    return {"name": name, "attributes": {"model": {"string": model}}, **content}


DEVICES = [
    device("d0", "A100", taints=[{"key": "broken", "effect": "NoSchedule"}]),
    device("d1", "A100"),
    device("d2", "H100"),
]


def selects(expression: str) -> dict[str, Any]:
    text = f"device.attributes['{DRIVER}'].{expression}"
    return {"selectors": [{"cel": {"expression": text}}]}


# What keeps each pod from every node, beside the node selector.
REQUESTS: dict[str, tuple[dict[str, Any], str]] = {
    "two": ({"count": 2}, "taken: d1 (claim"),
    "other-model": (selects("model == 'B200'"), "d0, d1, d2 does not match"),
    "lacks": (selects("index == 0"), "lacks what a selector reads"),
    "all": ({"allocationMode": "All"}, "d0 has the taint broken:NoSchedule"),
}


@pytest.fixture(scope="module")
def namespace(plane: ControlPlane) -> Iterator[str]:
    if minor_version(plane) < COUNTS_TAINTS_AND_RESOURCES:
        pytest.skip("taints of devices and resources of classes are not stable in this release")
    home = plane.namespace()
    plane.create("/api/v1/nodes", gpu_node(NODE, "example.com/other", 1, {}, taint=False))
    pool = {"name": NODE, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": NODE, "pool": pool, "devices": DEVICES}
    plane.create(f"{API}/resourceslices", {"metadata": {"name": NODE}, "spec": spec})
    selectors = [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]
    spec = {"extendedResourceName": RESOURCE, "selectors": selectors}
    plane.create(f"{API}/deviceclasses", {"metadata": {"name": CLASS}, "spec": spec})
    create_pod(plane, home, "first", selects("model == 'A100'"))
    eventually(partial(has_node, plane, home, "first"))
    yield home
    for path in (f"/api/v1/nodes/{NODE}", f"{API}/resourceslices/{NODE}"):
        plane.request("DELETE", path)
    plane.request("DELETE", f"{API}/deviceclasses/{CLASS}")


def create_pod(plane: ControlPlane, home: str, name: str, request: dict[str, Any]) -> None:
    """A pod with a claim for what is requested."""
    exactly = {"deviceClassName": CLASS, **request}
    devices = {"requests": [{"name": "r", "exactly": exactly}]}
    claim = {"metadata": {"name": name}, "spec": {"devices": devices}}
    plane.create(f"{API}/namespaces/{home}/resourceclaims", claim)
    wanted = pod(name, resourceClaims=[{"name": "d", "resourceClaimName": name}])
    wanted["spec"]["containers"][0]["resources"] = {"claims": [{"name": "d"}]}
    plane.create(f"/api/v1/namespaces/{home}/pods", wanted)


def pod(name: str, limits: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "i", "resources": {"limits": limits or {}}}
    only = {"nodeSelector": {"kubernetes.io/hostname": NODE}}
    return {"metadata": {"name": name}, "spec": {"containers": [container], **only, **spec}}


def has_node(plane: ControlPlane, home: str, name: str) -> bool:
    found = plane.request("GET", f"/api/v1/namespaces/{home}/pods/{name}").body
    return "nodeName" in found["spec"]


def said(plane: ControlPlane, home: str, name: str) -> str:
    """Return the scheduler's last message about a pod."""
    found = plane.request("GET", f"/api/v1/namespaces/{home}/pods/{name}").body
    conditions = found["status"].get("conditions", [])
    return next((c.get("message", "") for c in conditions if c["type"] == "PodScheduled"), "")


def explain(plane: ControlPlane, home: str, name: str) -> Explanation:
    source = ApiServerSource(Connection.like_kubectl(str(plane.kubeconfig)))
    found = source.get(PODS, home, name)
    assert found is not None
    return Explainer(Snapshot(source, PROFILE)).explain(found)


@pytest.mark.parametrize("name", REQUESTS)
def test_devices_that_a_claim_cannot_have(plane: ControlPlane, namespace: str, name: str) -> None:
    request, reason = REQUESTS[name]
    create_pod(plane, namespace, name, request)
    lacks = "CEL runtime error: no such key: index"
    words = lacks if name == "lacks" else "1 cannot allocate all claims"
    # Before, it may say that it does not know the claim.
    eventually(lambda: words in said(plane, namespace, name), what=words)
    found = explain(plane, namespace, name)
    assert found.answer is Answer.CANNOT
    (group,) = (one for one in found.groups if NODE in one.names)
    assert any(reason in line for line in group.reasons), group
    if name != "lacks":
        assert group.messages == ("cannot allocate all claims",)


def test_devices_for_a_resource_that_a_class_serves(plane: ControlPlane, namespace: str) -> None:
    source = ApiServerSource(Connection.like_kubectl(str(plane.kubeconfig)))
    for count, answer in ((2, Answer.CANNOT), (1, Answer.CAN)):
        wanted = pod(f"resource-{count}", {RESOURCE: str(count)})
        wanted["metadata"]["namespace"] = namespace
        found = Explainer(Snapshot(source, PROFILE)).explain_workload(Workload(wanted, 1))
        assert found.answer is answer
        plane.create(f"/api/v1/namespaces/{namespace}/pods", wanted)
    eventually(partial(has_node, plane, namespace, "resource-1"))
    eventually(lambda: "cannot allocate all claims" in said(plane, namespace, "resource-2"))
    assert not has_node(plane, namespace, "resource-2")

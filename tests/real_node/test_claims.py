"""Claims for devices on a real node, from the manifest to the devices of the container."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.testkit.admission.reviews import container, pod, variable
from tests.testkit.admission.server_process import Server
from tests.testkit.container_runtime.node import ALL
from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.control_plane.processes import eventually
from tests.testkit.dry_runs import minor_version
from tests.testkit.real_node.node import RealNode
from tests.testkit.real_node.pods import devices, waiting_pod
from webhook.registration import MODE_LABEL

DRIVER = "gpu.nvidia.com"
CLASS = "gpu.nvidia.com"
EXTENDED = "example.com/claimed-gpu"
EXTENDED_SINCE = 36
"""The minor version of Kubernetes that serves them without a feature gate."""
RESOURCES = "/apis/resource.k8s.io/v1"
ADMIN_LABEL = "resource.kubernetes.io/admin-access"


def card(index: str, product: str) -> dict[str, Any]:
    """A device of the driver."""
    return {
        "name": f"gpu-{index}",
        "attributes": {"productName": {"string": product}},
        "capacity": {"memory": {"value": "80Gi"}},
    }


@pytest.fixture(scope="module")
def cluster(real_node: RealNode, server: Server) -> Iterator[Cluster]:
    """The cluster, whose node offers its cards by a driver too. Nothing else uses them."""
    assert server.url
    plane = real_node.plane
    expression = f"device.driver == '{DRIVER}'"
    for name, more in ((CLASS, {}), ("extended", {"extendedResourceName": EXTENDED})):
        spec = {"selectors": [{"cel": {"expression": expression}}], **more}
        plane.create(f"{RESOURCES}/deviceclasses", {"metadata": {"name": name}, "spec": spec})
    real_node.start_driver(DRIVER, [card("0", "A100"), card("1", "A100"), card("2", "H100")])
    slices = f"{RESOURCES}/resourceslices"
    eventually(lambda: plane.request("GET", slices).body["items"], what="the driver's slice")
    yield plane
    real_node.end("dra-driver")
    for name in (CLASS, "extended"):
        plane.request("DELETE", f"{RESOURCES}/deviceclasses/{name}")


@pytest.fixture
def deny(real_node: RealNode, cluster: Cluster) -> Iterator[str]:
    """A namespace in mode `deny`."""
    name = cluster.namespace({MODE_LABEL: "deny"})
    yield name
    real_node.remove_pods(name)


@pytest.fixture
def without(real_node: RealNode, cluster: Cluster) -> Iterator[str]:
    """A namespace that gpuward does not evaluate."""
    name = cluster.namespace()
    yield name
    real_node.remove_pods(name)


def claim(*requests: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The spec of a claim; by default for one card of the class."""
    wanted = requests or ({"name": "card", "exactly": {"deviceClassName": CLASS, **more}},)
    return {"devices": {"requests": list(wanted)}}


def template(plane: Cluster, namespace: str, spec: dict[str, Any]) -> None:
    """Create the template `cards`."""
    path = f"{RESOURCES}/namespaces/{namespace}/resourceclaimtemplates"
    plane.create(path, {"metadata": {"name": "cards"}, "spec": {"spec": spec}})


def claiming(*containers: dict[str, Any], **source: str) -> dict[str, Any]:
    """A pod with a claim; by default by the template `cards`."""
    entry = {"name": "gpu", **(source or {"resourceClaimTemplateName": "cards"})}
    return pod(*containers, resourceClaims=[entry])


def using(name: str = "main", request: str = "", **options: Any) -> dict[str, Any]:
    """A container that uses the pod's claim, or one request of it."""
    entry = {"name": "gpu", **({"request": request} if request else {})}
    return {**container(resources={"claims": [entry]}, **options), "name": name}


def test_each_pod_of_a_template_gets_a_card_of_its_own(
    real_node: RealNode, cluster: Cluster, deny: str
) -> None:
    template(cluster, deny, claim())
    for name in ("a", "b", "c"):
        waiting_pod(real_node, deny, name, claiming(using()))
    found = [devices(real_node, deny, name).gpus for name in ("a", "b", "c")]
    assert [len(cards) for cards in found] == [1, 1, 1]
    assert frozenset().union(*found) == ALL


def test_a_selector_chooses_the_card(real_node: RealNode, cluster: Cluster, deny: str) -> None:
    expression = f"device.attributes['{DRIVER}'].productName == 'H100'"
    template(cluster, deny, claim(selectors=[{"cel": {"expression": expression}}]))
    waiting_pod(real_node, deny, "a", claiming(using()))
    assert devices(real_node, deny, "a").gpus == {"2"}


def test_pods_that_name_one_claim_share_its_card(
    real_node: RealNode, cluster: Cluster, deny: str
) -> None:
    path = f"{RESOURCES}/namespaces/{deny}/resourceclaims"
    cluster.create(path, {"metadata": {"name": "shared"}, "spec": claim()})
    for name in ("a", "b"):
        waiting_pod(real_node, deny, name, claiming(using(), resourceClaimName="shared"))
    first, second = (devices(real_node, deny, name).gpus for name in ("a", "b"))
    assert len(first) == 1
    assert first == second


def test_a_container_gets_the_request_that_it_names_and_another_nothing(
    real_node: RealNode, cluster: Cluster, deny: str
) -> None:
    requests = [{"name": name, "exactly": {"deviceClassName": CLASS}} for name in ("x", "y")]
    template(cluster, deny, claim(*requests))
    containers = (using("main", "x"), using("second", "y"), {**container(), "name": "none"})
    waiting_pod(real_node, deny, "a", claiming(*containers))
    found = {each["name"]: devices(real_node, deny, "a", each["name"]).gpus for each in containers}
    assert [len(found[name]) for name in ("main", "second", "none")] == [1, 1, 0]
    assert found["main"] != found["second"]


def test_an_extended_resource_is_a_claim_by_another_name(
    real_node: RealNode, cluster: Cluster, deny: str
) -> None:
    """The scheduler makes the claim; no device plugin takes part."""
    if minor_version(cluster) < EXTENDED_SINCE:
        pytest.skip("such resources are behind a feature gate of this release")
    made = pod(container(resources={"limits": {EXTENDED: 1}}))
    waiting_pod(real_node, deny, "a", made)
    assert len(devices(real_node, deny, "a").gpus) == 1
    path = f"{RESOURCES}/namespaces/{deny}/resourceclaims"
    (made_claim,) = cluster.request("GET", path).body["items"]
    annotations = made_claim["metadata"]["annotations"]
    assert annotations["resource.kubernetes.io/extended-resource-claim"] == "true"


def test_the_variable_beside_a_claim_gives_all_cards_unless_gpuward_fixes_it(
    real_node: RealNode, cluster: Cluster, deny: str, without: str
) -> None:
    """And `void`, with which gpuward hides them, leaves the claimed card visible."""
    for namespace in (without, deny):
        template(cluster, namespace, claim())
        waiting_pod(real_node, namespace, "a", claiming(using(**variable("all"))))
    assert devices(real_node, without, "a").gpus == ALL
    assert len(devices(real_node, deny, "a").gpus) == 1
    waiting_pod(real_node, without, "void", claiming(using(**variable("void"))))
    assert len(devices(real_node, without, "void").gpus) == 1


def test_admin_access_gives_cards_that_others_have(
    real_node: RealNode, cluster: Cluster, deny: str
) -> None:
    """To users who may label their namespace: the API server asks for nothing else."""
    template(cluster, deny, claim(allocationMode="All"))
    waiting_pod(real_node, deny, "owner", claiming(using()))
    assert devices(real_node, deny, "owner").gpus == ALL
    admin = cluster.namespace()
    spec = claim(allocationMode="All", adminAccess=True)
    path = f"{RESOURCES}/namespaces/{admin}/resourceclaimtemplates"
    refused = cluster.request("POST", path, {"metadata": {"name": "x"}, "spec": {"spec": spec}})
    assert ADMIN_LABEL in refused.body["message"]
    cluster.kubectl("label", "namespace", admin, f"{ADMIN_LABEL}=true")
    template(cluster, admin, spec)
    waiting_pod(real_node, admin, "admin", claiming(using()))
    assert devices(real_node, admin, "admin").gpus == ALL
    real_node.remove_pods(admin)

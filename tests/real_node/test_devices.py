"""The devices that the device plugin hands out on a real node, in each way of NVIDIA's plugin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.testkit.admission.reviews import container, gpus, pod, variable
from tests.testkit.admission.server_process import Server
from tests.testkit.container_runtime.node import ALL, GPUS, Settings
from tests.testkit.real_node.node import RESOURCE, RealNode, all_gpus
from tests.testkit.real_node.pods import create_pod, devices, waiting_pod
from webhook.registration import MODE_LABEL

FIRST = GPUS["0"]
MIG = "nvidia.com/mig-1g.10gb"


@pytest.fixture
def namespace(real_node: RealNode, server: Server) -> Iterator[str]:
    """A namespace in mode `deny`. At its end the node offers its GPUs as before."""
    assert server.url
    name = real_node.plane.namespace({MODE_LABEL: "deny"})
    yield name
    real_node.remove_pods(name)
    real_node.configure(Settings())
    real_node.offer([all_gpus()])


def run(node: RealNode, namespace: str, name: str, amount: int = 1, **options: Any) -> Any:
    """Create a pod that requests GPUs, and wait until its container runs."""
    resource = options.pop("resource", RESOURCE)
    made = pod(container(resources={"limits": {resource: amount}}, **options))
    return waiting_pod(node, namespace, name, made)


@pytest.mark.parametrize("strategy", ["envvar", "volume-mounts", "cdi-annotations", "cdi-cri"])
def test_each_pod_gets_a_card_of_its_own_and_no_other(
    real_node: RealNode, namespace: str, strategy: str
) -> None:
    """However the device plugin says so, and also where gpuward has removed `all`."""
    real_node.configure(Settings(volume_mounts=strategy == "volume-mounts"))
    real_node.offer([all_gpus(strategy)])
    more = [{}, {}, variable("all")]
    for number, options in enumerate(more):
        run(real_node, namespace, f"p{number}", **options)
    found = [devices(real_node, namespace, f"p{number}").gpus for number in range(3)]
    assert [len(cards) for cards in found] == [1, 1, 1]
    assert frozenset().union(*found) == ALL


def test_a_pod_waits_until_a_card_is_free(real_node: RealNode, namespace: str) -> None:
    run(real_node, namespace, "all", 3)
    made = pod(container(**gpus(limits=1)))
    late = {**made, "metadata": {"name": "late"}}
    assert create_pod(real_node.plane, namespace, late).status == 201
    real_node.wait_for_event(namespace, "late", "Insufficient nvidia.com/gpu")
    assert devices(real_node, namespace, "all").gpus == ALL


def test_replicas_of_a_card_are_the_card(real_node: RealNode, namespace: str) -> None:
    real_node.offer([{**all_gpus(), "devices": [f"{FIRST}::0", f"{FIRST}::1"]}])
    run(real_node, namespace, "p0")
    run(real_node, namespace, "p1")
    for name in ("p0", "p1"):
        assert devices(real_node, namespace, name).gpus == {"0"}


def test_two_replicas_in_one_container_are_one_card(real_node: RealNode, namespace: str) -> None:
    """The rule about more than one replica says so."""
    real_node.offer([{**all_gpus(), "devices": [f"{FIRST}::0", f"{FIRST}::1"]}])
    run(real_node, namespace, "both", 2)
    assert devices(real_node, namespace, "both").gpus == {"0"}


def test_an_instance_of_mig_is_a_resource_of_its_own(real_node: RealNode, namespace: str) -> None:
    """Here a whole card stands for the instance: the node has no driver to divide one."""
    resources = [{**all_gpus(), "devices": [FIRST]}, {**all_gpus(), "name": MIG}]
    resources[1]["devices"] = [GPUS["1"]]
    real_node.offer(resources)
    run(real_node, namespace, "instance", resource=MIG)
    run(real_node, namespace, "card")
    assert devices(real_node, namespace, "instance").gpus == {"1"}
    assert devices(real_node, namespace, "card").gpus == {"0"}


def test_an_unhealthy_card_is_handed_to_nobody(real_node: RealNode, namespace: str) -> None:
    """Yet the variable gives it: the runtime asks no device plugin."""
    real_node.offer([{**all_gpus(), "unhealthy": [FIRST]}])
    status = real_node.object["status"]
    assert (status["capacity"][RESOURCE], status["allocatable"][RESOURCE]) == ("3", "2")
    run(real_node, namespace, "p0", 2)
    assert devices(real_node, namespace, "p0").gpus == {"1", "2"}
    outside = real_node.plane.namespace()
    waiting_pod(real_node, outside, "all", pod(container(**variable("all"))))
    assert devices(real_node, outside, "all").gpus == ALL
    real_node.remove_pods(outside)

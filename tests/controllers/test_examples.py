"""Workloads of each controller run beside gpuward in mode deny, and leave nothing behind."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterator

import pytest

from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import TIMEOUT, eventually
from tests.testkit.controllers.controller import Controller
from tests.testkit.controllers.examples import (
    EXAMPLES,
    QUEUE,
    cluster_queue,
    job,
    local_queue,
    pod,
    resource_flavor,
    training_runtime,
)
from tests.testkit.controllers.steps import (
    apply_again,
    events,
    gpu_pods,
    remove,
    repeated_writes,
    run,
    wait_for_pods,
)
from tests.testkit.end_to_end.steps import apply, list_pods

pytest_plugins = ["tests.testkit.controllers.fixtures"]
NODE, OTHER_NODE = "gpu-controllers", "cpu-controllers"
NODE_LABELS = {"nvidia.com/gpu.present": "true"}


@pytest.fixture(scope="module")
def cluster(plane: ControlPlane, running: dict[str, Controller]) -> Iterator[ControlPlane]:
    """A cluster with the controllers, a GPU node with a taint, and a queue of its GPUs.

    Another node has none, for pods without GPUs.
    """
    assert running
    plane.gpu_node(NODE, gpus=16, labels=NODE_LABELS)
    plane.gpu_node(OTHER_NODE, gpus=0, taint=False)
    toleration = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    flavor = resource_flavor("gpus", nodeLabels=NODE_LABELS, tolerations=[toleration])
    for made in cluster_queue(16, flavor):
        apply(plane, "default", made)
    yield plane
    for node in (NODE, OTHER_NODE):
        plane.request("DELETE", f"/api/v1/nodes/{node}")


@pytest.fixture
def guarded(cluster: ControlPlane, new_namespace: Callable[[], str]) -> Iterator[str]:
    """A namespace in mode deny, with a queue."""
    yield from _prepared(cluster, new_namespace())


@pytest.fixture
def unguarded(cluster: ControlPlane) -> Iterator[str]:
    """A namespace in which gpuward does nothing, with the same queue."""
    yield from _prepared(cluster, cluster.namespace())


def _prepared(cluster: ControlPlane, namespace: str) -> Iterator[str]:
    apply(cluster, namespace, local_queue("gpus"))
    apply(cluster, namespace, training_runtime())
    yield namespace
    cluster.kubectl("delete", "namespace", namespace, "--wait=false")


@pytest.mark.parametrize("queue", ["", QUEUE], ids=["alone", "in-a-queue"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_it_runs_once_and_leaves_nothing(
    cluster: ControlPlane, guarded: str, unguarded: str, name: str, queue: str
) -> None:
    started = datetime.datetime.now(datetime.UTC)
    example = EXAMPLES[name]()
    example = example.queued() if queue else example
    pods = run(cluster, guarded, example)
    with_gpus = gpu_pods(pods)
    assert len(with_gpus) == example.gpu_pods
    assert {each["spec"]["nodeName"] for each in with_gpus} == {NODE}
    for each in pods:
        tolerations = [json.dumps(t, sort_keys=True) for t in each["spec"]["tolerations"]]
        assert len(tolerations) == len(set(tolerations))
    assert apply_again(cluster, guarded, example) == apply_again(cluster, unguarded, example)
    assert repeated_writes(cluster, guarded, started) == {}
    remove(cluster, guarded, example)


def test_a_pod_in_a_queue_runs(cluster: ControlPlane, guarded: str) -> None:
    example = pod().queued()
    [running] = run(cluster, guarded, example)
    assert running["spec"]["nodeName"] == NODE
    assert running["spec"].get("schedulingGates", []) == []
    remove(cluster, guarded, example)


def test_a_queue_admits_no_more_than_its_quota(cluster: ControlPlane, guarded: str) -> None:
    """What gpuward adds does not make Kueue count other amounts."""
    # The simulated pod of a Job completes at once, and then its quota is free again.
    first, second = pod(gpus=8).queued(), job(gpus=9, pods=1).queued()
    run(cluster, guarded, first)
    apply(cluster, guarded, second.manifest)

    def is_waiting() -> bool:
        found = cluster.kubectl("get", "workloads.kueue.x-k8s.io", "-n", guarded, "-o", "json")
        said = [
            condition["message"]
            for workload in json.loads(found.stdout)["items"]
            for condition in workload.get("status", {}).get("conditions", [])
        ]
        return any("insufficient unused quota for nvidia.com/gpu" in text for text in said)

    eventually(is_waiting, what="the second Job waits for its quota")
    assert len(list_pods(cluster, guarded)) == 1
    cluster.kubectl("delete", first.resource, "-n", guarded, TIMEOUT)
    wait_for_pods(cluster, guarded, second)
    remove(cluster, guarded, second)


@pytest.mark.parametrize("queue", ["", QUEUE], ids=["alone", "in-a-queue"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_a_refusal_reaches_the_user(
    cluster: ControlPlane, guarded: str, name: str, queue: str
) -> None:
    example = EXAMPLES[name](0)
    example = example.queued() if queue else example
    apply(cluster, guarded, example.manifest)

    def is_told() -> bool:
        said = events(cluster, guarded)
        assert any("[visible-devices-env]" in text for text in said), said
        return True

    eventually(is_told, what="an event has the refusal")
    assert not gpu_pods(list_pods(cluster, guarded))
    remove(cluster, guarded, example)

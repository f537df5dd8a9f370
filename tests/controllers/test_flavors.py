"""Kueue compares pod templates with the taints of its flavors; gpuward fixes Pods, and later."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cluster.doctor.cli import main as doctor
from policies.loading import default_policy
from rules.engine.fixing import check
from rules.inventory.inventory import Inventory
from rules.profile.context import Context
from rules.workloads.referred_objects import add_objects, new_builder
from tests.testkit.cases import TODAY
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import Processes, eventually
from tests.testkit.controllers.controller import Controller
from tests.testkit.controllers.examples import (
    EXAMPLES,
    Example,
    cluster_queue,
    local_queue,
    pod,
    resource_flavor,
    training_runtime,
)
from tests.testkit.controllers.steps import gpu_pods, remove, repeated_writes, run, wait_for_pods
from tests.testkit.end_to_end.steps import apply, list_pods, namespace_with_policy

pytest_plugins = ["tests.testkit.controllers.fixtures"]
NODE, OTHER_NODE = "gpu-flavors", "cpu-flavors"
NODE_LABELS = {"nvidia.com/gpu.present": "true"}
TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
# As users have it: a flavor with the GPUs, and another one for what needs none.
QUEUE = cluster_queue(
    16,
    resource_flavor("tainted", nodeLabels=NODE_LABELS, nodeTaints=[TAINT]),
    resource_flavor("plain"),
)
LOCAL_QUEUE = local_queue("tainted", "tainted")
KINDS: dict[str, Callable[[], Example]] = {"pod": pod, **EXAMPLES}
# How many of their templates ask for GPUs.
TEMPLATES = {"pod": 1, "job": 1, "job_set": 1, "leader_worker_set": 1, "ray_cluster": 1}
# The template of its pods is in another object, the runtime, which is merged with it.
NOT_KNOWN = ("train_job",)


@pytest.fixture(scope="module")
def cluster(plane: ControlPlane, running: dict[str, Controller]) -> Iterator[ControlPlane]:
    """A cluster with the controllers, and a queue whose flavor states a taint of its nodes."""
    assert running
    plane.gpu_node(NODE, gpus=16, labels=NODE_LABELS)
    plane.gpu_node(OTHER_NODE, gpus=0, taint=False)
    for made in QUEUE:
        apply(plane, "default", made)
    yield plane
    for node in (NODE, OTHER_NODE):
        plane.request("DELETE", f"/api/v1/nodes/{node}")


def _guarded(
    cluster: ControlPlane, processes: Processes, folder: Any, name: str, policy: str
) -> Iterator[str]:
    with namespace_with_policy(cluster, processes, folder, name, policy) as namespace:
        apply(cluster, namespace, LOCAL_QUEUE)
        apply(cluster, namespace, training_runtime())
        yield namespace


@pytest.fixture(scope="module")
def warned(
    cluster: ControlPlane, processes: Processes, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A namespace in mode deny, in which workloads stay as they are."""
    folder = tmp_path_factory.mktemp("flavors")
    yield from _guarded(cluster, processes, folder, "gpuward-flavors", "")


@pytest.fixture(scope="module")
def fixed(
    cluster: ControlPlane, processes: Processes, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """One in which the templates of workloads are fixed."""
    folder = tmp_path_factory.mktemp("fixed-flavors")
    policy = "workloads: fix\n"
    yield from _guarded(cluster, processes, folder, "gpuward-fixed-flavors", policy)


def _inventory(namespace: str) -> Inventory:
    builder = new_builder(default_policy().profile)
    for made in (*QUEUE, LOCAL_QUEUE):
        add_objects(builder, made, namespace)
    return builder.inventory()


def _is_reported(example: Example, namespace: str) -> bool:
    """Return whether a rule says that Kueue never admits the workload."""
    metadata = {**example.manifest["metadata"], "namespace": namespace}
    context = Context(TODAY, namespace=namespace, inventory=_inventory(namespace))
    found = check({**example.manifest, "metadata": metadata}, default_policy().rule_set(), context)
    return "untolerated-flavor" in {finding.rule for finding in found.findings}


def _says_untolerated(plane: ControlPlane, namespace: str) -> bool:
    found = plane.kubectl("get", "workloads.kueue.x-k8s.io", "-n", namespace, "-o", "json")
    return "untolerated taint" in found.stdout


@pytest.mark.parametrize("name", KINDS)
def test_kueue_never_admits_what_the_rule_reports(
    cluster: ControlPlane, warned: str, name: str
) -> None:
    example = KINDS[name]().queued("tainted")
    apply(cluster, warned, example.manifest)
    if _is_reported(example, warned) or name in NOT_KNOWN:
        says = lambda: _says_untolerated(cluster, warned)  # noqa: E731
        eventually(says, what="Kueue names the taint")
        # Of a LeaderWorkerSet there are pods, behind Kueue's gate.
        assert not [each for each in list_pods(cluster, warned) if each["spec"].get("nodeName")]
    else:
        wait_for_pods(cluster, warned, example)
    remove(cluster, warned, example)


@pytest.mark.parametrize("name", [name for name in KINDS if name not in NOT_KNOWN])
def test_a_policy_that_fixes_workloads_lets_kueue_admit_them(
    cluster: ControlPlane, fixed: str, name: str
) -> None:
    example = KINDS[name]().queued("tainted")
    apply(cluster, fixed, example.manifest)
    pods = gpu_pods(wait_for_pods(cluster, fixed, example))
    assert {each["spec"]["nodeName"] for each in pods} == {NODE}
    for each in pods:
        tolerations = [json.dumps(t, sort_keys=True) for t in each["spec"]["tolerations"]]
        assert len(tolerations) == len(set(tolerations))
    # JobSet refuses a second apply of what it has completed itself.
    again = apply(cluster, fixed, example.manifest, check=name != "job_set")
    assert (again.returncode == 0) is (name != "job_set")
    stored = cluster.kubectl("get", example.resource, "-n", fixed, "-o", "json").stdout
    assert stored.count('"key": "nvidia.com/gpu"') == TEMPLATES[name]
    assert repeated_writes(cluster, fixed, 25) == {}
    remove(cluster, fixed, example)


def test_doctor_names_the_flavor_and_who_waits_for_it(
    cluster: ControlPlane, warned: str, capsys: pytest.CaptureFixture[str]
) -> None:
    example = EXAMPLES["job"]().queued("tainted")
    apply(cluster, warned, example.manifest)
    eventually(lambda: _says_untolerated(cluster, warned), what="Kueue names the taint")
    doctor(["--kubeconfig", str(cluster.kubeconfig), "-o", "json"])
    rows = json.loads(capsys.readouterr().out)["rows"]
    [row] = [row for row in rows if row["subject"] == "resourceflavor/tainted"]
    assert row["state"] == "wrong"
    assert [name.partition(" in ")[2] for name in row["names"]] == [warned]
    remove(cluster, warned, example)


def test_a_flavor_that_adds_the_toleration_needs_nothing_else(
    cluster: ControlPlane, warned: str
) -> None:
    toleration = {"key": "nvidia.com/gpu", "operator": "Exists"}
    fields = {"nodeLabels": NODE_LABELS, "nodeTaints": [TAINT], "tolerations": [toleration]}
    for made in cluster_queue(16, resource_flavor("tolerated", **fields)):
        apply(cluster, "default", made)
    apply(cluster, warned, local_queue("tolerated", "tolerated"))
    for make in EXAMPLES.values():
        example = make().queued("tolerated")
        run(cluster, warned, example)
        remove(cluster, warned, example)

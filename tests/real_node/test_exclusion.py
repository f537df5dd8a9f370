"""Pods that are kept off GPU nodes: rows of docs/coverage.md that nothing else stops, on a node.

Without gpuward each of them runs on the node with GPUs: what those of docs/proof.md get there is in
tests/data/node_answers.yaml. The other node is a simulated one, because a machine has one `/dev`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.testkit.admission.reviews import container, gpus, pod
from tests.testkit.container_runtime.answers import data, on_a_node
from tests.testkit.container_runtime.node import ALL
from tests.testkit.control_plane.processes import Processes
from tests.testkit.coverage.observed import EXCLUSION_RULE, is_kept_off
from tests.testkit.coverage.table import NOT_STOPPED, bypasses
from tests.testkit.end_to_end.steps import namespace_with_policy
from tests.testkit.real_node.bypasses import BypassPod, prepare
from tests.testkit.real_node.node import RealNode
from tests.testkit.real_node.pods import answer, has_ended, pods, wait, waiting_pod

POLICY = f"rules: {{{EXCLUSION_RULE}: {{action: deny}}}}\n"
OTHER_NODE = "node-without-gpus"
# The pods near which two of the rows want to run; the second is in their own namespace.
PLUGIN_NAMESPACE, PLUGIN = "gpu-operator", {"app": "nvidia-device-plugin-daemonset"}
NEIGHBOUR, TRAINING = "neighbour", {"app": "training"}
# They fit on no other node: they say its name, or near which pods they want to run.
ONLY_THERE = {
    "privileged-by-the-name-of-a-node",
    "privileged-by-a-field-of-a-node",
    "privileged-near-the-device-plugin",
    "privileged-near-a-gpu-pod",
    "node-name-no-gpu",
}
_EXECUTED = {**data()["bypasses"], **data()["only_on_a_node"]}
STOPPED_HERE = [
    BypassPod(bypass, _EXECUTED.get(bypass.name, {}))
    for bypass in bypasses()
    if bypass.cell("pods") in {"announced", NOT_STOPPED}
    and bypass.cell("exclusion") in {"kept off", "refused"}
]
KEPT_OFF = [row for row in STOPPED_HERE if row.bypass.cell("exclusion") == "kept off"]
REFUSED = [row for row in STOPPED_HERE if row not in KEPT_OFF]
NOT_IN_PROOF = [row for row in STOPPED_HERE if row.name not in on_a_node()]


@pytest.fixture(scope="module")
def gpu_node(real_node: RealNode) -> Iterator[RealNode]:
    """The node with the images and labels of the pods, and a pod of a device plugin."""
    paths = {
        Path(volume["hostPath"]["path"])
        for row in STOPPED_HERE
        for volume in row.manifest["spec"].get("volumes", ())
        if "hostPath" in volume
    }
    missing = [path for path in paths if not path.exists()]
    prepare(real_node, STOPPED_HERE)
    real_node.plane.kubectl("create", "namespace", PLUGIN_NAMESPACE)
    plugin = {**pod(container()), "metadata": {"labels": PLUGIN}}
    wait("accounts", lambda: _has_account(real_node, PLUGIN_NAMESPACE))
    waiting_pod(real_node, PLUGIN_NAMESPACE, "plugin", plugin)
    yield real_node
    real_node.remove_pods(PLUGIN_NAMESPACE)
    for path in missing:
        if path.is_dir():  # which containerd has made for a container
            path.rmdir()


def _has_account(node: RealNode, namespace: str) -> bool:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    return node.plane.request("GET", path).status == 200


@contextmanager
def with_neighbour(node: RealNode, namespace: str) -> Iterator[None]:
    """A pod with a GPU in the namespace, whose pods are deleted at the end of the block."""
    training = {**pod(container(**gpus(limits=1))), "metadata": {"labels": TRAINING}}
    waiting_pod(node, namespace, NEIGHBOUR, training)
    yield
    path = f"/apis/apps/v1/namespaces/{namespace}/daemonsets"
    node.plane.request("DELETE", path)
    node.remove_pods(namespace)


def by_row(node: RealNode, namespace: str) -> dict[str, list[Any]]:
    """The pods of each row, of which a DaemonSet may have more than one."""
    found: dict[str, list[Any]] = {}
    for made in pods(node.plane, namespace):
        name = made["metadata"].get("labels", {}).get("bypass", made["metadata"]["name"])
        if name != NEIGHBOUR:
            found.setdefault(name, []).append(made)
    return found


def started(node: RealNode, namespace: str) -> int:
    """The number of containers that containerd has for the pods of rows, with their sandboxes."""
    label = 'labels."io.kubernetes.pod'
    wanted = f'{label}.namespace"=={namespace},{label}.name"!={NEIGHBOUR}'
    return len(node.ctr("containers", "list", "--quiet", wanted).split())


@pytest.fixture(scope="module")
def without_gpuward(gpu_node: RealNode) -> Iterator[str]:
    """A namespace that gpuward does not evaluate, with a pod for each row not in docs/proof.md."""
    name = gpu_node.plane.namespace()
    with with_neighbour(gpu_node, name):
        for row in NOT_IN_PROOF:
            row.create_what_it_needs(gpu_node.plane, name)
            assert row.create(gpu_node.plane, name).status == 201, row.name

        def have_ended() -> bool:
            made = by_row(gpu_node, name)
            left = [
                row.name
                for row in NOT_IN_PROOF
                if not all(has_ended(one, row.container) for one in made.get(row.name, [{}]))
            ]
            assert not left
            return True

        wait("the containers have ended", have_ended)
        yield name


def test_without_gpuward_each_runs_on_the_node_with_gpus(
    gpu_node: RealNode, without_gpuward: str
) -> None:
    made = by_row(gpu_node, without_gpuward)
    assert set(made) == {row.name for row in NOT_IN_PROOF}
    for name, (only,) in made.items():
        assert only["spec"]["nodeName"] == gpu_node.name, name
    assert started(gpu_node, without_gpuward) >= len(NOT_IN_PROOF)
    for row in NOT_IN_PROOF:
        [main] = row.manifest["spec"]["containers"]
        if main.get("securityContext", {}).get("privileged") and "lifecycle" not in main:
            assert answer(gpu_node.plane, made[row.name][0]).gpus == ALL, row.name


@pytest.fixture(scope="module")
def excluding(gpu_node: RealNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A namespace in mode deny with the rule."""
    with ExitStack() as stack:
        processes = Processes(tmp_path_factory.mktemp("servers"))
        stack.callback(processes.stop)
        folder = tmp_path_factory.mktemp("exclusion")
        name = stack.enter_context(
            namespace_with_policy(gpu_node.plane, processes, folder, "gpuward-exclusion", POLICY)
        )
        stack.enter_context(with_neighbour(gpu_node, name))
        yield name


@pytest.fixture(scope="module")
def kept_off(gpu_node: RealNode, excluding: str) -> str:
    """This namespace with the pods, after scheduler and kubelet have judged them."""
    for row in KEPT_OFF:
        row.create_what_it_needs(gpu_node.plane, excluding)
        assert row.create(gpu_node.plane, excluding).status == 201, row.name

    def are_judged() -> bool:
        made = by_row(gpu_node, excluding)
        assert {name for name, those in made.items() if all(map(is_turned_away, those))} == {
            row.name for row in KEPT_OFF
        }
        return True

    wait("no pod has found a node", are_judged)
    return excluding


def is_turned_away(made: Any) -> bool:
    """Return whether kube-scheduler finds no node for the pod, or the kubelet refuses it."""
    status = made["status"]
    conditions = {one["type"]: one for one in status.get("conditions", ())}
    if made["spec"].get("nodeName"):
        return bool(status["phase"] == "Failed" and status["reason"] == "NodeAffinity")
    return bool(conditions.get("PodScheduled", {}).get("reason") == "Unschedulable")


def test_kept_off_none_of_them_runs_there(gpu_node: RealNode, kept_off: str) -> None:
    made = [one for those in by_row(gpu_node, kept_off).values() for one in those]
    assert all(map(is_kept_off, made))
    assert started(gpu_node, kept_off) == 0


@pytest.fixture
def other_node(gpu_node: RealNode) -> Iterator[None]:
    """A simulated node without GPUs."""
    gpu_node.plane.gpu_node(OTHER_NODE, gpus=0, taint=False)
    yield
    gpu_node.plane.request("DELETE", f"/api/v1/nodes/{OTHER_NODE}")


@pytest.mark.usefixtures("other_node")
def test_kept_off_they_run_on_another_node(gpu_node: RealNode, kept_off: str) -> None:
    """Unless they want this one alone. It is the affinity that keeps them off, and nothing else."""
    wanted = {row.name for row in KEPT_OFF} - ONLY_THERE

    def run_elsewhere() -> bool:
        made = by_row(gpu_node, kept_off)
        assert wanted == {
            name
            for name, those in made.items()
            if any(one["spec"].get("nodeName") == OTHER_NODE for one in those)
        }
        return True

    wait("the pods run on the other node", run_elsewhere)
    assert started(gpu_node, kept_off) == 0


def test_those_that_select_the_node_are_refused(gpu_node: RealNode, excluding: str) -> None:
    for row in REFUSED:
        answered = row.create(gpu_node.plane, excluding)
        if not row.is_daemon:
            assert answered.status == 403, row.name
            assert f"[{EXCLUSION_RULE}]" in answered.body["message"], row.name
            continue
        assert answered.status == 201, answered
        gpu_node.wait_for_event(excluding, row.name, f"[{EXCLUSION_RULE}]")
    assert not {row.name for row in REFUSED} & set(by_row(gpu_node, excluding))

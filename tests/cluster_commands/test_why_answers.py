"""`gpuward why` is no surer than those who decide, and knows who they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cluster.why.cli import main
from cluster.why.explanation import Explanation, explain
from tests.testkit.why_command import CAN, CANNOT, GPU, NOT_KNOWN, Asked, node, pod


@pytest.fixture
def why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Asked:
    return Asked(tmp_path, capsys)


# Who decides.


def test_a_pod_that_failed_says_why_and_has_no_node(why: Asked) -> None:
    failed = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no devices"}
    status, out = why(node("a"), pod(nodeName="a", status=failed), name="p")
    assert status == CANNOT
    assert "It has failed on the node a: UnexpectedAdmissionError: no devices" in out
    assert "look at the device plugin of the node" in out


def test_a_pod_that_runs_has_its_node(why: Asked) -> None:
    running = pod(limits={GPU: 99}, nodeName="a", status={"phase": "Running"})
    assert why(node("a"), running, name="p") == (
        CAN,
        "ml/p asks for 99 nvidia.com/gpu It has the node a",
    )


def test_the_kubelet_refuses_what_its_node_has_no_room_for(why: Asked) -> None:
    status, out = why(node("a", 4), node("b"), manifest=pod(limits={GPU: 8}, nodeName="a"))
    assert status == CANNOT
    assert "The kubelet of a refuses it: the pod asks for 8 nvidia.com/gpu, and a" in out
    status, out = why(node("a", 4), node("b"), manifest=pod(limits={GPU: 8}, nodeName="b"))
    assert (status, "1 node can take it: b" in out) == (CAN, True)


def test_a_taint_without_execution_does_not_stop_a_pod_that_names_its_node(why: Asked) -> None:
    for effect, expected in (("NoSchedule", CAN), ("NoExecute", CANNOT)):
        tainted = node("a")
        tainted["spec"] = {"taints": [{"key": "k", "effect": effect}], "unschedulable": True}
        assert why(tainted, manifest=pod(limits={GPU: 1}, nodeName="a"))[0] == expected


def test_what_a_kubelet_does_about_a_device_that_its_node_lacks_is_not_known(why: Asked) -> None:
    status, out = why(node("a", 0), manifest=pod(limits={GPU: 1}, nodeName="a"))
    assert status == NOT_KNOWN
    assert "what the kubelet does about nvidia.com/gpu, which its node does not offer" in out


def test_a_named_node_that_does_not_exist(why: Asked) -> None:
    status, out = why(node("a"), manifest=pod(nodeName="x"))
    assert (status, "It names the node x, which does not exist" in out) == (CANNOT, True)
    status, out = why(node("a"), pod(nodeName="x"), name="p")
    assert (status, "It has the node x, which does not exist" in out) == (CANNOT, True)


MPS = {"nvidia.com/gpu.sharing-strategy": "mps", "nvidia.com/gpu.product": "A100-SHARED"}


@pytest.mark.parametrize(("gpus", "expected"), [(1, CAN), (2, CANNOT)])
def test_mps_gives_a_container_one_share(why: Asked, gpus: int, expected: int) -> None:
    status, out = why(node("a", 20, labels=MPS), manifest=pod(limits={GPU: gpus}))
    assert (status, "MPS" in out) == (expected, expected == CANNOT)


def test_time_slicing_does_not(why: Asked) -> None:
    sliced = {**MPS, "nvidia.com/gpu.sharing-strategy": "time-slicing"}
    assert why(node("a", 20, labels=sliced), manifest=pod(limits={GPU: 2}))[0] == CAN


def test_what_is_not_looked_at_makes_no_answer(why: Asked) -> None:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    status, out = why(node("a"), manifest=pod(volumes=volumes))
    assert status == NOT_KNOWN
    assert "1 node may take it: a" in out
    assert out.endswith("Not known: where the volume of its claim c is")
    # What refuses it anyway is known.
    status, out = why(node("a"), manifest=pod(limits={GPU: 9}, volumes=volumes))
    assert (status, "Not known" in out) == (CANNOT, False)


# Devices.


def test_nodes_of_a_model_that_lost_a_card_are_told_apart(why: Asked) -> None:
    labels = {"nvidia.com/gpu.product": "H100"}
    nodes = [node("whole", labels=labels), node("broken", 7, labels=labels, capacity=8)]
    full = pod("full", {GPU: 8}, nodeName="whole", status={"phase": "Running"})
    status, out = why(*nodes, full, manifest=pod(limits={GPU: 8}))
    assert status == CANNOT
    assert "1 node, H100: whole - the pod asks for 8 nvidia.com/gpu, and at most 0 of 8" in out
    assert "1 node, H100: broken - the pod asks for 8 nvidia.com/gpu, and only 7 of 8 are" in out
    assert "look at the device plugin and the cards of these nodes" in out


def test_a_node_without_a_device_plugin_is_not_one_without_cards(why: Asked) -> None:
    labels = {"nvidia.com/gpu.present": "true"}
    status, out = why(node("g", 0, labels=labels), node("c", 0), manifest=pod(limits={GPU: 1}))
    assert status == CANNOT
    assert "1 node: g - the pod asks for 1 nvidia.com/gpu, and the nodes offer none" in out
    assert "1 node: c - the pod asks for 1 nvidia.com/gpu, which the nodes do not offer" in out


def test_a_card_that_is_sick_is_not_an_absent_one(why: Asked) -> None:
    _, out = why(node("g", 0, capacity=8), manifest=pod(limits={GPU: 1}))
    assert "and none of the 8 is healthy" in out


def ack(name: str, card: int, amount: int) -> dict[str, Any]:
    record = {"ALIYUN_COM_GPU_MEM_IDX": str(card), "ALIYUN_COM_GPU_MEM_POD": str(amount)}
    running = {"phase": "Running"}
    limits = {"aliyun.com/gpu-mem": amount}
    return pod(name, limits, metadata={"annotations": record}, nodeName="a", status=running)


@pytest.mark.parametrize(("asked", "expected"), [(8, CAN), (10, CANNOT), (93, CANNOT)])
def test_the_sum_of_cards_is_not_room_on_one(why: Asked, asked: int, expected: int) -> None:
    cards = node("a", 0, shared=92)
    taken = [ack(f"t{card}", card, 15) for card in range(4)]
    status, out = why(cards, *taken, manifest=pod(limits={"aliyun.com/gpu-mem": asked}))
    assert status == expected
    if asked == 10:  # of the table
        assert "asks for 10 aliyun.com/gpu-mem of one card, and at most 8 of 23 are free" in out


def test_a_share_that_no_record_places_is_not_known(why: Asked) -> None:
    cards = node("a", 0, shared=92)
    taken = ack("t", 0, 15)
    del taken["metadata"]["annotations"]
    status, out = why(cards, taken, manifest=pod(limits={"aliyun.com/gpu-mem": 10}))
    assert (status, "how much aliyun.com/gpu-mem is free on one card" in out) == (NOT_KNOWN, True)


MEM = "aliyun.com/gpu-mem"


@pytest.mark.parametrize(("asked", "expected"), [(40, CAN), (48, CANNOT)])
def test_memory_that_a_label_spreads_is_asked_of_each_of_several_cards(
    why: Asked, asked: int, expected: int
) -> None:
    spread = pod(limits={MEM: asked}, metadata={"labels": {"aliyun.com/gpu-count": "2"}})
    status, out = why(node("a", 0, shared=92), ack("t", 0, 15), manifest=spread)
    assert status == expected
    if expected == CANNOT:
        assert f"asks for 24 {MEM} of each of 2 cards, and at most 23 are free on each" in out


def test_an_init_container_gets_its_share_of_one_card(why: Asked) -> None:
    first = {"name": "first", "image": "i", "resources": {"limits": {MEM: 24}}}
    status, out = why(
        node("a", 0, shared=92), manifest=pod(limits={MEM: 8}, initContainers=[first])
    )
    assert (status, f"asks for 24 {MEM} of one card" in out) == (CANNOT, True)


def uncounted_cards(**labels: str) -> dict[str, Any]:
    """A node that does not say how many cards it has."""
    made = node("a", 0, shared=92, labels=labels)
    for field in ("capacity", "allocatable"):
        made["status"][field].pop("aliyun.com/gpu-count", None)
    return made


@pytest.mark.parametrize(("asked", "expected"), [(20, NOT_KNOWN), (24, CANNOT)])
def test_labels_say_how_large_cards_are_that_nothing_counts(
    why: Asked, asked: int, expected: int
) -> None:
    cards = uncounted_cards(**{"aliyun.accelerator/nvidia_mem": "23552MiB"})
    status, out = why(cards, manifest=pod(limits={MEM: asked}))
    assert status == expected
    assert (f"how much {MEM} is free on one card" in out) == (expected == NOT_KNOWN)


def test_a_sum_of_cards_that_nothing_counts_is_not_room_on_one(why: Asked) -> None:
    status, _ = why(uncounted_cards(), manifest=pod(limits={MEM: 20}))
    assert status == NOT_KNOWN


HAMI = {"hami.io/node-nvidia-register": "GPU-1,10,15360,100,NVIDIA-T4,0,true:"}


def test_what_hamis_scheduler_counts_no_node_must_offer(why: Asked) -> None:
    asks = {GPU: 1, "nvidia.com/gpumem": 3000}
    hami = node("a", 10, annotations=HAMI)
    status, out = why(hami, manifest=pod(limits=asks, schedulerName="hami-scheduler"))
    assert (status, "1 node can take it: a" in out) == (NOT_KNOWN, True)
    # Its webhook gives the pod to its scheduler, unless the pod is there and it has not.
    status, out = why(hami, manifest=pod(limits=asks))
    assert (status, "whether a webhook gives it to the scheduler" in out) == (NOT_KNOWN, True)
    status, out = why(hami, pod(limits=asks), name="p")
    assert (status, "3000 nvidia.com/gpumem, which the nodes do not offer" in out) == (CANNOT, True)
    # More than a card has is too much for every scheduler.
    large = pod(limits={GPU: 1, "nvidia.com/gpumem": 16000}, schedulerName="hami-scheduler")
    assert "at most 15360 of 15360 are free on one card" in why(hami, manifest=large)[1]


def test_a_part_of_a_card_needs_a_card(why: Asked) -> None:
    half = pod(metadata={"annotations": {"gpu-fraction": "0.5"}}, schedulerName="kai-scheduler")
    status, out = why(node("g", 1), node("c", 0), manifest=half)
    assert (status, "1 node can take it: g" in out) == (NOT_KNOWN, True)
    whole = pod("w", {GPU: 1}, nodeName="g", status={"phase": "Running"})
    status, out = why(node("g", 1), node("c", 0), whole, manifest=half)
    assert (status, "none of 2 nodes can take it" in out) == (NOT_KNOWN, True)


DEVICE_CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "gpu.nvidia.com"},
    "spec": {"extendedResourceName": GPU},
}


@pytest.mark.parametrize("name", [GPU, "deviceclass.resource.kubernetes.io/gpu.nvidia.com"])
def test_what_a_device_class_serves_no_node_must_offer(why: Asked, name: str) -> None:
    status, out = why(node("a", 0), DEVICE_CLASS, manifest=pod(limits={name: 1}))
    assert status == NOT_KNOWN
    assert "Not known: the ResourceSlices, of which there is none" in out
    assert why(node("a", 0), manifest=pod(limits={name: 1}))[0] == CANNOT


def slice_of(name: str) -> dict[str, Any]:
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": "gpu-0"}, {"name": "gpu-1"}]
    spec = {"driver": "gpu.nvidia.com", "nodeName": name, "pool": pool, "devices": devices}
    made = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}
    return {**made, "metadata": {"name": f"of-{name}"}, "spec": spec}


def test_a_device_class_serves_where_drivers_have_devices(why: Asked) -> None:
    asks = pod(limits={GPU: 1})
    status, out = why(node("a", 0), node("b", 0), DEVICE_CLASS, slice_of("b"), manifest=asks)
    assert (status, "1 node can take it: b" in out) == (CAN, True)
    status, out = why(node("b", 0), DEVICE_CLASS, slice_of("b"), manifest=pod(limits={GPU: 3}))
    assert (status, "by the class gpu.nvidia.com, and only 2 of them" in out) == (CANNOT, True)
    # Where a device plugin offers the resource, and all of it is taken.
    full = pod("full", {GPU: 8}, nodeName="c", status={"phase": "Running"})
    status, out = why(node("c"), full, node("b", 0), DEVICE_CLASS, slice_of("b"), manifest=asks)
    assert (status, "1 node can take it: b" in out) == (CAN, True)
    status, out = why(node("b", 0), DEVICE_CLASS, slice_of("b"), manifest=job(3, 1))
    assert (status, "for how many of its pods there are devices" in out) == (NOT_KNOWN, True)


# LimitRanges.


def limit_range(**item: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "cards", "namespace": "ml"},
        "spec": {"limits": [{"type": "Container", **item}]},
    }


def test_a_limit_range_gives_cards_to_who_asks_for_none(why: Asked) -> None:
    limits = limit_range(max={GPU: 8}, min={GPU: 2})
    status, out = why(node("a", 4), limits, manifest=pod())
    assert status == CANNOT
    assert "The LimitRange cards gives the container main 8 nvidia.com/gpu" in out
    # The pod that is there has got it already, or was there before.
    assert why(node("a", 4), limits, pod(), name="p")[0] == CAN


def test_a_limit_range_refuses(why: Asked) -> None:
    limits = limit_range(max={GPU: 4}, min={GPU: 2})
    for gpus, word in ((8, "more than 4"), (1, "less than 2")):
        status, out = why(node("a"), limits, manifest=pod(limits={GPU: gpus}))
        assert (status, f"main asks for {word} nvidia.com/gpu" in out) == (CANNOT, True)


# Workloads, and all pods that wait.


def job(pods: int, gpus: int = 8, **spec: Any) -> dict[str, Any]:
    template = {"spec": pod(limits={GPU: gpus}, **spec)["spec"]}
    amounts = {"parallelism": pods, "completions": pods, "template": template}
    metadata = {"name": "big", "namespace": "ml"}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": amounts}


def test_a_workload_says_how_many_of_its_pods_have_room(why: Asked) -> None:
    nodes = [node("a"), node("b")]
    status, out = why(*nodes, manifest=job(2))
    assert (status, "2 of its 2 pods have room." in out) == (CAN, True)
    status, out = why(*nodes, manifest=job(5, 4))
    assert status == CANNOT
    assert "4 of its 5 pods have room. The next: none of 2 nodes can take it: the pod asks" in out


HOSTNAME = "kubernetes.io/hostname"


def test_the_verdict_counts_the_nodes_that_it_is_about(why: Asked) -> None:
    nodes = [node(name, 2, labels={HOSTNAME: name}) for name in ("a", "b", "c")]
    full = pod("full", {GPU: 2}, nodeName="a", status={"phase": "Running"})
    waits = pod(limits={GPU: 1}, nodeSelector={HOSTNAME: "a"})
    status, out = why(*nodes, full, waits, name="p")
    assert status == CANNOT
    assert "None of 3 nodes can take it: 1 of them because the pod asks for 1" in out
    # All nodes have the same reason.
    waits = pod(limits={GPU: 1}, nodeSelector={HOSTNAME: "x"})
    assert (
        f"None of 3 nodes can take it: the pod selects {HOSTNAME}=x"
        in why(*nodes, waits, name="p")[1]
    )


def test_it_is_known_since_when_a_pod_waits_however_it_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    created = "2030-01-02T03:04:05Z"
    waits = pod(limits={GPU: 1})
    waits["metadata"]["creationTimestamp"] = created
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"kind": "List", "items": [node("a", 0), waits]}))
    for name in (["p"], []):
        assert main([*name, "-f", str(file), "-o", "json"]) == CANNOT
        found = json.loads(capsys.readouterr().out)
        [one] = found.get("pods", [found])
        assert one["since"] == created


def test_what_a_limit_range_gives_counts_for_each_pod(why: Asked) -> None:
    status, out = why(node("a"), limit_range(max={GPU: 4}), manifest=job(3, 0))
    assert (status, "3 of its 3 pods have room." in out) == (CAN, True)
    asks_for_nothing = job(3)
    asks_for_nothing["spec"]["template"]["spec"]["containers"][0]["resources"] = {}
    status, out = why(node("a"), limit_range(max={GPU: 4}), manifest=asks_for_nothing)
    assert (status, "2 of its 3 pods have room." in out) == (CANNOT, True)


def test_very_many_pods_are_not_counted_one_by_one(why: Asked) -> None:
    status, out = why(node("a"), manifest=job(10**8, 0))
    assert (status, "110 of its 100,000,000 pods have room." in out) == (CANNOT, True)


def test_each_template_of_a_workload_is_asked_about(why: Asked) -> None:
    def replica(gpus: int) -> dict[str, Any]:
        return {"replicas": 1, "template": {"spec": pod(limits={GPU: gpus})["spec"]}}

    specs = {"Master": replica(1), "Worker": replica(9)}
    metadata = {"name": "train", "namespace": "ml"}
    training = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": metadata}
    status, out = why(node("a"), manifest={**training, "spec": {"pytorchReplicaSpecs": specs}})
    assert (status, out.count("ml/train-")) == (CANNOT, 2)


def test_a_file_without_pods_is_an_error(why: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    assert why(node("a"), manifest=node("b"))[0] == 2  # wrong usage
    del capsys


def test_pods_that_differ_only_by_their_labels_are_explained_once(
    why: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def noting(raw: Any, *arguments: Any, **options: Any) -> Explanation:
        asked.append(raw)
        return explain(raw, *arguments, **options)

    monkeypatch.setattr("cluster.why.explainer.explain", noting)
    jobs = [pod(f"j{n}", {GPU: 9}, metadata={"labels": {"index": str(n)}}) for n in range(5)]
    parts = [
        pod(f"k{n}", {GPU: 9}, metadata={"annotations": {"gpu-fraction": f"0.{n}"}})
        for n in range(1, 3)
    ]
    status, out = why(node("a"), *jobs, *parts)
    assert (status, out.startswith("7 pods wait for a node.")) == (CANNOT, True)
    assert len(asked) == 3  # one of the Job, and one for each part


def test_without_a_name_all_pods_that_wait_are_explained(why: Asked) -> None:
    made = {"creationTimestamp": "2026-11-20T10:00:00Z"}
    waiting = [pod(f"w{n}", {GPU: 9}, metadata=made) for n in range(3)]
    gated = pod("gated", schedulingGates=[{"name": "queue"}])
    running = pod("r", nodeName="a", status={"phase": "Running"})
    status, out = why(node("a"), *waiting, gated, running)
    assert status == CANNOT
    assert out.startswith("4 pods wait for a node. 3 pods, cannot, since 2026-11-20T10:00:00Z:")
    assert "1 pod, cannot: ml/gated - it waits for the scheduling gates queue" in out
    assert why(node("a"), running) == (CAN, "No pod waits for a node.")


def test_pods_that_differ_in_what_decides_have_answers_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    why = Asked(tmp_path, capsys)
    of = {"name": "m", "image": "i", "resources": {"limits": {GPU: "5"}}}
    one = pod("one", containers=[of], initContainers=[of])  # needs 5
    two = pod("two", containers=[of, of])  # needs 10
    status, out = why(node("n"), one, two)
    assert status == CANNOT
    assert "ml/one" in out.partition("cannot")[2] or "ml/two" in out.partition("cannot")[2]
    assert "2 pods, can" not in out

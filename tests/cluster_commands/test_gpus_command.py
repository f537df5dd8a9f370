"""The command `gpuward gpus`, which reads what kubectl wrote into a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.gpus.cli import main
from tests.testkit.cluster_commands.gpu_objects import Object, listed, node, pod

GPU = "nvidia.com/gpu"
A100 = {"nvidia.com/gpu.product": "A100"}
ALLOCATION = {"scheduler.framework.gpushare.allocation": '{"0":{"1":3}}'}


def written(folder: Path, *objects: Object) -> str:
    file = folder / "cluster.json"
    file.write_text(json.dumps(listed(*objects)), encoding="utf-8")
    return str(file)


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    """A file with three nodes, and pods of two namespaces."""
    training = [
        pod(f"train-{n}", {GPU: 2, "cpu": 2}, on="gpu-2", owner=("Job", "train")) for n in range(3)
    ]
    return written(
        tmp_path,
        node("gpu-2", {GPU: "8"}, labels=A100, cpu="7"),
        node("gpu-1", {GPU: "8"}, labels=A100),
        node("gpu-3", {"amd.com/gpu": "4"}, spec={"unschedulable": True}),
        node("cpu-1"),
        *training,
        pod("notebook", {GPU: 1}, on="gpu-1", namespace="team-b", phase="Pending"),
        pod("waits", {GPU: 16}, namespace="team-b", phase="Pending"),
    )


NODES = """\
NAME    STATUS                     MODEL    RESOURCE         ALLOCATED/TOTAL   FREE   STRANDED
gpu-1   Ready                      A100     nvidia.com/gpu   1/8               7      0
gpu-2   Ready                      A100     nvidia.com/gpu   6/8               1      1
gpu-3   Ready,SchedulingDisabled   <none>   amd.com/gpu      0/4               0      0

RESOURCE         ALLOCATED/TOTAL   FREE   STRANDED   UNAVAILABLE   OVERCOMMITTED   PENDING
amd.com/gpu      0/4               0      0          4             0               0
nvidia.com/gpu   7/16              8      1          0             0               16

ROOM FOR PODS WITH   1 CARD   2 CARDS   4 CARDS   8 CARDS
all models           8        3         1         0
<none>               0        0         0         0
A100                 8        3         1         0
"""
MODELS = """\
MODEL    NODES   RESOURCE         ALLOCATED/TOTAL   FREE   STRANDED   OVERCOMMITTED
<none>   1       amd.com/gpu      0/4               0      0          0
A100     2       nvidia.com/gpu   7/16              8      1          0

RESOURCE         ALLOCATED/TOTAL   FREE   STRANDED   UNAVAILABLE   OVERCOMMITTED   PENDING
amd.com/gpu      0/4               0      0          4             0               0
nvidia.com/gpu   7/16              8      1          0             0               16

ROOM FOR PODS WITH   1 CARD   2 CARDS   4 CARDS   8 CARDS
all models           8        3         1         0
<none>               0        0         0         0
A100                 8        3         1         0
"""
NAMESPACES = """\
NAMESPACE   RESOURCE         ALLOCATED   PENDING   PODS
team-a      nvidia.com/gpu   6           0         3
team-b      nvidia.com/gpu   1           16        2
"""
OWNERS_OF_TEAM_B = """\
NAMESPACE   OWNER          RESOURCE         ALLOCATED   PENDING   PODS
team-b      pod/notebook   nvidia.com/gpu   1           0         1
team-b      pod/waits      nvidia.com/gpu   0           16        1
"""
PODS_OF_GPU_1 = """\
NODE    CARD        RESOURCE         AMOUNT   NAMESPACE   POD        OWNER
gpu-1   <unknown>   nvidia.com/gpu   1        team-b      notebook   pod/notebook
"""


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], NODES),
        (["--by", "model"], MODELS),
        (["--by", "namespace"], NAMESPACES),
        (["--namespace", "team-b"], OWNERS_OF_TEAM_B),
        (["-d", "gpu-1"], PODS_OF_GPU_1),
        (["-d", "gpu-1", "-n", "team-b"], PODS_OF_GPU_1),
        (
            ["--pod-cpu", "8", "--by", "model"],
            MODELS.replace("8      1", "7      2").replace("8        3 ", "7        3 "),
        ),
    ],
    ids=" ".join,
)
def test_tables(
    capsys: pytest.CaptureFixture[str], cluster: str, arguments: list[str], expected: str
) -> None:
    assert main(["-f", cluster, *arguments]) == 0
    assert capsys.readouterr().out == expected


def test_room_is_counted_of_whole_cards_alone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Fifteen gigabytes of one card are no room for a pod with eight cards."""
    objects = (
        node("idle", {GPU: 8}, labels=A100),
        node("memory", {"aliyun.com/gpu-mem": 15, "aliyun.com/gpu-count": 1}),
        node("replicas", {GPU: 8}, labels={"nvidia.com/gpu.product": "A10-SHARED"}),
        node("partitions", {"nvidia.com/mig-1g.5gb": 7}),
    )
    file = written(tmp_path, *objects)
    assert main(["-f", file]) == 0
    header, *rows = capsys.readouterr().out.split("\n\n")[2].splitlines()
    assert header == "ROOM FOR PODS WITH   1 CARD   2 CARDS   4 CARDS   8 CARDS"
    assert [row.split()[-5:] for row in rows] == [
        ["models", "8", "4", "2", "1"],
        ["A100", "8", "4", "2", "1"],
    ]
    assert main(["-f", file, "-o", "json"]) == 0
    room = json.loads(capsys.readouterr().out)["room"]
    assert room[3] == {"model": None, "cards": 8, "pods": 1, "nodes": 1}


HAMI = {"hami.io/node-nvidia-register": "GPU-1,10,40960,100,NVIDIA-A10,0,true:"}


@pytest.mark.parametrize(
    "parts",
    [
        node("tencent", {"tencent.com/vcuda-core": 8}),
        node("amd", {"amd.com/cpx_nps4": 8}),
        node("hami", {GPU: 10}, annotations=HAMI),
        node("volcano", {"volcano.sh/vgpu-number": 10}),
        node("cambricon", {"cambricon.com/mlu.share": 8}),
        node("mig", {GPU: 7}, labels={"nvidia.com/gpu.product": "A100-SXM4-40GB-MIG-1g.5gb"}),
        node("replicas", {GPU: 8}, labels={"nvidia.com/gpu.sharing-strategy": "time-slicing"}),
        node("kubevirt", {"nvidia.com/NVIDIA_A10-12Q": 2}),
    ],
    ids=lambda each: each["metadata"]["name"],
)
def test_parts_of_cards_are_no_room(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, parts: Object
) -> None:
    """No pod with two cards runs on a node that only divides its cards."""
    assert main(["-f", written(tmp_path, parts), "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["nodes"]
    assert document["room"] == []


def pods_with_room(capsys: pytest.CaptureFixture[str], file: str) -> list[int]:
    """Return for how many pods with 1, 2, 4 and 8 cards there is room on all nodes."""
    assert main(["-f", file, "-o", "json"]) == 0
    rooms = json.loads(capsys.readouterr().out)["room"]
    return [each["pods"] for each in rooms if each["model"] is None]


def test_a_chip_of_several_names_is_room_for_one_pod(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    names = ("neuron", "neurondevice")
    chip = {f"aws.amazon.com/{name}": 1 for name in names} | {"aws.amazon.com/neuroncore": 2}
    file = written(tmp_path, node("trn", chip))
    assert pods_with_room(capsys, file) == [1, 0, 0, 0]
    assert main(["-f", file, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["room"][0]["nodes"] == 1


def test_cores_of_unknown_chips_mark_what_is_free_and_are_no_failure(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Sixteen pods of one core each may have a part of every chip."""
    core, chip = "aws.amazon.com/neuroncore", "aws.amazon.com/neuron"
    pods = [pod(f"p{number}", {core: 1}, on="trn") for number in range(16)]
    file = written(tmp_path, node("trn", {chip: 16, core: 64}), *pods)
    assert main(["-f", file]) == 0
    said = capsys.readouterr()
    assert said.out.count("12 (at most)") == 2  # the node's row and the cluster's
    assert f"not known of which {chip} pods have parts" in said.err
    assert main(["-f", file, "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["nodes"][0]["resources"]
    at_most = {used["resource"]: used["freeIsAtMost"] for used in rows}
    assert at_most == {chip: True, core: False}


def test_a_pod_takes_one_place_on_its_node_for_all_its_cards(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    others = [pod(f"other-{n}", {"cpu": 1}, on="full") for n in range(3)]
    file = written(tmp_path, node("full", {GPU: 8, "pods": "4"}), *others)
    assert pods_with_room(capsys, file) == [1, 1, 1, 1]
    file = written(tmp_path, node("full", {GPU: 8, "pods": "3"}), *others)
    assert pods_with_room(capsys, file) == [0, 0, 0, 0]


def test_what_is_free_of_shared_cards_says_how_much_one_has(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    shared = node("cgpu", {"aliyun.com/gpu-mem": 30, "aliyun.com/gpu-count": 2})
    user = pod("a", {"aliyun.com/gpu-mem": 3}, on="cgpu", annotations=ALLOCATION)
    file = written(tmp_path, shared, user)
    assert main(["-f", file]) == 0
    assert capsys.readouterr().out.count("27 (15 on a card)") == 2
    assert main(["-f", file, "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    for used in (document["nodes"][0]["resources"][0], document["totals"][0]):
        assert (used["free"], used["freeOnCard"]) == (27, 15)


def test_wide_says_what_strands_cards(capsys: pytest.CaptureFixture[str], cluster: str) -> None:
    assert main(["-f", cluster, "-o", "wide", "gpu-2"]) == 0
    header, row, *_ = capsys.readouterr().out.splitlines()
    cells = dict(zip(header.split(), row.split(), strict=True))
    assert cells["FREE-CPU"] == "1"
    assert (cells["FREE-MEMORY"], cells["PODS"]) == ("256.0Gi", "3")


def test_json_and_yaml_hold_the_same(capsys: pytest.CaptureFixture[str], cluster: str) -> None:
    assert main(["-f", cluster, "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert main(["-f", cluster, "-o", "yaml"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == document
    assert document["version"] == 1
    assert document["totals"][1] == {
        "resource": GPU,
        "total": 16,
        "allocated": 7,
        "starting": 1,
        "free": 8,
        "freeOnCard": None,
        "freeIsAtMost": False,
        "stranded": 1,
        "unavailable": 0,
        "overcommitted": 0,
        "pending": 16,
    }


def test_bars_and_cards(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    shared = node("cgpu", {"aliyun.com/gpu-mem": 30, "aliyun.com/gpu-count": 2})
    user = pod("a", {"aliyun.com/gpu-mem": 3}, on="cgpu", annotations=ALLOCATION)
    file = written(tmp_path, shared, user)
    assert main(["-f", file, "-d", "--color", "always"]) == 0
    assert (
        capsys.readouterr().out
        == """\
NODE   CARD   MODEL    RESOURCE             ALLOCATED/TOTAL
cgpu   0      <none>   aliyun.com/gpu-mem   ░░░░░░░░░░ 0/15
cgpu   1      <none>   aliyun.com/gpu-mem   ██░░░░░░░░ 3/15

NODE   CARD   RESOURCE             AMOUNT   NAMESPACE   POD   OWNER
cgpu   1      aliyun.com/gpu-mem   3        team-a      a     pod/a

█ allocated  ▒ stranded  ░ free  x unavailable
"""
    )
    assert main(["-f", file, "--output", "cgpu"]) == 0
    assert "3/30 (10%)" in capsys.readouterr().out


def test_names_cannot_command_the_terminal(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    hostile = node("n", {GPU: 1}, labels={"nvidia.com/gpu.product": "\x1b[2J\ta\nb"})
    assert main(["-f", written(tmp_path, hostile)]) == 0
    assert r"\u001b[2J\u0009a\u000ab" in capsys.readouterr().out


def test_no_gpus(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["-f", written(tmp_path, node("cpu-1"))]) == 0
    assert capsys.readouterr().out.startswith("No GPUs found: no node offers any")


def test_a_node_that_is_not_there(capsys: pytest.CaptureFixture[str], cluster: str) -> None:
    assert main(["-f", cluster, "nope"]) == 3
    printed = capsys.readouterr()
    assert "there is no node 'nope' with GPUs" in printed.err
    assert printed.out == ""


def test_a_namespace_without_gpus(capsys: pytest.CaptureFixture[str], cluster: str) -> None:
    assert main(["-f", cluster, "--namespace", "none"]) == 0
    said = "No GPUs found: no pod in namespace none asks for any.\n"
    assert capsys.readouterr().out == said


@pytest.mark.parametrize(
    "arguments",
    [
        ["--namespace", "a", "--by", "node"],
        ["--namespace", "a", "--output", "cgpu"],
        ["--output", "cgpu", "--by", "node"],
        ["--output", "cgpu", "--pod-cpu", "2"],
        ["--output", "cgpu", "--pod-memory", "2Gi"],
        ["--watch", "0.1"],
        ["--watch", "nan"],
        ["--pod-cpu", "much"],
        ["--by", "node", "-d"],
    ],
    ids=" ".join,
)
def test_options_that_make_no_sense(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["-f", "-", *arguments])
    assert stopped.value.code == 2


def test_watch_goes_on_when_the_cluster_is_away(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = Path(written(tmp_path, node("n", {GPU: 8})))
    text, waited = file.read_text(encoding="utf-8"), list[float]()

    def wait(seconds: float) -> None:
        waited.append(seconds)
        match len(waited):
            case 1:
                file.unlink()
            case 2:
                file.write_text(text.replace('"8"', '"4"').replace(": 8", ": 4"), encoding="utf-8")
            case _:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        main(["-f", str(file), "--watch", "5"], wait)
    captured = capsys.readouterr()
    assert waited == [5, 5, 5]
    assert captured.out.count("n      Ready") == 2
    assert "0/8" in captured.out
    assert "0/4" in captured.out
    assert "cluster.json" in captured.err


def test_cards_for_virtual_machines_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    card, audio = "nvidia.com/GP107_GEFORCE_GTX_1050", "nvidia.com/GP107GL_AUDIO_CONTROLLER"
    vgpu = "nvidia.com/NVIDIA_A10-12Q"
    file = written(
        tmp_path,
        node("a", {card: "1", vgpu: "2", audio: "1", GPU: "0", "nvidia.com/hostdev": "4"}),
        pod("desk", {card: 1}, on="a"),
        pod("waits", {vgpu: 4}, phase="Pending"),
    )
    assert main(["-f", file, "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    totals = {each["resource"]: each for each in document["totals"]}
    assert set(totals) == {card, vgpu}
    assert (totals[card]["allocated"], totals[vgpu]["pending"]) == (1, 4)


def given(name: str, device: str, health: str = "Healthy") -> dict[str, Any]:
    """A pod with two cards, of which its status names one."""
    resources = [{"resourceID": device, "health": health}]
    allocated = [{"name": GPU, "resources": resources}]
    made = pod(name, {GPU: 2}, on="a")
    containers = [{"name": "c", "allocatedResourcesStatus": allocated}]
    return {**made, "status": {**made["status"], "containerStatuses": containers}}


def test_details_name_the_devices_that_the_status_of_a_pod_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, node("a", {GPU: "8"}), given("one", "GPU-1"), given("two", "GPU-2"))
    assert main(["-f", file, "-d"]) == 0
    rows = [line.split()[1:4] for line in capsys.readouterr().out.splitlines()[1:]]
    assert rows == [["<unknown>", GPU, "1"]] * 2 + [["GPU-1", GPU, "1"], ["GPU-2", GPU, "1"]]
    assert main(["-f", file, "-o", "json"]) == 0
    consumers = json.loads(capsys.readouterr().out)["consumers"]
    assert consumers[0]["devices"] == [{"resource": GPU, "device": "GPU-1", "health": "Healthy"}]


def test_pods_with_an_unhealthy_device_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(
        tmp_path,
        node("a", {GPU: "8"}),
        given("well", "GPU-1"),
        given("sick", "GPU-2", "Unhealthy"),
        given("unknown", "GPU-3", "Unknown"),
    )
    assert main(["-f", file, "-d"]) == 3
    assert capsys.readouterr().err == (
        "gpuward gpus: pod team-a/sick has the unhealthy device GPU-2 of a as nvidia.com/gpu: "
        "gpuward doctor says what to do\n"
    )


def test_pods_with_the_same_device_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, node("a", {GPU: "8"}), given("one", "GPU-1"), given("two", "GPU-1"))
    assert main(["-f", file]) == 3
    said = capsys.readouterr().err
    assert (
        "pod team-a/one, pod team-a/two have the same device GPU-1 of a as nvidia.com/gpu" in said
    )

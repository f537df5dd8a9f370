"""Commands that read a cluster count what they can read beside nodes and pods with odd values."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.audit.cli import main as audit
from cluster.doctor.cli import main as doctor
from cluster.gpus.cli import main as gpus
from cluster.init.cli import main as init
from tests.testkit.cluster_commands.gpu_objects import Object, listed, node, pod

GPU = "nvidia.com/gpu"
TEXTS = (
    *("", "x", ",", ",,,,", ":::", ";;;", "a,b,c,d,true", "a,1e9,NaN,d,true", "GPU-1,x,²,-1:;"),
    *("0", "-1", "1e999999999", "9" * 30, "1" * 5000, "²", "null", "NaN", "Infinity", '"x"', "{}"),
    *("[]", "[[]]", "[" * 2_000, "[1]", '[{"health": []}]', '[{"health": true, "id": {}}]'),
    *('[{"health": true, "devmem": 1e400, "devcore": -1}]', '{"0": []}', '{"0": {"x": 1}}'),
    *('{"0": {"1": 1e400}}', '{"0": {"1": "4"}}', '{"0": {"1": true}}', '{"0": {"-1": 1}}'),
    *('{"gpu": {}}', '{"gpu": [1]}', '{"gpu": [{"minor": 1e400, "resources": {"a": []}}]}'),
    *('{"gpu": [{"minor": {}}]}', '{"gpu": [{"minor": true, "resources": {"a": 1e400}}]}'),
)
OTHERS: tuple[Any, ...] = (None, True, 0, -1, 10**30, 1e308, [], [None], [[]], {}, {"x": []})
OF_NODES = (
    *("hami.io/node-nvidia-register", "volcano.sh/node-vgpu-register"),
    "volcano.sh/gpu-unhealthy-ids",
)
OF_PODS = (
    *("scheduler.framework.gpushare.allocation", "gpushare.alibabacloud.com/core-percentage"),
    *("ALIYUN_COM_GPU_MEM_IDX", "ALIYUN_COM_GPU_MEM_POD", "hami.io/vgpu-devices-allocated"),
    *("volcano.sh/vgpu-ids-new", "volcano.sh/gpu-index", "gpu-fraction", "gpu-memory"),
    *("gpu-fraction-num-devices", "scheduling.koordinator.sh/device-allocated"),
)
LABELS = (
    *("ack.node.gpu.schedule", "ack.node.gpu.placement", "nvidia.com/gpu.product"),
    *("nvidia.com/gpu.memory", "nvidia.com/gpu.count", "nvidia.com/cuda.driver-version.full"),
    *("topology.kubernetes.io/region", "nvidia.com/mig.strategy", "node.koordinator.sh/gpu-model"),
)
RESOURCES = (
    *("aliyun.com/gpu-count", "aliyun.com/gpu-mem", "aliyun.com/gpu-core.percentage"),
    *("volcano.sh/gpu-number", "volcano.sh/gpu-memory", "volcano.sh/vgpu-memory", "cpu"),
)
PARTS = ("labels", "annotations", "spec", "status", "allocatable", "capacity", "taints")
SHARES = {"aliyun.com/gpu-mem": 1, "nvidia.com/gpumem": 1, "volcano.sh/gpu-memory": 1}


def odd_objects() -> Iterator[Object]:
    """Nodes and pods, each with one odd value in all places that commands read."""
    for number, value in enumerate((*TEXTS, *OTHERS)):
        amounts = dict.fromkeys(RESOURCES, value)
        yield node(f"amounts-{number}", amounts, capacity=amounts)
        yield node(
            f"texts-{number}",
            {GPU: "1"},
            annotations=dict.fromkeys(OF_NODES, value),
            labels=dict.fromkeys(LABELS, value),
        )
        for key in OF_PODS:
            yield pod(f"{key[-9:]}-{number}", SHARES, on="good", annotations={key: value})
    for number, value in enumerate(OTHERS):
        for part in PARTS:
            made = node(f"{part}-{number}", {GPU: "1"})
            place: Any = {
                "labels": made["metadata"],
                "annotations": made["metadata"],
                "allocatable": made["status"],
                "capacity": made["status"],
                "taints": made["spec"],
            }.get(part, made)
            place[part] = value
            yield made
        device = {"name": "gpu-0", "taints": [{"effect": value}]}
        pool = {"name": f"pool-{number}", "resourceSliceCount": 1}
        spec = {"driver": "gpu.nvidia.com", "nodeName": "claims", "pool": pool, "devices": [device]}
        head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}
        yield {**head, "metadata": {"name": f"slice-{number}"}, "spec": spec}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file with many odd objects, and a node and a pod with nothing odd."""
    file: Path = tmp_path_factory.mktemp("odd") / "cluster.json"
    good = node("good", {GPU: "8"}), pod("trainer", {GPU: 3}, on="good"), node("claims")
    file.write_text(json.dumps(listed(*odd_objects(), *good)), encoding="utf-8")
    return str(file)


def test_the_gpus_of_others_are_counted(cluster: str, capsys: pytest.CaptureFixture[str]) -> None:
    for options in ((), ("--details",), ("--output", "cgpu")):
        assert gpus(["-f", cluster, *options]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert [row for row in rows if row.startswith("good ") and f"{GPU}  " in row and " 3/8 " in row]


def test_the_other_commands_end_as_ever(
    cluster: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert doctor(["-f", cluster]) in (0, 1)
    assert init(["-f", cluster, "--directory", str(tmp_path)]) == 0
    assert audit(["-f", cluster, "--isolated", "-q"]) in (0, 1, 3)
    assert "gpuward itself failed" not in "".join(capsys.readouterr())

"""The counting of GPUs; the real scheduler's own decisions are in test_gpus_of_a_cluster.py."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from cluster.accounting.account import DEFAULT_POD_SIZE, Account, PodSize
from cluster.accounting.shares import Amount
from cluster.accounting.usage import (
    CardUsage,
    ResourceUsage,
    Usage,
    notes_on_cards_offered_twice,
)
from cluster.gpus.tables import pods_table
from policies.loading import default_policy
from tests.testkit.cluster_commands.gpu_objects import Object, node, pod

GPU = "nvidia.com/gpu"
PROFILE = default_policy().profile
_GIB = 2**30 * 10**9


def counted(
    nodes: list[Object], pods: list[Object], size: PodSize = DEFAULT_POD_SIZE, **more: Any
) -> Usage:
    account = Account(nodes, PROFILE)
    for one in pods:
        account.add_pod(one)
    return account.usage(**more, pod_size=size)


def only(usage: Usage, resource: str = GPU) -> ResourceUsage:
    return next(used for used in usage.nodes[0].resources if used.resource == resource)


def test_allocated_starting_and_pending() -> None:
    usage = counted(
        [node("n", {GPU: "8"})],
        [
            pod("runs", {GPU: 2}, on="n"),
            pod("starts", {GPU: "1"}, on="n", phase="Pending"),
            pod("waits", {GPU: 4}, phase="Pending"),
            pod("done", {GPU: 1}, on="n", phase="Succeeded"),
            pod("failed", {GPU: 1}, on="n", phase="Failed"),
            pod("ordinary", {"cpu": "1"}, on="n"),
        ],
    )
    assert only(usage) == ResourceUsage(GPU, 8, 3, starting=1, free=5)
    assert usage.totals() == (ResourceUsage(GPU, 8, 3, starting=1, free=5, pending=4),)


def test_effective_requests_are_the_schedulers() -> None:
    sidecar = {"restartPolicy": "Always", "resources": {"requests": {GPU: 1}}}
    init = {"resources": {"limits": {GPU: 3}}}
    pods = [
        pod("init", {GPU: 1}, on="n", initContainers=[init]),  # 3
        pod("sidecar", {GPU: 1}, on="n", initContainers=[sidecar, {**init}]),  # 1 + 3
        pod("sidecar-last", {GPU: 1}, on="n", initContainers=[init, sidecar]),  # 3
    ]
    assert only(counted([node("n", {GPU: 16})], pods)).allocated == 10


@pytest.mark.parametrize(
    ("asked", "has", "granted", "reason", "counted_cpu"),
    [
        ("2", None, None, "", 2),
        ("1", "3", "1", "", 3),  # becomes smaller, and the container still has more
        ("4", "2", "2", "Deferred", 4),  # may become larger at any time
        ("4", "2", "3", "Infeasible", 3),  # never becomes as large as that
    ],
)
@pytest.mark.parametrize("where", ["containers", "initContainers", "pod"])
def test_pods_that_are_resized_in_place(
    where: str, asked: str, has: str | None, granted: str | None, reason: str, counted_cpu: int
) -> None:
    resources = {"requests": {"cpu": asked}}
    found = {
        "resources": {"requests": {"cpu": has}},
        "allocatedResources": {"cpu": granted},
    }
    resized = pod("a", {GPU: 1}, on="n")
    if where == "pod":
        resized["spec"]["resources"] = resources
        resized["status"] |= found if has else {}
    else:
        container = {"name": "x", "resources": resources, "restartPolicy": "Always"}
        resized["spec"].setdefault(where, []).append(container)
        statuses = where.replace("ontainers", "ontainerStatuses")
        resized["status"][statuses] = [{"name": "x", **found}] if has else []
    resized["status"]["conditions"] = [{"type": "PodResizePending", "reason": reason}]
    usage = counted([node("n", {GPU: 8}, cpu="8")], [resized])
    assert usage.nodes[0].free_cpu == (8 - counted_cpu) * 10**9


@pytest.mark.parametrize(
    ("spec", "cpu", "free", "stranded"),
    [
        pytest.param({}, "64", 6, 0, id="room for all"),
        pytest.param({}, "5", 2, 4, id="CPU for two more pods"),
        pytest.param({}, "3", 0, 6, id="no CPU left"),
        pytest.param({"unschedulable": True}, "64", 0, 0, id="cordoned"),
        pytest.param(
            {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]},
            *("64", 0, 0),
            id="not ready",
        ),
        pytest.param(
            {"taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]},
            *("64", 6, 0),
            id="tainted for GPU pods",
        ),
    ],
)
def test_free_and_stranded_cards(spec: dict[str, Any], cpu: str, free: int, stranded: int) -> None:
    used = only(
        counted(
            [node("n", {GPU: 8}, spec=spec, cpu=cpu)],
            [pod("a", {GPU: 2, "cpu": "2500m"}, on="n")],
        )
    )
    assert (used.free, used.stranded, used.unavailable) == (free, stranded, 6 - free - stranded)


def test_memory_and_the_number_of_pods_strand_cards_too() -> None:
    small = node("n", {GPU: 8, "pods": "3"})
    used = only(counted([small], [pod("a", {GPU: 1}, on="n")]))
    assert (used.free, used.stranded) == (2, 5)
    used = only(counted([node("n", {GPU: 8})], [], PodSize(cpu=10**9, memory=100 * _GIB)))
    assert (used.free, used.stranded) == (2, 6)


def test_what_one_node_has_too_little_is_not_taken_from_another() -> None:
    """A cordoned node, one with fewer devices than its pods have, and one with devices left."""
    nodes = [
        node("cordoned", {GPU: "8"}, spec={"unschedulable": True}),
        node("shrunk", {GPU: "4"}),
        node("left", {GPU: "12"}),
        node("lost"),
    ]
    pods = [
        pod("a", {GPU: 8}, on="shrunk"),
        pod("b", {GPU: 9}, on="left"),
        pod("c", {GPU: 2}, on="lost"),
    ]
    usage = counted(nodes, pods)
    (total,) = usage.totals()
    assert (total.allocated, total.total, total.free) == (19, 24, 3)
    assert (total.unavailable, total.overcommitted) == (8, 6)
    by_node = {each.name: each.resources[0] for each in usage.nodes}
    assert {name: used.overcommitted for name, used in by_node.items()} == {
        "cordoned": 0,
        "shrunk": 4,
        "left": 0,
        "lost": 2,
    }
    assert sum(used.unavailable for used in by_node.values()) == total.unavailable


def test_the_sums_of_many_nodes_are_those_of_each() -> None:
    """However nodes and pods are, what nodes have is taken, free, stranded or unavailable."""
    nodes, pods = [], []
    for number in range(60):
        spec = {"unschedulable": True} if number % 3 == 0 else {}
        nodes.append(node(f"n{number}", {GPU: str(number % 9)}, cpu=str(number % 5), spec=spec))
        pods.append(pod(f"p{number}", {GPU: number % 7}, on=f"n{number}"))
    usage = counted(nodes, pods)
    (total,) = usage.totals()
    assert total.total is not None
    assert total.overcommitted > 0
    each = [used for counted_node in usage.nodes for used in counted_node.resources]
    assert total.unavailable == sum(used.unavailable for used in each)
    in_use = total.allocated - total.overcommitted
    assert in_use + total.free + total.stranded + total.unavailable == total.total


def test_unhealthy_devices_are_unavailable() -> None:
    used = only(counted([node("n", {GPU: 6}, capacity={GPU: 8})], [pod("a", {GPU: 2}, on="n")]))
    assert (used.total, used.free, used.unavailable) == (8, 4, 2)


def test_nodes_without_devices_are_left_out() -> None:
    assert counted([node("n", {GPU: 0}), node("cpu")], []).nodes == ()
    broken = node("n", {GPU: 0}, capacity={GPU: 8})
    assert only(counted([broken], [])).unavailable == 8


def test_partitions_replicas_and_other_makers_are_resources_of_their_own() -> None:
    amounts = {"nvidia.com/mig-1g.5gb": 7, "nvidia.com/gpu.shared": 10, "amd.com/gpu": 4}
    usage = counted([node("n", amounts)], [pod("a", {"nvidia.com/mig-1g.5gb": 3}, on="n")])
    assert {used.resource: (used.allocated, used.free) for used in usage.nodes[0].resources} == {
        "amd.com/gpu": (0, 4),
        "nvidia.com/gpu.shared": (0, 10),
        "nvidia.com/mig-1g.5gb": (3, 4),
    }


def cards(usage: Usage) -> dict[tuple[str, str], tuple[Any, Any]]:
    found: tuple[CardUsage, ...] = usage.nodes[0].cards
    return {(card.card, card.resource): (card.allocated, card.total) for card in found}


MEMORY, CORE = "aliyun.com/gpu-mem", "aliyun.com/gpu-core.percentage"
HAMI = [{"id": "GPU-1", "count": 10, "devmem": 32768, "devcore": 100, "health": True}]
KOORDINATOR = {"gpu": [{"minor": 1, "resources": {"koordinator.sh/gpu-core": "50"}}]}


@pytest.mark.parametrize(
    ("offering", "using", "expected"),
    [
        pytest.param(
            node("n", {MEMORY: 30, "aliyun.com/gpu-count": 2, CORE: 200}),
            pod(
                "a",
                {MEMORY: 8, CORE: 50},
                on="n",
                annotations={
                    "scheduler.framework.gpushare.allocation": '{"0":{"1":1},"1":{"1":7}}',
                    "gpushare.alibabacloud.com/core-percentage": '{"0":{"1":50}}',
                },
            ),
            {
                ("0", MEMORY): (0, 15),
                ("0", CORE): (0, 100),
                ("1", MEMORY): (8, 15),
                ("1", CORE): (50, 100),
            },
            id="ACK",
        ),
        pytest.param(
            node("n", {MEMORY: 15, "aliyun.com/gpu-count": 1}),
            pod(
                "a",
                {MEMORY: 8},
                on="n",
                annotations={"ALIYUN_COM_GPU_MEM_IDX": "0", "ALIYUN_COM_GPU_MEM_POD": "8"},
            ),
            {("0", MEMORY): (8, 15)},
            id="the older record of ACK",
        ),
        pytest.param(
            node("n", {MEMORY: 30, "aliyun.com/gpu-count": 2, CORE: 200}),
            pod(
                "a",
                {MEMORY: 8, CORE: 50},
                on="n",
                annotations={"scheduler.framework.gpushare.allocation": '{"0":{"1":8}}'},
            ),
            {
                ("0", MEMORY): (0, 15),
                ("0", CORE): (0, 100),
                ("1", MEMORY): (8, 15),
                ("1", CORE): (50, 100),
            },
            id="ACK's record of the memory alone",
        ),
        pytest.param(
            node("n", {MEMORY: 30, "aliyun.com/gpu-count": 2, CORE: 200}),
            pod(
                "a",
                {MEMORY: 8, CORE: 50},
                on="n",
                labels={"aliyun.com/gpu-count": "2"},
                annotations={"scheduler.framework.gpushare.allocation": '{"0":{"0":4,"1":4}}'},
            ),
            {
                ("0", MEMORY): (4, 15),
                ("0", CORE): (25, 100),
                ("1", MEMORY): (4, 15),
                ("1", CORE): (25, 100),
            },
            id="ACK's record of memory that is spread over two cards",
        ),
        pytest.param(
            node("n", {MEMORY: 30, "aliyun.com/gpu-count": 2, CORE: 200}),
            pod(
                "a",
                {MEMORY: 8, CORE: 50},
                on="n",
                annotations={
                    "scheduler.framework.gpushare.allocation": '{"0":{"0":4},"1":{"1":4}}'
                },
            ),
            {
                ("0", MEMORY): (4, 15),
                ("0", CORE): (0, 100),
                ("1", MEMORY): (4, 15),
                ("1", CORE): (0, 100),
            },
            id="containers on two cards: nobody knows which has the power",
        ),
        pytest.param(
            node("n", {GPU: 10}, annotations={"hami.io/node-nvidia-register": json.dumps(HAMI)}),
            pod(
                "a",
                {GPU: 1, "nvidia.com/gpumem": 3000},
                on="n",
                annotations={"hami.io/vgpu-devices-allocated": "GPU-1,NVIDIA,3000,30:;"},
            ),
            {
                ("GPU-1", "nvidia.com/gpumem"): (3000, 32768),
                ("GPU-1", "nvidia.com/gpucores"): (30, 100),
            },
            id="HAMi",
        ),
        pytest.param(
            node(
                "n",
                {"volcano.sh/vgpu-number": 10, "volcano.sh/vgpu-memory": 16380},
                annotations={
                    "volcano.sh/node-vgpu-register": "GPU-2,10,16380,NVIDIA-RTX,true,hami-core:"
                },
            ),
            pod(
                "a",
                {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 1126},
                on="n",
                annotations={"volcano.sh/vgpu-ids-new": "GPU-2,NVIDIA,1126,0:"},
            ),
            {
                ("GPU-2", "volcano.sh/vgpu-memory"): (1126, 16380),
                ("GPU-2", "volcano.sh/vgpu-cores"): (0, 100),
            },
            id="Volcano",
        ),
        pytest.param(
            node("n", {"koordinator.sh/gpu-core": 200}),
            pod(
                "a",
                {"koordinator.sh/gpu-core": 50},
                on="n",
                annotations={"scheduling.koordinator.sh/device-allocated": json.dumps(KOORDINATOR)},
            ),
            {("1", "koordinator.sh/gpu-core"): (50, None)},
            id="koordinator",
        ),
        pytest.param(
            node("n", {GPU: 8}),
            pod(
                "a",
                on="n",
                annotations={"gpu-fraction": "0.3"},
                labels={"runai-gpu-group": "group-1"},
            ),
            {("group-1", "gpu-fraction"): (Decimal("0.3"), 1)},
            id="KAI",
        ),
        pytest.param(
            node("n", {GPU: 8}, labels={"nvidia.com/gpu.memory": "40960"}),
            pod(
                "a",
                on="n",
                annotations={"gpu-memory": "5120", "gpu-fraction-num-devices": "2"},
                labels={"runai-gpu-group/a": "group-1", "runai-gpu-group/b": "group-2"},
            ),
            {
                ("group-1", "gpu-fraction"): (Decimal("0.13"), 1),
                ("group-2", "gpu-fraction"): (Decimal("0.13"), 1),
            },
            id="KAI, by memory of cards with a known size",
        ),
        pytest.param(
            node("n", {GPU: 8}),
            pod(
                "a",
                on="n",
                annotations={"gpu-memory": "5120"},
                labels={"runai-gpu-group": "group-1"},
            ),
            {("group-1", "gpu-memory"): (5120, None)},
            id="KAI, by memory of cards with an unknown size",
        ),
        pytest.param(
            node(
                "n",
                {"volcano.sh/gpu-memory": 32768, "volcano.sh/gpu-number": 4},
                annotations={"volcano.sh/gpu-unhealthy-ids": "1,3"},
            ),
            pod(
                "a",
                {"volcano.sh/gpu-memory": 1024},
                on="n",
                annotations={"volcano.sh/gpu-index": "2"},
            ),
            {
                ("0", "volcano.sh/gpu-memory"): (0, 8192),
                ("0", "volcano.sh/gpu-number"): (0, 1),
                ("2", "volcano.sh/gpu-memory"): (1024, 8192),
                ("2", "volcano.sh/gpu-number"): (0, 1),
            },
            id="Volcano, memory of one card",
        ),
        pytest.param(
            node("n", {"volcano.sh/gpu-memory": 16384, "volcano.sh/gpu-number": 2}),
            pod(
                "a",
                {"volcano.sh/gpu-number": 2},
                on="n",
                annotations={"volcano.sh/gpu-index": "0,1"},
            ),
            {
                ("0", "volcano.sh/gpu-memory"): (0, 8192),
                ("0", "volcano.sh/gpu-number"): (1, 1),
                ("1", "volcano.sh/gpu-memory"): (0, 8192),
                ("1", "volcano.sh/gpu-number"): (1, 1),
            },
            id="Volcano, whole cards",
        ),
    ],
)
def test_shares_by_card(offering: Object, using: Object, expected: dict[Any, Any]) -> None:
    assert cards(counted([offering], [using])) == expected


def given_by_ack(name: str, card: int, memory: int, where: str = "n") -> Object:
    record = {"scheduler.framework.gpushare.allocation": f'{{"0":{{"{card}":{memory}}}}}'}
    return pod(name, {MEMORY: memory}, on=where, annotations=record)


def test_what_is_free_on_one_card_is_no_sum() -> None:
    full = node("n", {MEMORY: 92, "aliyun.com/gpu-count": 4})
    users = [given_by_ack(f"p{card}", card, 15) for card in range(4)]
    usage = counted([full], users)
    assert (only(usage, MEMORY).free, only(usage, MEMORY).free_on_card) == (32, 8)
    other = node("m", {MEMORY: 40, "aliyun.com/gpu-count": 2})
    (both,) = counted([full, other], [*users, given_by_ack("q", 0, 9, "m")]).totals()
    assert (both.free, both.free_on_card) == (32 + 31, 20)
    uncounted = node("m", {MEMORY: 80})
    (both,) = counted([full, uncounted], users).totals()
    assert (both.free, both.free_on_card) == (32 + 80, None)
    nowhere = counted([full], [*users, pod("r", {MEMORY: 1}, on="n")])
    assert only(nowhere, MEMORY).free_on_card is None
    cordoned = {**full, "spec": {"unschedulable": True}}
    assert only(counted([cordoned], users), MEMORY).free_on_card == 0
    assert only(counted([node("n", {GPU: 8})], [])).free_on_card is None


def test_kai_gives_no_more_than_a_card_of_those_that_it_divides() -> None:
    parts = [
        pod(name, on="n", annotations={"gpu-fraction": part}, labels={"runai-gpu-group": name})
        for name, part in (("a", "0.7"), ("b", "0.6"))
    ]
    # KAI reserves each card that it divides by a pod.
    parts += [pod(f"reservation-{name}", {GPU: 1}, on="n") for name in ("a", "b")]
    usage = counted([node("n", {GPU: 2})], parts)
    (total,) = (used for used in usage.totals() if used.resource == "gpu-fraction")
    for used in (only(usage, "gpu-fraction"), total):
        assert (used.free, used.free_on_card) == (Decimal("0.7"), Decimal("0.4"))
    # KAI may divide an idle card next.
    idle = counted([node("n", {GPU: 3})], parts)
    assert only(idle, "gpu-fraction").free_on_card is None
    usage = counted([node("n", {GPU: 2}), node("m", {GPU: 1})], parts)
    (total,) = (used for used in usage.totals() if used.resource == "gpu-fraction")
    assert total.free_on_card is None


def test_memory_that_hami_gives_of_each_card_is_counted_for_all() -> None:
    register = json.dumps([{**HAMI[0], "id": f"GPU-{number}"} for number in (1, 2)])
    recorded = "GPU-1,NVIDIA,3000,30:GPU-2,NVIDIA,3000,30:;"
    usage = counted(
        [node("n", {GPU: 20}, annotations={"hami.io/node-nvidia-register": register})],
        [
            pod(
                "a",
                {GPU: 2, "nvidia.com/gpumem": 3000},
                on="n",
                annotations={"hami.io/vgpu-devices-allocated": recorded},
            )
        ],
    )
    used = only(usage, "nvidia.com/gpumem")
    assert (used.allocated, used.total, used.free) == (6000, 65536, 59536)
    assert only(usage, "nvidia.com/gpucores").allocated == 60


@pytest.mark.parametrize(
    "annotations",
    [
        {"scheduler.framework.gpushare.allocation": "[" * 9000},
        {"scheduler.framework.gpushare.allocation": '{"0": {"x": "y"}}'},
        {"scheduler.framework.gpushare.allocation": '{"0": {"0": -5}}'},
        {"hami.io/vgpu-devices-allocated": "," * 100_000},
        {"scheduling.koordinator.sh/device-allocated": '{"gpu": [{"resources": [1]}]}'},
        {"scheduler.framework.gpushare.allocation": '{"0": {"0": 1e999}}'},
        {"hami.io/vgpu-devices-allocated": f"GPU-1,NVIDIA,{'9' * 9000},0:"},
        {"gpu-fraction": "NaN"},
        {"gpu-fraction": "1e-999999", "gpu-fraction-num-devices": "9"},
        {
            "scheduling.koordinator.sh/device-allocated": json.dumps(
                {"gpu": [{"minor": [], "resources": {"x": 1}}]}
            )
        },
        {"ALIYUN_COM_GPU_MEM_IDX": "²", "ALIYUN_COM_GPU_MEM_POD": "1"},
        {"gpu-memory": "9" * 9000},
        {"gpu-memory": "-1"},
        {"volcano.sh/gpu-index": "0,1,x"},
        {"volcano.sh/gpu-index": "0," * 100_000},
    ],
)
def test_a_record_that_nobody_can_read_changes_no_sum(annotations: dict[str, str]) -> None:
    usage = counted(
        [node("n", {MEMORY: 15, "aliyun.com/gpu-count": 1})],
        [pod("a", {MEMORY: 3}, on="n", annotations=annotations)],
    )
    assert only(usage, MEMORY).allocated == 3
    assert cards(usage) == {("0", MEMORY): (0, 15)}


@pytest.mark.parametrize("field", ["id", "count", "devmem", "devcore", "type", "health"])
@pytest.mark.parametrize("value", [[], {}, -1.5, None, "x", 10**4000])
def test_a_field_of_hamis_register_of_the_wrong_type_ends_nothing(field: str, value: Any) -> None:
    register = json.dumps([{**HAMI[0], field: value}, {**HAMI[0], "id": "GPU-2"}])
    annotations = {"hami.io/node-nvidia-register": register}
    usage = counted([node("n", {GPU: 10}, annotations=annotations)], [])
    assert cards(usage)["GPU-2", "nvidia.com/gpumem"] == (0, 32768)


def resource_slice(devices: list[Object], generation: int = 1, of: int = 1) -> Object:
    pool = {"name": "n", "generation": generation, "resourceSliceCount": of}
    return {"spec": {"driver": "gpu.nvidia.com", "nodeName": "n", "pool": pool, "devices": devices}}


def claim(name: str, device: str | None, **result: Any) -> Object:
    held = {"driver": "gpu.nvidia.com", "pool": "n", "device": device, **result}
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 2}}
    status = {
        "allocation": {"devices": {"results": [held]}},
        "reservedFor": [{"resource": "pods", "name": f"{name}-pod"}],
    }
    return {
        "metadata": {"name": name, "namespace": "team-a"},
        "spec": {"devices": {"requests": [request]}},
        "status": status if device else {},
    }


def test_claimed_devices() -> None:
    model = {"attributes": {"productName": {"string": "NVIDIA H100"}}}
    devices = [{"name": f"gpu-{number}", **model} for number in range(4)]
    usage = counted(
        [node("n")],
        [],
        slices=[resource_slice([{"name": "old"}], 1), resource_slice(devices, 2)],
        claims=[
            claim("one", "gpu-1"),
            claim("watches", "gpu-2", adminAccess=True),
            claim("of-another-driver", "gpu-3", driver="net.example"),
            claim("waits", None),
        ],
    )
    assert usage.nodes[0].model == "NVIDIA H100"
    assert usage.totals() == (ResourceUsage("gpu.nvidia.com", 4, 1, free=3, pending=2),)
    assert [consumer.name for consumer in usage.consumers] == ["one-pod", "resourceclaim/waits"]


def test_partitions_of_one_card_are_parts_of_it_by_their_memory() -> None:
    def part(name: str, card: str, memory: str) -> Object:
        counters = {"memory": {"value": memory}, "copy-engines": {"value": "1"}}
        return {"name": name, "consumesCounters": [{"counterSet": card, "counters": counters}]}

    def card(name: str) -> Object:
        return {"name": name, "counters": {"memory": {"value": "80Gi"}}}

    devices = [part("mig-0", "card-0", "10Gi"), part("mig-1", "card-0", "40Gi")]
    devices.append(part("whole", "card-1", "80Gi"))
    counters = resource_slice([], of=2)  # in a slice of their own, as Kubernetes 1.35 wants it
    counters["spec"]["sharedCounters"] = [card("card-0"), card("card-1")]
    usage = counted(
        [node("n")],
        [],
        slices=[resource_slice(devices, of=2), counters],
        claims=[claim("a", "mig-0"), claim("b", "mig-1")],
    )
    assert only(usage, "gpu.nvidia.com") == ResourceUsage("gpu.nvidia.com", 2, 1, free=1)
    parts = [consumer.amounts["gpu.nvidia.com"] for consumer in usage.consumers]
    assert parts == [Decimal("0.12"), Decimal("0.5")]
    assert cards(usage) == {
        ("n/card-0", "gpu.nvidia.com"): (Decimal("0.62"), 1),
        ("n/card-1", "gpu.nvidia.com"): (0, 1),
    }


@pytest.mark.parametrize(
    ("consumed", "part"),
    [
        ({"memory": "20Gi"}, Decimal("0.25")),
        ({"memory": "0", "shares": "1"}, Decimal("0.1")),
        ({"memory": "1"}, Decimal("0.01")),
        ({"memory": "0"}, 1),  # as much as there is
        ({}, 1),
        ({"memory": "999Gi", "other": "x"}, 1),
    ],
)
def test_claims_that_divide_one_device(consumed: dict[str, str], part: Any) -> None:
    capacity = {"memory": {"value": "80Gi"}, "shares": {"value": "10"}}
    device = {"name": "gpu-0", "allowMultipleAllocations": True, "capacity": capacity}
    first = claim("a", "gpu-0", consumedCapacity=consumed, shareID="1")
    second = claim("b", "gpu-0", consumedCapacity={"memory": "40Gi"}, shareID="2")
    slices = [resource_slice([device, {"name": "gpu-1"}])]
    usage = counted([node("n")], [], slices=slices, claims=[first, second])
    assert only(usage, "gpu.nvidia.com") == ResourceUsage("gpu.nvidia.com", 2, 1, free=1)
    assert [c.amounts["gpu.nvidia.com"] for c in usage.consumers] == [part, Decimal("0.5")]
    assert cards(usage)["n/gpu-0", "gpu.nvidia.com"] == (min(part + Decimal("0.5"), 1), 1)


def test_a_claim_that_several_pods_share_counts_once() -> None:
    pods = [
        pod(name, on="n", owner=("Job", "train"), resourceClaims=[{"name": "gpu"}])
        for name in ("one", "two")
    ]
    shared = claim("shared", "gpu-0")
    shared["status"]["reservedFor"] = [{"resource": "pods", "name": n} for n in ("one", "two")]
    usage = counted(
        [node("n")], pods, slices=[resource_slice([{"name": "gpu-0"}])], claims=[shared]
    )
    assert usage.totals() == (ResourceUsage("gpu.nvidia.com", 1, 1),)
    (consumer,) = usage.consumers
    assert (consumer.name, consumer.owner) == ("resourceclaim/shared", "job/train")
    assert consumer.pods == ("one", "two")
    assert pods_table(usage).rows[0][5] == "resourceclaim/shared (2 pods)"


@pytest.mark.parametrize(
    ("slices", "unknown"),
    [
        ([resource_slice([{"name": "gpu-0"}, {"name": "gpu-1"}], of=2)], "has 1 of its 2 Resource"),
        ([resource_slice([{"name": f"gpu-{n}"}], of=1) for n in (0, 1)], "has 2 of its 1 Resource"),
        ([resource_slice([{"name": f"gpu-{n}"} for n in (0, 1, 1)])], "has the device 'gpu-1' tw"),
    ],
)
def test_the_scheduler_allocates_nothing_of_a_pool_that_is_not_known(
    slices: list[Object], unknown: str
) -> None:
    usage = counted([node("n")], [], slices=slices, claims=[claim("a", "gpu-0")])
    assert usage.totals() == (ResourceUsage("gpu.nvidia.com", 2, 1),)
    assert usage.totals()[0].unavailable == 1
    [text] = usage.unknown
    assert text.startswith(f"pool 'n' of the driver gpu.nvidia.com {unknown}")


@pytest.mark.parametrize("bus_id", ["resource.kubernetes.io/pciBusID", "gpu.nvidia.com/pcieBusID"])
def test_a_card_that_virtual_machines_can_have_instead_counts_once(bus_id: str) -> None:
    devices = [
        {"name": name, "attributes": {"type": {"string": kind}, bus_id: {"string": number}}}
        for name, kind, number in (
            ("gpu-0", "gpu", "0000:01"),
            ("gpu-vfio-0", "vfio", "0000:01"),
            ("gpu-1", "gpu", "0000:02"),
            ("gpu-vfio-2", "vfio", "0000:03"),
        )
    ]
    slices = [resource_slice(devices)]
    usage = counted([node("n")], [], slices=slices, claims=[claim("a", "gpu-vfio-0")])
    assert usage.totals() == (ResourceUsage("gpu.nvidia.com", 3, 1, free=2),)


def test_tainted_devices_are_unavailable() -> None:
    taint = {"key": "gpu.nvidia.com/unhealthy", "effect": "NoSchedule"}
    devices = [
        {"name": "gpu-0", "taints": [taint]},
        {"name": "gpu-1", "taints": [{**taint, "effect": "None"}]},
        {"name": "gpu-2", "taints": [taint]},
    ]
    slices = [resource_slice(devices)]
    usage = counted([node("n")], [], slices=slices, claims=[claim("a", "gpu-0")])
    used = only(usage, "gpu.nvidia.com")
    assert (used.total, used.allocated, used.free, used.unavailable) == (3, 1, 1, 1)


def test_a_card_is_unavailable_if_its_own_driver_has_tainted_all_of_it() -> None:
    taints = [{"key": "unhealthy", "effect": "NoSchedule"}]
    other_driver = resource_slice([{"name": "gpu-0"}, {"name": "mig-a"}])
    other_driver["spec"]["driver"] = "gpu.intel.com"
    card = {"consumesCounters": [{"counterSet": "card"}]}
    devices = [
        {"name": "gpu-0", "taints": taints},
        {"name": "mig-a", **card, "taints": taints},
        {"name": "mig-b", **card},
    ]
    usage = counted([node("n")], [], slices=[other_driver, resource_slice(devices)])
    nvidia, intel = only(usage, "gpu.nvidia.com"), only(usage, "gpu.intel.com")
    assert (nvidia.total, nvidia.free, nvidia.unavailable) == (2, 1, 1)
    assert (intel.total, intel.free, intel.unavailable) == (2, 2, 0)
    assert len(cards(usage)) == 4


def test_what_waiting_claims_ask_for() -> None:
    nvidia = {"deviceClassName": "gpu.nvidia.com"}
    requests = [
        {"name": "a", "firstAvailable": [{**nvidia, "count": 2}, {**nvidia, "count": 4}]},
        {"name": "b", "exactly": {**nvidia, "adminAccess": True}},
        {"name": "c", **nvidia},  # as it was before version v1
    ]
    waiting = {"metadata": {"name": "w"}, "spec": {"devices": {"requests": requests}}}
    (total,) = counted([], [], claims=[waiting]).totals()
    assert total.pending == 3


def test_a_resource_that_a_claim_stands_for_is_counted_once() -> None:
    made_for = {"requestMappings": [{"resourceName": GPU}], "resourceClaimName": "one"}
    with_claim = pod("one-pod", {GPU: 1}, on="n", owner=("Job", "train"))
    with_claim["status"]["extendedResourceClaimStatus"] = made_for
    slices = [resource_slice([{"name": "gpu-0"}])]
    usage = counted([node("n")], [with_claim], slices=slices, claims=[claim("one", "gpu-0")])
    assert usage.totals() == (ResourceUsage("gpu.nvidia.com", 1, 1),)
    assert [consumer.owner for consumer in usage.consumers] == ["job/train"]


def offered_twice(devices: int = 2, cards: int = 2, label: str = "", **more: Any) -> Usage:
    """A node with cards of a driver, and devices of a device plugin of the same maker."""
    labels = {"nvidia.com/gpu.count": label} if label else {}
    slices = [resource_slice([{"name": f"gpu-{number}"} for number in range(cards)])]
    nodes = [node("n", {GPU: devices}, labels=labels)]
    return counted(nodes, more.pop("pods", []), slices=slices, **more)


def test_a_card_that_a_device_plugin_and_a_driver_offer_counts_once() -> None:
    usage = offered_twice()
    assert usage.totals() == (ResourceUsage("gpu.nvidia.com", 2, 0, free=2),)
    [text] = notes_on_cards_offered_twice(usage.nodes)
    assert text.startswith("n offers its cards twice, as nvidia.com/gpu and by the driver gpu.nv")
    both = offered_twice(pods=[pod("p", {GPU: 1}, on="n")], claims=[claim("a", "gpu-0")])
    assert both.totals() == (ResourceUsage("gpu.nvidia.com", 2, 2),)
    amounts = [consumer.amounts for consumer in both.consumers]
    assert amounts == [{GPU: 1}, {"gpu.nvidia.com": 1}]


def test_cards_that_were_given_twice_are_overcommitted() -> None:
    pods = [pod("p", {GPU: 2}, on="n", phase="Pending")]
    usage = offered_twice(pods=pods, claims=[claim("a", "gpu-0")])
    assert usage.totals() == (ResourceUsage("gpu.nvidia.com", 2, 3, starting=2, overcommitted=1),)


def test_replicas_of_cards_that_a_driver_offers_too_are_parts_of_them() -> None:
    usage = offered_twice(20, 2, pods=[pod("p", {GPU: 1}, on="n")])
    assert usage.totals() == (ResourceUsage("gpu.nvidia.com", 2, 1, free=1),)
    crowded = offered_twice(20, 2, pods=[pod("p", {GPU: 9}, on="n")])
    assert crowded.totals() == (ResourceUsage("gpu.nvidia.com", 2, 2),)


def test_cards_of_which_the_node_has_enough_for_both_are_others() -> None:
    usage = offered_twice(2, 2, "4")
    assert [used.free for used in usage.totals()] == [2, 2]
    assert not [*notes_on_cards_offered_twice(usage.nodes)]
    assert len(offered_twice(2, 2, "3").totals()) == 1


def test_cards_of_another_maker_are_others() -> None:
    slices = [resource_slice([{"name": "gpu-0"}])]
    usage = counted([node("n", {"amd.com/gpu": 1})], [], slices=slices)
    assert [used.resource for used in usage.totals()] == ["amd.com/gpu", "gpu.nvidia.com"]


NEURON, DEVICE, CORE = (f"aws.amazon.com/neuron{end}" for end in ("", "device", "core"))


def neuron_usage(*asked: dict[str, Any], **allocatable: int) -> dict[str, ResourceUsage]:
    """Return what a node with four chips of two cores has left beside pods that ask for that."""
    offered = {NEURON: 4, DEVICE: 4, CORE: 8}
    pods = [pod(f"p{number}", one, on="n") for number, one in enumerate(asked)]
    raw = node("n", offered)
    for name, amount in allocatable.items():
        raw["status"]["allocatable"][f"aws.amazon.com/{name}"] = str(amount)
    usage = counted([raw], pods)
    return {used.resource: used for used in usage.nodes[0].resources}


@pytest.mark.parametrize(
    ("asked", "free"),
    [
        ([{NEURON: 1}], (3, 3, 6)),
        ([{DEVICE: 3}], (1, 1, 2)),
        ([{CORE: 3}], (2, 2, 5)),
        ([{NEURON: 1}, {DEVICE: 1}, {CORE: 2}], (1, 1, 2)),
        ([{NEURON: 4}], (0, 0, 0)),
    ],
)
def test_a_chip_that_a_pod_has_by_one_name_is_free_by_none(
    asked: list[dict[str, int]], free: tuple[int, int, int]
) -> None:
    found = neuron_usage(*asked)
    assert tuple(found[name].free for name in (NEURON, DEVICE, CORE)) == free
    assert all(used.unavailable == used.overcommitted == 0 for used in found.values())


def test_what_the_plugin_takes_out_itself_counts_once() -> None:
    found = neuron_usage({NEURON: 1}, neurondevice=3, neuroncore=6)
    assert [found[name].free for name in (NEURON, DEVICE, CORE)] == [3, 3, 6]


def test_a_chip_that_two_pods_have_by_two_names_is_overcommitted() -> None:
    found = neuron_usage({NEURON: 4}, {DEVICE: 1})
    assert (found[NEURON].overcommitted, found[DEVICE].overcommitted) == (1, 1)


def test_of_which_chips_cores_are_is_not_known_and_said() -> None:
    cores = counted([node("n", {NEURON: 4, CORE: 8})], [pod("p", {CORE: 2}, on="n")])
    [note] = cores.remarks()
    assert "not known of which aws.amazon.com/neuron pods have parts" in note
    one = counted([node("n", {NEURON: 4, CORE: 8})], [pod("p", {CORE: 1}, on="n")])
    assert not [*one.remarks()]
    assert not [*counted([node("n", {NEURON: 4, CORE: 8})], []).remarks()]


def free_and_unavailable(
    asked: dict[str, int], chips: tuple[int, int], cores: tuple[int, int]
) -> dict[str, tuple[Amount, Amount]]:
    """Return what is free and unavailable; `chips` and `cores` are capacity and allocatable."""
    raw = node("n", {NEURON: chips[0], CORE: cores[0]})
    raw["status"]["allocatable"] |= {NEURON: str(chips[1]), CORE: str(cores[1])}
    usage = counted([raw], [pod("p", asked, on="n")])
    return {used.resource: (used.free, used.unavailable) for used in usage.nodes[0].resources}


@pytest.mark.parametrize(
    ("asked", "chips", "cores", "left"),
    [
        ({NEURON: 3}, (4, 3), (8, 6), {NEURON: (0, 1), CORE: (0, 2)}),
        ({CORE: 30}, (16, 15), (32, 30), {NEURON: (0, 1), CORE: (0, 2)}),
        ({NEURON: 2}, (4, 1), (8, 2), {NEURON: (0, 2), CORE: (0, 4)}),
        ({CORE: 2}, (4, 3), (8, 8), {NEURON: (3, 0), CORE: (6, 0)}),
        ({CORE: 2}, (4, 3), (8, 7), {NEURON: (2, 1), CORE: (5, 1)}),
    ],
)
def test_an_unhealthy_chip_is_free_by_no_name(
    asked: dict[str, int],
    chips: tuple[int, int],
    cores: tuple[int, int],
    left: dict[str, tuple[int, int]],
) -> None:
    assert free_and_unavailable(asked, chips, cores) == left


def test_where_a_chip_is_unhealthy_or_taken_by_another_name_it_is_not_free_and_said() -> None:
    raw = node("n", {NEURON: 4, CORE: 8})
    raw["status"]["allocatable"] |= {NEURON: "3", CORE: "6"}
    usage = counted([raw], [pod("p", {NEURON: 1, CORE: 2}, on="n")])
    assert [(used.free, used.unavailable) for used in usage.nodes[0].resources] == [(1, 1), (2, 2)]
    said = " ".join(usage.remarks())
    assert "not known whether aws.amazon.com/neuron is unhealthy" in said
    assert "more may be free" in said
    assert not [*usage.notes()]


def test_room_for_pods_leaves_out_chips_that_are_taken_by_another_name() -> None:
    usage = counted([node("n", {NEURON: 4, DEVICE: 4})], [pod("p", {DEVICE: 3}, on="n")])
    assert usage.nodes[0].whole_cards is not None
    assert usage.nodes[0].whole_cards.free == 1

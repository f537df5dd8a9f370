"""`gpuward why` says of divided cards what their schedulers do, as their source has it."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import yaml

from cluster.accounting.shares import containers_by_card
from cluster.snapshot.snapshot import Snapshot
from cluster.source.files import FileSource
from cluster.why.explainer import Explainer, Workload
from policies.loading import default_policy
from tests.testkit.paths import DATA
from tests.testkit.why_command import Asked

Row: TypeAlias = dict[str, Any]
_SYSTEMS = yaml.load((DATA / "divided_cards.yaml").read_text("utf-8"), yaml.CSafeLoader)["systems"]
_ROWS = [(system["title"], row) for system in _SYSTEMS for row in system["rows"]]
_MIB, _MODEL = 16_000, "NVIDIA-A100"


def _cards(row: Row) -> list[Row]:
    cards = row.get("cards", 2)
    return [{} for _ in range(cards)] if isinstance(cards, int) else cards


def _node(amounts: dict[str, int], annotations: dict[str, str], labels: dict[str, str]) -> Row:
    most = {key: str(value) for key, value in amounts.items()}
    most |= {"cpu": "64", "memory": "512Gi", "pods": "110"}
    metadata = {"name": "n", "annotations": annotations, "labels": labels}
    status = {"capacity": most, "allocatable": most}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}


def _pod(name: str, containers: list[Row], **more: Any) -> Row:
    listed = [
        {"name": f"c{number}", "image": "i", "resources": {"limits": {**limits}}}
        for number, limits in enumerate(containers)
    ]
    initial: list[Row] = more.pop("initial", [])
    metadata = {"name": name, "namespace": "d", "uid": name, **more.pop("metadata", {})}
    spec: Row = {"containers": listed, **more}
    if initial:
        spec["initContainers"] = [
            {"name": f"i{number}", "image": "i", "resources": {"limits": {**limits}}}
            for number, limits in enumerate(initial)
        ]
    running = {"phase": "Running"} if more.get("nodeName") else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": spec,
        "status": running,
    }


def _there(name: str, containers: list[Row], **more: Any) -> Row:
    return _pod(name, containers, nodeName="n", **more)


def hami(row: Row) -> list[Row]:
    register = [
        {
            "id": f"GPU-{number}",
            "count": card.get("slots", 10),
            "devmem": _MIB,
            "devcore": 100,
            "type": _MODEL,
            "mode": card.get("mode", "hami-core"),
            "health": card.get("healthy", True),
        }
        for number, card in enumerate(_cards(row))
    ]
    annotations = {"hami.io/node-nvidia-register": json.dumps(register), **row.get("node", {})}
    made = [_node({"nvidia.com/gpu": 10 * len(register)}, annotations, {})]
    for number, pod in enumerate(row.get("pods", ())):
        initial, parts = pod.get("initial", []), pod["parts"]
        record = "".join(f"GPU-{c},NVIDIA,{mib},{cores}:;" for c, mib, cores in (*initial, *parts))
        held = {"annotations": {"hami.io/vgpu-devices-allocated": record}}
        asks = [{"nvidia.com/gpu": 1, "nvidia.com/gpumem": mib} for _, mib, _ in parts]
        first = [{"nvidia.com/gpu": 1} for _ in initial]
        made.append(_there(f"t{number}", asks, initial=first, metadata=held))
    return made


def volcano_vgpu(row: Row) -> list[Row]:
    cards = _cards(row)
    register = "".join(
        f"GPU-{number},{card.get('slots', 10)},{_MIB},{_MODEL},"
        f"{str(card.get('healthy', True)).lower()},{card.get('mode', 'hami-core')}:"
        for number, card in enumerate(cards)
    )
    amounts = {
        "volcano.sh/vgpu-number": 10 * len(cards),
        "volcano.sh/vgpu-memory": _MIB * len(cards),
        "volcano.sh/vgpu-cores": 100 * len(cards),
    }
    made = [_node(amounts, {"volcano.sh/node-vgpu-register": register}, {})]
    for number, pod in enumerate(row.get("pods", ())):
        record = ";".join(f"GPU-{c},NVIDIA,{mib},{cores}:" for c, mib, cores in pod["parts"])
        held = {"annotations": {"volcano.sh/vgpu-ids-new": record}}
        asks = [
            {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": mib}
            for _, mib, _ in pod["parts"]
        ]
        made.append(_there(f"t{number}", asks, metadata=held))
    return made


def volcano_memory(row: Row) -> list[Row]:
    count = len(_cards(row))
    amounts = {"volcano.sh/gpu-memory": _MIB * count, "volcano.sh/gpu-number": count}
    made = [_node(amounts, row.get("node", {}), {})]
    for number, pod in enumerate(row.get("pods", ())):
        ((card, mib, _),) = pod["parts"]
        held = {"annotations": {"volcano.sh/gpu-index": str(card)}}
        made.append(_there(f"t{number}", [{"volcano.sh/gpu-memory": mib}], metadata=held))
    return made


def ack(row: Row) -> list[Row]:
    count = len(_cards(row))
    made = [_node({"aliyun.com/gpu-mem": 16 * count, "aliyun.com/gpu-count": count}, {}, {})]
    for number, pod in enumerate(row.get("pods", ())):
        ((card, gib, _),) = pod["parts"]
        held = {"ALIYUN_COM_GPU_MEM_IDX": str(card), "ALIYUN_COM_GPU_MEM_POD": str(gib)}
        asks = [{"aliyun.com/gpu-mem": gib}]
        made.append(_there(f"t{number}", asks, metadata={"annotations": held}))
    return made


def kai(row: Row) -> list[Row]:
    labels = {} if row.get("unlabelled") else {"nvidia.com/gpu.memory": str(_MIB)}
    labels |= row.get("labels", {})
    made = [_node({"nvidia.com/gpu": len(_cards(row)), **row.get("offers", {})}, {}, labels)]
    for number, pod in enumerate(row.get("pods", ())):
        if whole := pod.get("whole"):
            made.append(_there(f"w{number}", [{"nvidia.com/gpu": whole}]))
        for card, mib, _ in pod.get("parts", ()):
            held = {
                "annotations": {"gpu-memory": str(mib)},
                "labels": {"runai-gpu-group": f"g{card}"},
            }
            made.append(_there(f"t{number}", [{}], metadata=held))
            if pod.get("reserved", True):
                reserves = {
                    "labels": {"app": "kai-resource-reservation", "runai-gpu-group": f"g{card}"}
                }
                made.append(_there(f"r{number}", [{"nvidia.com/gpu": 1}], metadata=reserves))
    return made


_BUILDERS: dict[str, tuple[str, Callable[[Row], list[Row]]]] = {
    "HAMi": ("hami-scheduler", hami),
    "Volcano, vGPUs": ("volcano", volcano_vgpu),
    "Volcano, memory of cards and whole cards": ("volcano", volcano_memory),
    "ACK, the scheduler extender": ("", ack),
    "KAI, parts of cards": ("kai-scheduler", kai),
}


@pytest.mark.parametrize(
    ("title", "row"), _ROWS, ids=lambda value: value["says"] if isinstance(value, dict) else value
)
def test_a_row_is_answered_as_the_source_has_it(title: str, row: Row) -> None:
    scheduler, build = _BUILDERS[title]
    objects = build(row)
    new = _pod(
        "p",
        row.get("containers", [{}]),
        initial=row.get("initial", []),
        metadata={"annotations": row.get("annotations", {})},
        **({"schedulerName": scheduler} if scheduler else {}),
    )
    file = BytesIO(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}).encode())
    snapshot = Snapshot(FileSource(["-"], file), default_policy().profile)
    found = Explainer(snapshot).explain_workload(Workload(new, 1))
    assert not found.hurdles
    said = "cannot" if not found.fitting else "not known" if found.unchecked else "can"
    details = (found.unchecked, [group.reasons for group in found.groups])
    assert said == row.get("gpuward", row["source"]), details


def test_each_difference_has_a_reason() -> None:
    for system in _SYSTEMS:
        assert len(system["commit"]) == 40
        for row in system["rows"]:
            assert ("gpuward" in row) == ("why" in row), row["says"]
            assert row.get("gpuward") != row["source"], row["says"]


def test_pods_that_choose_other_cards_are_not_alike() -> None:
    objects = hami({"cards": 1})
    for name, model in (("a", "A100"), ("h", "H100")):
        asked = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 10}
        chosen = {"annotations": {"nvidia.com/use-gputype": model}}
        objects.append(_pod(name, [asked], metadata=chosen, schedulerName="hami-scheduler"))
    file = BytesIO(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}).encode())
    snapshot = Snapshot(FileSource(["-"], file), default_policy().profile)
    found = {one.name: one.fitting for one in Explainer(snapshot).explain_pending()}
    assert found == {"a": ("n",), "h": ()}


def test_very_many_choices_of_cards_take_no_time(why: Asked) -> None:
    """A user who writes pods can ask for cards in more ways than can be tried."""
    asked = {"nvidia.com/gpu": 20, "nvidia.com/gpumem": 10}
    new = _pod("p", [asked] * 3, schedulerName="hami-scheduler")
    assert "which cards its containers get" in why(*hami({"cards": 40}), manifest=new)[1]
    alone = _pod("p", [asked], schedulerName="hami-scheduler")
    assert "1 node can take it" in why(*hami({"cards": 40}), manifest=alone)[1]


def test_what_is_against_the_cards_is_said(why: Asked) -> None:
    row = {"cards": 1, "pods": [{"parts": [[0, 12000, 70]]}]}
    for asked, said in (
        ({"nvidia.com/gpucores": 40}, "and of those 30 of 100 % of its cores are free"),
        (
            {"nvidia.com/gpumem-percentage": 30},
            "30 % of the memory of a card, and of those 4000 of",
        ),
    ):
        new = _pod("p", [{"nvidia.com/gpu": 1, **asked}], schedulerName="hami-scheduler")
        if "nvidia.com/gpucores" in asked:
            new["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpumem"] = 10
        assert said in why(*hami(row), manifest=new)[1]
    half = {"annotations": {"gpu-fraction": "0.6"}}
    new = _pod("p", [{}], metadata=half, schedulerName="kai-scheduler")
    out = why(*kai({"pods": [{"parts": [[0, 8000, 0]]}, {"whole": 1}]}), manifest=new)[1]
    assert "asks for 0.6 gpu-fraction of one card, and at most 0.5 of 1 are free" in out


@pytest.fixture
def why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Asked:
    return Asked(tmp_path, capsys)


def test_very_many_containers_make_the_answer_not_known(why: Asked) -> None:
    """Tenants write the pods, and the search for their cards has no other end."""
    cards = [{"slots": 200} for _ in range(16)]
    many = [{"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1}] * 150
    different = [{"nvidia.com/gpu": 4, "nvidia.com/gpumem": mib} for mib in range(1, 21)]
    for containers in (many, different):
        new = _pod("p", containers, schedulerName="hami-scheduler")
        assert "which cards its containers get" in why(*hami({"cards": cards}), manifest=new)[1]


def test_a_long_record_counts_each_card_once_for_each_container() -> None:
    record = ":".join(f"{number % 9}," + ",1,1" for number in range(900))
    annotations = {"hami.io/vgpu-devices-allocated": record}
    counted = containers_by_card({"metadata": {"annotations": annotations}})
    assert counted == dict.fromkeys(map(str, range(9)), 100)

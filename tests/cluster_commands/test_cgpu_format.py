"""`--output cgpu` against what Alibaba Cloud's pages and the public tool print."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cluster.gpus.cgpu import inspect
from cluster.gpus.tables import align
from tests.testkit.paths import DATA

ALLOCATION = "scheduler.framework.gpushare.allocation"


def shared_node(name: str, memory: int, count: int = 1) -> dict[str, Any]:
    amounts = {"aliyun.com/gpu-mem": str(memory), "aliyun.com/gpu-count": str(count)}
    address = {"type": "InternalIP", "address": name.partition(".")[2] or "10.0.0.1"}
    return {
        "metadata": {"name": name},
        "status": {"allocatable": amounts, "addresses": [address]},
    }


def sharing_pod(
    node: str, memory: int, annotations: dict[str, str] | None = None, name: str = "p"
) -> dict[str, Any]:
    limits = {"aliyun.com/gpu-mem": str(memory)}
    return {
        "metadata": {"name": name, "namespace": "default", "annotations": annotations or {}},
        "spec": {"nodeName": node, "containers": [{"resources": {"limits": limits}}]},
        "status": {"phase": "Running"},
    }


SHANGHAI = shared_node("cn-shanghai.192.168.6.104", 15)
ZHANGJIAKOU = shared_node("cn-zhangjiakou.192.168.66.139", 15)


def without_trailing_blanks(text: str) -> str:
    """The web pages have lost the two blanks that the tool prints after the last line."""
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


@pytest.mark.parametrize(
    ("nodes", "pods", "expected"),
    [
        pytest.param(
            [SHANGHAI],
            [],
            """\
NAME                       IPADDRESS      GPU0(Allocated/Total)  GPU Memory(GiB)
cn-shanghai.192.168.6.104  192.168.6.104  0/15                   0/15
----------------------------------------------------------------------
Allocated/Total GPU Memory In Cluster:
0/15 (0%)
""",
            id="nothing is allocated",
        ),
        pytest.param(
            [ZHANGJIAKOU],
            [sharing_pod("cn-zhangjiakou.192.168.66.139", 3, {"ALIYUN_COM_GPU_MEM_IDX": "0"})],
            """\
NAME                           IPADDRESS       GPU0(Allocated/Total)  GPU Memory(GiB)
cn-zhangjiakou.192.168.66.139  192.168.66.139  3/15                   3/15
---------------------------------------------------------------------------
Allocated/Total GPU Memory In Cluster:
3/15 (20%)
""",
            id="one pod",
        ),
        pytest.param(
            [shared_node("cn-shanghai.192.168.0.4", 14, 2)],
            [],
            """\
NAME                     IPADDRESS    GPU0(Allocated/Total)  GPU1(Allocated/Total)  GPU Memory(GiB)
cn-shanghai.192.168.0.4  192.168.0.4  0/7                    0/7                    0/14
---------------------------------------------------------------------
Allocated/Total GPU Memory In Cluster:
0/14 (0%)
""",
            id="two cards",
        ),
        pytest.param(
            [shared_node("n", 30218, 2), shared_node("m", 15109)],
            [
                sharing_pod("n", 8000, {ALLOCATION: '{"0":{"0":3000},"1":{"1":5000}}'}),
                sharing_pod("n", 100),
                sharing_pod("n", 200, {"ALIYUN_COM_GPU_MEM_IDX": "none"}),
            ],
            """\
NAME  IPADDRESS  GPU0(Allocated/Total)  GPU1(Allocated/Total)  PENDING(Allocated)  GPU Memory(MiB)
m     10.0.0.1   0/15109                0/0                                        0/15109
n     10.0.0.1   3000/15109             5000/15109             300                 8300/30218
----------------------------------------------------
Allocated/Total GPU Memory In Cluster:
8300/45327 (18%)
""",
            id="two nodes, MiB, pods without a card",
        ),
    ],
)
def test_the_tables_of_the_pages(
    nodes: list[dict[str, Any]], pods: list[dict[str, Any]], expected: str
) -> None:
    assert without_trailing_blanks(inspect(nodes, pods)) == expected


def test_details_of_each_pod() -> None:
    first, second = "nlu-framework-worker-1", "nlu-framework-worker-2"
    on_card = {"ALIYUN_COM_GPU_MEM_IDX": "0"}
    waiting = sharing_pod(first, 4, name="jupyter-admin888")
    waiting["metadata"]["namespace"] = "jupyterhub"
    pods = [
        sharing_pod(first, 11, on_card, name="gpu-share-pod3"),
        waiting,
        sharing_pod(second, 11, on_card, name="gpu-share-pod1"),
        sharing_pod(second, 11, on_card, name="gpu-share-pod2"),
    ]
    nodes = [shared_node(first, 47), shared_node(second, 47)]
    assert (
        without_trailing_blanks(inspect(nodes, pods, details=True))
        == """\

NAME:       nlu-framework-worker-1
IPADDRESS:  10.0.0.1

NAME              NAMESPACE   GPU0(Allocated)  Pending(Allocated)
gpu-share-pod3    default     11               0
jupyter-admin888  jupyterhub  0                4
Allocated :       15 (31%)
Total :           47
------------------------------------------------------------------------

NAME:       nlu-framework-worker-2
IPADDRESS:  10.0.0.1

NAME            NAMESPACE  GPU0(Allocated)
gpu-share-pod1  default    11
gpu-share-pod2  default    11
Allocated :     22 (46%)
Total :         47
------------------------------------------------------------------------


Allocated/Total GPU Memory In Cluster:  37/94 (39%)
"""
    )


def test_details_of_a_node_that_does_not_say_how_many_cards_it_has() -> None:
    """The tool then shows what is on card 0 as pending, as soon as anything is pending there."""
    node = shared_node("n", 60)
    del node["status"]["allocatable"]["aliyun.com/gpu-count"]
    pods = [
        sharing_pod("n", 4, {ALLOCATION: '{"0":{"0":4}}'}, name="recorded"),
        sharing_pod("n", 3, {"ALIYUN_COM_GPU_MEM_IDX": "0"}, name="by-index"),
        sharing_pod("n", 2, {"ALIYUN_COM_GPU_MEM_IDX": "1"}, name="elsewhere"),
        sharing_pod("n", 1, name="pending"),
    ]
    assert (
        without_trailing_blanks(inspect([node], pods, details=True))
        == """\

NAME:       n
IPADDRESS:  10.0.0.1

NAME         NAMESPACE  Pending(Allocated)
recorded     default    4
by-index     default    3
elsewhere    default    0
pending      default    1
Allocated :  10 (16%)
Total :      60
------------------------------------------------------------------------------------------


Allocated/Total GPU Memory In Cluster:  10/60 (16%)
"""
    )


def test_terminated_pods_do_not_count() -> None:
    pod = sharing_pod("cn-shanghai.192.168.6.104", 3, {"ALIYUN_COM_GPU_MEM_IDX": "0"})
    done = {**pod, "status": {"phase": "Succeeded"}}
    assert "0/15 (0%)" in inspect([SHANGHAI], [done])


def test_no_node_shares_its_cards() -> None:
    assert "0/0 (0%)" in inspect([{"metadata": {"name": "n"}}], [])


def test_columns_are_those_of_gos_tabwriter() -> None:
    lines = (DATA / "tabwriter.tsv").read_text(encoding="utf-8").splitlines()
    cases = [tuple(map(json.loads, line.split("\t"))) for line in lines]
    assert len(cases) > 40
    assert [align(text) for text, _ in cases] == [aligned for _, aligned in cases]

"""The pods whose end would let a node take another one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from cluster.accounting.account import CountedPod, NodeLoad, Object
from cluster.why.nodes import Node, read_node

_MAX_TRIED_PODS = 16  # of one node
_DAEMON_SET = "daemonset/"  # makes a new pod at once


class RoomMaker(NamedTuple):
    """A node that would take a pod if some of its `pods` ended: as few as are enough."""

    node: str
    pods: tuple[CountedPod, ...]


def room_makers(
    nodes: Iterable[tuple[Object, Sequence[CountedPod]]], takes: Callable[[Node], bool]
) -> list[RoomMaker]:
    """Return the nodes that pods could make room on, those first where the fewest have to end.

    `nodes` are objects with what counts of their pods; `takes` says whether a node would take the
    pod that waits. Pods of DaemonSets and static pods make no room: they come
    back.
    """
    found = filter(None, (_on_node(raw, pods, takes) for raw, pods in nodes))
    return sorted(found, key=lambda one: (len(one.pods), *map(_size, one.pods), one.node))


def _on_node(
    raw: Object, pods: Sequence[CountedPod], takes: Callable[[Node], bool]
) -> RoomMaker | None:
    ending = sorted(
        (pod for pod in pods if not (pod.is_static or pod.owner.startswith(_DAEMON_SET))),
        key=_size,
        reverse=True,
    )[:_MAX_TRIED_PODS]

    def is_enough(gone: Sequence[CountedPod]) -> bool:
        return takes(read_node(raw, _load(pod for pod in pods if pod not in gone)))

    if not ending or not is_enough(ending):
        return None
    enough = next(filter(is_enough, _tries(ending)))
    return RoomMaker(ending[0].node, tuple(enough))


def _tries(ending: Sequence[CountedPod]) -> Iterator[Sequence[CountedPod]]:
    """Yield one pod alone, the smallest first, then the two largest, the three largest, and so on.

    The last are all of them.
    """
    for pod in reversed(ending):
        yield (pod,)
    for count in range(2, len(ending) + 1):
        yield ending[:count]


def _size(pod: CountedPod) -> tuple[float, int]:
    """Return how many GPUs a pod has, of whatever resource, and how much CPU."""
    amounts = pod.consumer.amounts.values() if pod.consumer else ()
    return float(sum(amounts)), pod.requests.get("cpu", 0)


def _load(pods: Iterable[CountedPod]) -> NodeLoad:
    load = NodeLoad()
    for pod in pods:
        load.add(pod.requests, pod.consumer)
    return load

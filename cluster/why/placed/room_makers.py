"""The pods whose end would let a node take another one."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from cluster.accounting.account import CountedPod, NodeLoad, Object
from cluster.why.nodes import Node, read_node

_MAX_TRIED_PODS = 16  # of one node, each for itself
_DAEMON_SET = "daemonset/"  # makes a new pod at once


class RoomMaker(NamedTuple):
    """A node that would take a pod if all of its `pods` ended, of which each one is needed.

    Of more than 16 pods some may not be needed.
    """

    node: str
    pods: tuple[CountedPod, ...]


def room_makers(
    nodes: Iterable[tuple[Object, Sequence[CountedPod]]], takes: Callable[[Node], bool]
) -> list[RoomMaker]:
    """Return the nodes that pods could make room on, those first where the fewest have to end.

    `nodes` are objects with what counts of their pods; `takes` says whether a node would take the
    pod that waits. Pods of DaemonSets and static pods make no room: they come back.
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
    )

    def is_enough(gone: Sequence[CountedPod]) -> bool:
        ended = {id(pod) for pod in gone}
        return takes(read_node(raw, _load(pod for pod in pods if id(pod) not in ended)))

    if not ending or not is_enough(ending):
        return None
    largest = ending[:_MAX_TRIED_PODS]
    alone = next((pod for pod in reversed(largest) if is_enough((pod,))), None)
    enough = (alone,) if alone else _needed(ending, is_enough)
    return RoomMaker(ending[0].node, enough)


def _needed(
    ending: Sequence[CountedPod], is_enough: Callable[[Sequence[CountedPod]], bool]
) -> tuple[CountedPod, ...]:
    """Return the largest pods that are enough together, without those that are not needed."""
    sizes = range(1, len(ending) + 1)
    enough = [*ending[: sizes[bisect_left(sizes, 1, key=lambda size: is_enough(ending[:size]))]]]
    if len(enough) <= _MAX_TRIED_PODS:
        for pod in reversed(enough.copy()):
            fewer = [each for each in enough if each is not pod]
            if is_enough(fewer):
                enough = fewer
    return tuple(enough)


def _size(pod: CountedPod) -> tuple[float, int]:
    """Return how many GPUs a pod has, of whatever resource, and how much CPU."""
    amounts = pod.consumer.amounts.values() if pod.consumer else ()
    return float(sum(amounts)), pod.requests.get("cpu", 0)


def _load(pods: Iterable[CountedPod]) -> NodeLoad:
    load = NodeLoad()
    for pod in pods:
        load.add(pod.requests, pod.consumer)
    return load

"""The page of a node: its cards and who has them, its taints, and why cards are stranded."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from cluster.accounting.account import DEFAULT_POD_SIZE, CountedPod, Object
from cluster.accounting.nodes import model_of, status_of
from cluster.accounting.usage import Consumer, NodeUsage, Usage
from cluster.doctor.rows import Row, State
from cluster.gpus.tables import cpu_text, memory_text, text
from console.pages.gpus import NO_MODEL, NodeRow, RowWithoutGpu, node_row, rows_without_gpu
from rules.base.json_values import as_object, as_objects, as_text

_MAX_TAKERS = 3


class Taker(NamedTuple):
    """A pod that takes much of what the node lacks."""

    namespace: str
    name: str
    amount: str


class Stranding(NamedTuple):
    """A sentence that says why cards are stranded, and the pods that take most of what lacks."""

    words: str
    what: str
    takers: tuple[Taker, ...]


class NodePage(NamedTuple):
    """All that the page says. `row` is None if the node offers no GPU and no pod there asks."""

    name: str
    model: str
    status: str
    is_ready: bool
    taints: tuple[str, ...]
    row: NodeRow | None
    consumers: tuple[Consumer, ...]
    without_gpu: tuple[RowWithoutGpu, ...]
    stranding: Stranding | None


def node_page(
    usage: Usage, name: str, raw: Object, pods: Sequence[CountedPod], seen: Collection[str] | None
) -> NodePage:
    """The page of the node `raw`.

    `pods` are all that count there. Only those in the namespaces in `seen` are named; all, if it is
    None.
    """
    used = next((node for node in usage.nodes if node.name == name), None)
    found = node_row(usage, name)
    row, consumers = found or (None, ())
    status = status_of(raw)
    return NodePage(
        name=name,
        model=(used.model if used else model_of(raw)) or NO_MODEL,
        status=status,
        is_ready=status == "Ready",
        taints=tuple(_taints(raw)),
        row=row,
        consumers=consumers,
        without_gpu=rows_without_gpu(usage, name),
        stranding=_stranding(used, raw, pods, seen) if used else None,
    )


def rows_about(rows: Iterable[Row], node: str) -> tuple[Row, ...]:
    """Return the rows of `gpuward doctor` about a node that are not well."""
    named = re.compile(rf"(?<![\w.-]){re.escape(node)}(?![\w.-])")

    def is_about_it(row: Row) -> bool:
        # A name such as `worker` is also a word of messages.
        texts = row.names if node.isalpha() else (*row.names, row.message)
        return any(map(named.search, texts))

    return tuple(row for row in rows if row.state is not State.OK and is_about_it(row))


def nodes_in(row: Row, nodes: Collection[str]) -> tuple[str, ...]:
    """Return those of `nodes` that a row of `gpuward doctor` is about."""
    named = (name.partition(" ")[0] for name in row.names)
    return tuple(dict.fromkeys(name for name in named if name in nodes))


def _taints(raw: Object) -> Iterator[str]:
    for _, taint in as_objects(as_object(raw.get("spec")).get("taints")):
        key, value, effect = (as_text(taint.get(name)) for name in ("key", "value", "effect"))
        yield f"{key}={value}:{effect}" if value else f"{key}:{effect}"


def _stranding(
    node: NodeUsage, raw: Object, pods: Sequence[CountedPod], seen: Collection[str] | None
) -> Stranding | None:
    stranded = [used for used in node.resources if used.stranded]
    if not stranded:
        return None
    size = DEFAULT_POD_SIZE
    allocatable = as_object(as_object(raw.get("status")).get("allocatable"))
    left = {
        "cpu": (node.free_cpu // size.cpu, f"{cpu_text(max(node.free_cpu, 0))} CPU"),
        "memory": (
            node.free_memory // size.memory,
            f"{memory_text(max(node.free_memory, 0))} memory",
        ),
        "pods": (
            _number(allocatable, "pods") - node.pods,
            f"room for {max(_number(allocatable, 'pods') - node.pods, 0)} more pods",
        ),
    }
    wanted = max(used.free + used.stranded for used in stranded)
    lacking = [name for name, (room, _) in left.items() if name in allocatable and room < wanted]
    amounts = " and ".join(f"{text(used.stranded)} {used.resource}" for used in stranded)
    has = " and ".join(left[name][1] for name in lacking)
    verb = "is" if [used.stranded for used in stranded] == [1] else "are"
    words = (
        f"{amounts} {verb} stranded: a pod needs at least {cpu_text(size.cpu)} CPU and "
        f"{memory_text(size.memory)} memory beside a card, and the node has {has} left."
    )
    most = [name for name in lacking if name != "pods"][:1]
    what = {"cpu": "CPU", "memory": "memory"}[most[0]] if most else ""
    return Stranding(words, what, tuple(_takers(pods, most[0], seen)) if most else ())


def _takers(pods: Sequence[CountedPod], what: str, seen: Collection[str] | None) -> Iterator[Taker]:
    write = cpu_text if what == "cpu" else memory_text
    named = [pod for pod in pods if seen is None or pod.namespace in seen]
    named.sort(key=lambda pod: -pod.requests.get(what, 0))
    for pod in named[:_MAX_TAKERS]:
        if amount := pod.requests.get(what, 0):
            yield Taker(pod.namespace, pod.name, write(amount))


def _number(allocatable: Mapping[str, Any], name: str) -> int:
    value = as_text(allocatable.get(name)) or str(allocatable.get(name, ""))
    return int(value) if value.isdecimal() else 0

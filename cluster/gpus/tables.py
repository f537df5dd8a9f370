"""The tables: their rows from an account, aligned and printed as kubectl does."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import groupby
from typing import NamedTuple

from cluster.accounting.pods_without_gpu import taken_without_gpu
from cluster.accounting.room import SIZES, room_by_model
from cluster.accounting.shares import Amount
from cluster.accounting.usage import CardUsage, Consumer, NodeUsage, ResourceUsage, Usage
from cluster.gpus.narrow_terminal import fitted
from terminal import display_width, printable

_GIB = 2**30 * 10**9
_MILLI = 10**6
UNKNOWN = "<unknown>"
"""As kubectl shows what it does not know."""
_NONE = "<none>"
ALL_MODELS = "all models"
SHARE = "ALLOCATED/TOTAL"

Cell = str | ResourceUsage
"""A text; or an amount of which something is allocated, which a terminal shows as a bar."""


class Table(NamedTuple):
    """A table: its header and its rows, which are as long."""

    header: tuple[str, ...]
    rows: list[tuple[Cell, ...]]


def tables_of_clusters(tables: Mapping[str, list[Table]]) -> list[Table]:
    """Return the tables of several clusters, joined, with the cluster as the first column."""
    merged = []
    for same in zip(*tables.values(), strict=True):
        rows = [
            (context, *row)
            for context, table in zip(tables, same, strict=True)
            for row in table.rows
        ]
        merged.append(Table(("CLUSTER", *same[0].header), rows))
    return merged


def nodes_table(usage: Usage, *, wide: bool = False) -> Table:
    """One row for each GPU resource of each node."""
    columns = ("STARTING", "UNAVAILABLE", "OVERCOMMITTED", "FREE-CPU", "FREE-MEMORY", "PODS")
    more = columns if wide else ()
    header = ("NAME", "STATUS", "MODEL", "RESOURCE", SHARE, "FREE", "STRANDED", *more)
    return Table(header, [row for node in usage.nodes for row in _node_rows(node, wide=wide)])


def _node_rows(node: NodeUsage, *, wide: bool) -> Iterator[tuple[Cell, ...]]:
    for used in node.resources:
        row = (node.name, node.status, node.model or _NONE, used.resource, *_amounts(used))
        more = (
            text(used.starting),
            text(used.unavailable),
            _overcommitted(used),
            cpu_text(node.free_cpu),
            memory_text(node.free_memory),
            str(node.pods),
        )
        yield (*row, *(more if wide else ()))


def models_table(usage: Usage) -> Table:
    """One row for each GPU resource of each model of cards."""
    nodes_by_model: dict[str, list[NodeUsage]] = {}
    for node in usage.nodes:
        nodes_by_model.setdefault(node.model or _NONE, []).append(node)
    header = ("MODEL", "NODES", "RESOURCE", SHARE, "FREE", "STRANDED", "OVERCOMMITTED")
    rows: list[tuple[Cell, ...]] = []
    for model, nodes in sorted(nodes_by_model.items()):
        count = Counter(used.resource for node in nodes for used in node.resources)
        rows += [
            (model, str(count[used.resource]), used.resource, *_amounts(used), _overcommitted(used))
            for used in Usage(tuple(nodes), ()).totals()
        ]
    return Table(header, rows)


def namespaces_table(usage: Usage) -> Table:
    """One row for each GPU resource of each namespace."""
    header = ("NAMESPACE", "RESOURCE", "ALLOCATED", "PENDING", "PODS")
    return Table(header, list(_by(usage.consumers, lambda c: (c.namespace,))))


def owners_table(usage: Usage) -> Table:
    """One row for each GPU resource of each owner of pods."""
    header = ("NAMESPACE", "OWNER", "RESOURCE", "ALLOCATED", "PENDING", "PODS")
    return Table(header, list(_by(usage.consumers, lambda c: (c.namespace, c.owner))))


def _by(
    consumers: Iterable[Consumer], key: Callable[[Consumer], tuple[str, ...]]
) -> Iterator[tuple[str, ...]]:
    for group, members in groupby(sorted(consumers, key=key), key):
        amounts: dict[str, tuple[Amount, Amount, int]] = {}
        for consumer in members:
            for resource, amount in consumer.amounts.items():
                has, wants, pods = amounts.get(resource, (0, 0, 0))
                has, wants = (has + amount, wants) if consumer.node else (has, wants + amount)
                amounts[resource] = has, wants, pods + max(len(consumer.pods), 1)
        for resource, (has, wants, pods) in sorted(amounts.items()):
            yield (*group, resource, text(has), text(wants), str(pods))


def totals_table(usage: Usage) -> Table:
    """One row for each GPU resource of the cluster."""
    header = ("RESOURCE", SHARE, "FREE", "STRANDED", "UNAVAILABLE", "OVERCOMMITTED", "PENDING")
    return Table(
        header,
        [
            (
                used.resource,
                *_amounts(used),
                text(used.unavailable),
                _overcommitted(used),
                text(used.pending),
            )
            for used in usage.totals()
        ],
    )


def room_table(usage: Usage) -> Table:
    """One row for all nodes with whole cards and one for each model: how many new pods fit."""
    sizes = (f"{size} CARD{'S' * (size > 1)}" for size in SIZES)
    rows: list[tuple[Cell, ...]] = [
        (
            ALL_MODELS if one.model is None else one.model or _NONE,
            *(str(room.pods) for room in one.rooms),
        )
        for one in room_by_model(usage.nodes)
    ]
    return Table(("ROOM FOR PODS WITH", *sizes), rows)


def cards_table(usage: Usage) -> Table:
    """One row for each resource of each card whose shares are recorded."""
    header = ("NODE", "CARD", "MODEL", "RESOURCE", SHARE)
    return Table(
        header,
        [
            (node.name, card.card, card.model or node.model or _NONE, card.resource, _card(card))
            for node in usage.nodes
            for card in node.cards
        ],
    )


def _card(card: CardUsage) -> ResourceUsage:
    free = max((card.total or 0) - card.allocated, 0)
    return ResourceUsage(card.resource, card.total, card.allocated, free=free)


def pods_table(usage: Usage) -> Table:
    """One row for each pod and card; what is on no known card stands under `<unknown>`."""
    header = ("NODE", "CARD", "RESOURCE", "AMOUNT", "NAMESPACE", "POD", "OWNER")
    rows = [
        (consumer.node or _NONE, card, resource, text(amount), *_whose(consumer))
        for consumer in usage.consumers
        for card, resource, amount in _places(consumer)
    ]
    return Table(header, sorted(rows, key=lambda row: tuple(map(str, row))))


def pods_without_gpu_table(usage: Usage) -> Table:
    """One row for each pod on a GPU node that asks for no GPU."""
    header = ("NODE", "NAMESPACE", "POD", "OWNER", "CPU", "MEMORY", "PLATFORM", "WHY")
    rows: list[tuple[Cell, ...]] = [
        (
            pod.node,
            pod.namespace,
            pod.name,
            pod.owner,
            cpu_text(pod.cpu),
            memory_text(pod.memory),
            "yes" if pod.is_of_platform else "no",
            pod.why,
        )
        for pod in usage.without_gpu
    ]
    return Table(header, rows)


def words_about_pods_without_gpu(usage: Usage, *, are_all: bool = True) -> str:
    """Return a text about the pods on GPU nodes that ask for no GPU; empty if there are none.

    Unless these `are_all` such pods of the nodes, it does not say what all of them strand.
    """
    taken = taken_without_gpu(usage.without_gpu)
    if not taken.pods:
        return ""
    kinds = (
        (taken.of_platform, "of the GPU platform"),
        (taken.of_daemon_sets, "of DaemonSets"),
        (taken.others, "other" if taken.others == 1 else "others"),
    )
    by_kind = ", ".join(f"{number:,} {kind}" for number, kind in kinds if number)
    is_one = taken.pods == 1
    said = (
        f"{_count(taken.pods, 'pod')} on {_count(taken.nodes, 'GPU node')} "
        f"{'asks' if is_one else 'ask'} for no GPU{f' ({by_kind})' * (taken.others < taken.pods)}, "
        f"and {'takes' if is_one else 'take'} {cpu_text(taken.cpu)} CPU and "
        f"{memory_text(taken.memory)} memory."
    )
    if are_all and (freed := usage.stranded_without_gpu()):
        amounts = ", ".join(f"{text(amount)} {name}" for name, amount in sorted(freed.items()))
        said += f" Without those not of the platform, {amounts} would not be stranded."
    return said


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _places(consumer: Consumer) -> Iterator[tuple[str, str, Amount]]:
    recorded = {share.resource for share in consumer.shares}
    yield from consumer.shares
    for resource, amount in consumer.amounts.items():
        if resource in recorded:
            continue
        devices = [one.device for one in consumer.devices if one.resource == resource]
        yield from ((device, resource, 1) for device in devices)
        if amount > len(devices):
            yield (UNKNOWN if consumer.node else _NONE), resource, amount - len(devices)


def _whose(consumer: Consumer) -> tuple[str, str, str]:
    pods = f" ({len(consumer.pods)} pods)" if consumer.pods else ""
    if consumer.is_idle:
        pods = " (no pod)"
    return consumer.namespace, consumer.name + pods, consumer.owner


def _amounts(used: ResourceUsage) -> tuple[Cell, str, str]:
    if used.total is None:
        return used, UNKNOWN, UNKNOWN
    free = text(used.free)
    if used.free_on_card is not None and used.free_on_card < used.free:
        free += f" ({text(used.free_on_card)} on a card)"
    if used.is_free_at_most:
        free += " (at most)"
    return used, free, text(used.stranded)


def _overcommitted(used: ResourceUsage) -> str:
    return UNKNOWN if used.total is None else text(used.overcommitted)


def text(amount: Amount) -> str:
    """An amount as a table shows it."""
    return f"{amount.normalize():f}" if isinstance(amount, Decimal) else str(amount)


def allocated_text(used: ResourceUsage) -> str:
    """Return the allocated amount and the total: `3/8`."""
    total = UNKNOWN if used.total is None else text(used.total)
    return f"{text(used.allocated)}/{total}"


def cpu_text(amount: int) -> str:
    """Return CPU, in units of 1e-9, as kubectl shows it: `3`, or `2500m`."""
    milli = amount // _MILLI
    return str(milli // 1000) if milli % 1000 == 0 else f"{milli}m"


def memory_text(amount: int) -> str:
    """Return memory, in units of 1e-9 bytes, in GiB."""
    return f"{amount / _GIB:.1f}Gi"


# Columns, aligned as by Go's `text/tabwriter`, which kubectl and its plugins use.


def align(text: str, padding: int = 2, width_of: Callable[[str], int] = len) -> str:
    """`text` with its tabs replaced by spaces, as a tabwriter with minwidth 0 does.

    A cell ends with a tab. Cells of one column in lines that follow each other get the width of the
    widest, and `padding` more. What follows the last tab of a line is not aligned. `width_of` gives
    the width of a cell; Go counts its characters.
    """
    lines = [line.split("\t") for line in text.split("\n")]
    widths = [[0] * (len(cells) - 1) for cells in lines]
    for column in range(max(map(len, widths))):
        start = 0
        while start < len(lines):
            end = start
            while end < len(lines) and len(widths[end]) > column:
                end += 1
            block = range(start, end)
            width = max((width_of(lines[row][column]) for row in block), default=0) + padding
            for row in block:
                widths[row][column] = width
            start = max(end, start + 1)
    return "\n".join(
        "".join(
            cell + " " * (width - width_of(cell))
            for cell, width in zip(cells, line_widths, strict=False)
        )
        + cells[-1]
        for cells, line_widths in zip(lines, widths, strict=True)
    )


# Tables as text, as kubectl prints them, with bars if a terminal shows them.

_PADDING = 3  # between columns, as in kubectl
_NARROW_PADDING = 2
# The longest valid name, that of a resource: domain, slash, name. One cell widens all rows.
_MOST_CHARACTERS = 253 + 1 + 63
_WIDTH = 10
ALLOCATED, STRANDED, UNAVAILABLE, FREE = "█", "▒", "x", "░"
LEGEND = f"{ALLOCATED} allocated  {STRANDED} stranded  {FREE} free  {UNAVAILABLE} unavailable\n"


def render(table: Table, *, bars: bool = False, width: float = math.inf) -> str:
    """The lines of `table`; with `bars` each amount of which something is allocated has one.

    Cells are folded where lines would be wider than `width`, which may be the terminal's.
    """
    rows = [table.header, *(tuple(_cell(cell, bars=bars) for cell in row) for row in table.rows)]
    cells: list[Sequence[str]] = [tuple(map(_bounded, row)) for row in rows]
    text = _aligned(cells, _PADDING)
    if max(map(display_width, text.splitlines())) > width:
        text = _aligned(fitted(cells, width, _NARROW_PADDING), _NARROW_PADDING)
    return text


def _aligned(rows: Iterable[Sequence[str]], padding: int) -> str:
    text = align("\n".join(map("\t".join, rows)), padding, display_width)
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def _bounded(text: str) -> str:
    """`text` as a terminal may show it, cut: no API server bounds the name of a pod's owner."""
    shown = printable(text[: _MOST_CHARACTERS + 1])
    return shown if len(shown) <= _MOST_CHARACTERS else f"{shown[: _MOST_CHARACTERS - 3]}..."


def bar(used: ResourceUsage) -> str:
    """A bar of ten characters; empty if the total is unknown or 0.

    Whatever is there gets at least one character, so that a little is not taken for nothing.
    """
    if not used.total:
        return ""
    parts = (
        (ALLOCATED, min(used.allocated - used.overcommitted, used.total)),
        (STRANDED, used.stranded),
        (UNAVAILABLE, used.unavailable),
        (FREE, used.free),
    )
    shares = [_WIDTH * part / used.total for _, part in parts]
    lengths = [max(int(share), 1) if share else 0 for share in shares]
    while sum(lengths) < _WIDTH:
        rests = [share - length for share, length in zip(shares, lengths, strict=True)]
        lengths[rests.index(max(rests))] += 1
    while sum(lengths) > _WIDTH:
        lengths[lengths.index(max(lengths))] -= 1
    return "".join(mark * length for (mark, _), length in zip(parts, lengths, strict=True))


def _cell(cell: Cell, *, bars: bool) -> str:
    if isinstance(cell, str):
        return cell
    amount = allocated_text(cell)
    return f"{bar(cell):{_WIDTH}} {amount}" if bars else amount


def join(tables: Iterable[Table], *, bars: bool, width: float) -> str:
    """The tables that have rows, with an empty line between them; see `render`."""
    return "\n".join(render(table, bars=bars, width=width) for table in tables if table.rows)

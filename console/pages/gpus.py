"""The page of the GPUs: totals, each node with its cards, and who has them."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby, starmap
from typing import Any, NamedTuple, TypeAlias

from cluster.accounting.device_holders import UNNAMED
from cluster.accounting.pods_without_gpu import PodWithoutGpu
from cluster.accounting.room import ModelRoom, Room, room_by_model
from cluster.accounting.shares import Amount
from cluster.accounting.usage import CardUsage, Consumer, NodeUsage, ResourceUsage, Usage
from cluster.gpus.document import to_document
from cluster.gpus.tables import (
    allocated_text,
    cpu_text,
    memory_text,
    text,
    words_about_pods_without_gpu,
)
from console.pictures import (
    FREE,
    STARTING,
    STRANDED,
    TAKEN,
    UNAVAILABLE,
    Part,
    Picture,
    bar,
    cards,
    shared_cards,
)
from console.utilisation import PodUtilisation, Utilisation

STATES = ("free", "stranded", "unavailable", "overcommitted", "starting")
NO_MODEL = "model not known"
NO_TEAM = "(no team)"
"""Stands for namespaces without the label that names a team."""
OTHERS = "(other namespaces)"
"""Stands for the namespaces that a viewer must not see, and for the owners and pods in them."""
PAGE = 100
"""Nodes on one page."""
_OPEN = 60  # nodes: so many are shown without a filter
_MAX_NAMESPACES, _MAX_OWNERS, _MAX_WAITING, _MAX_IDLE = 100, 15, 15, 10
_GIB = 2**30 * 10**9
_NANO = 10**9


class Filter(NamedTuple):
    """The choice of the viewer; an empty text is no filter. `page` counts from 1.

    `resource` hides nothing: it is what namespaces, teams and owners are ranked by.
    """

    model: str = ""
    namespace: str = ""
    team: str = ""
    state: str = ""
    node: str = ""
    resource: str = ""
    page: int = 1

    @property
    def is_empty(self) -> bool:
        """Return whether it leaves nothing out."""
        return not (self.model or self.namespace or self.team or self.state or self.node)

    def query(self, **changes: str | int) -> dict[str, str]:
        """The query of the address of the page with these changes; only what is not the default."""
        wanted = self._replace(**changes)._asdict()  # type: ignore[arg-type]  # fields by name
        return {
            name: str(value)
            for name, value in wanted.items()
            if value != Filter._field_defaults[name]
        }


class Amounts(NamedTuple):
    """A resource with its amounts as texts and as a bar; `note` is what a reader must not miss."""

    resource: str
    used: ResourceUsage
    share: str
    bar: Picture
    note: str


class NodeRow(NamedTuple):
    """A node and each of its GPU resources, with a picture of the cards."""

    name: str
    status: str
    is_ready: bool
    resources: tuple[tuple[Amounts, Picture], ...]
    cpu: str
    memory: str


class Group(NamedTuple):
    """The nodes of one model; `nodes` are those that are shown of `size`.

    `room` is empty if they have no whole cards.
    """

    model: str
    size: int
    totals: tuple[Amounts, ...]
    room: tuple[Room, ...]
    nodes: tuple[NodeRow, ...]


class Holder(NamedTuple):
    """The amounts of a resource that a namespace, a team or an owner has and waits for.

    `namespace` is the team's name in the row of a team. `since` is when the first of its pods got
    what it has; empty if that is not known, or if it has nothing.
    """

    namespace: str
    owner: str
    resource: str
    allocated: str
    pending: str
    pods: int
    since: str


class Waiting(NamedTuple):
    """A pod, or a claim, that waits for GPUs. `since` is when it was made; empty if not known."""

    namespace: str
    name: str
    owner: str
    amounts: str
    is_pod: bool
    since: str


class HiddenCounts(NamedTuple):
    """The numbers of what the filter hides, and the page would show without it."""

    nodes: int = 0
    waiting: int = 0
    without_gpu: int = 0
    teams: int = 0
    namespaces: int = 0
    owners: int = 0


class OwnerWithoutGpu(NamedTuple):
    """The sums of an owner: the CPU and memory that its pods without a GPU take of GPU nodes."""

    namespace: str
    owner: str
    cpu: str
    memory: str
    pods: int
    is_of_platform: bool


class RowWithoutGpu(NamedTuple):
    """A pod on a GPU node that asks for no GPU, or the sum of several, as their node shows it."""

    pod: PodWithoutGpu
    cpu: str
    memory: str


class IdleCards(NamedTuple):
    """A pod with cards that were not busy: the amount of the resource, since when, and how busy."""

    namespace: str
    name: str
    owner: str
    node: str
    amount: str
    since: str
    busy: PodUtilisation


class GpusPage(NamedTuple):
    """All that the page says. `others` count the holders and pods that are left out.

    `room` is how many new pods fit on all nodes and on those of each model. The holders are of
    `resource`, one of `resources`; of all of them, one after another, if it is empty. `without_gpu`
    are the owners of pods on GPU nodes that ask for no GPU, and `words_without_gpu` a text about
    these pods. `hidden` counts what the filter leaves out.
    """

    totals: tuple[Amounts, ...]
    room: tuple[ModelRoom, ...]
    resource: str
    resources: tuple[str, ...]
    groups: tuple[Group, ...]
    teams: tuple[Holder, ...]
    other_teams: int
    namespaces: tuple[Holder, ...]
    other_namespaces: int
    owners: tuple[Holder, ...]
    other_owners: int
    without_gpu: tuple[OwnerWithoutGpu, ...]
    other_without_gpu: int
    words_without_gpu: str
    waiting: tuple[Waiting, ...]
    other_waiting: int
    models: tuple[str, ...]
    all_namespaces: tuple[str, ...]
    all_teams: tuple[str, ...]
    filter: Filter
    hidden: HiddenCounts
    shown: int
    matching: int
    nodes: int
    first: int

    @property
    def pages(self) -> int:
        """Return how many pages of nodes there are."""
        return -(-self.matching // PAGE)


Teams: TypeAlias = Mapping[str, str]
"""The team of each namespace that has one."""


def filtered(usage: Usage, wanted: Filter, teams: Teams) -> Usage:
    """The nodes and consumers that fit the filter."""
    if wanted.is_empty:
        return usage

    def is_wanted(namespace: str) -> bool:
        is_of_namespace = wanted.namespace in {"", namespace}
        return is_of_namespace and wanted.team in {"", _team(namespace, teams)}

    consumers = tuple(c for c in usage.consumers if is_wanted(c.namespace))
    there = {consumer.node for consumer in consumers}
    fitting = tuple(
        node
        for node in usage.nodes
        if (not wanted.model or _model(node) == wanted.model)
        and (not wanted.node or wanted.node in node.name)
        and (not wanted.state or any(getattr(r, wanted.state) for r in node.resources))
    )
    is_of_owners = wanted.namespace or wanted.team
    nodes = tuple(node for node in fitting if not is_of_owners or node.name in there)
    names, names_of_fitting = {node.name for node in nodes}, {node.name for node in fitting}
    chooses_nodes = wanted.model or wanted.node or wanted.state
    if not chooses_nodes:
        names |= {""}
    return Usage(
        nodes,
        tuple(c for c in consumers if c.node in names),
        usage.unknown,
        without_gpu=tuple(
            pod
            for pod in usage.without_gpu
            if is_wanted(pod.namespace) and (not chooses_nodes or pod.node in names_of_fitting)
        ),
    )


def without_names_of_others(usage: Usage, seen: frozenset[str]) -> Usage:
    """Return the amounts, with names only of consumers in the namespaces in `seen`.

    On each node they are one consumer, or one that starts and one that does not. Of a device that
    several have, or that is unhealthy, pods in other namespaces have no name either. Those that ask
    for no GPU are one sum on each node, for each of the kinds that the page tells apart.
    """
    named = [consumer for consumer in usage.consumers if consumer.namespace in seen]
    hidden: dict[tuple[str, bool], list[Consumer]] = defaultdict(list)
    for consumer in usage.consumers:
        if consumer.namespace not in seen:
            hidden[consumer.node, consumer.is_starting].append(consumer)
    twice = tuple(
        each._replace(holders=tuple(h if h.namespace in seen else UNNAMED for h in each.holders))
        for each in usage.given_twice
    )
    consumers = (*named, *starmap(_nameless, hidden.items()))
    sick = tuple(each if each.namespace in seen else each.without_names() for each in usage.sick)
    return usage._replace(
        consumers=consumers,
        given_twice=twice,
        sick=sick,
        without_gpu=(*_without_gpu_summed(usage.without_gpu, seen),),
    )


def _without_gpu_summed(
    pods: Iterable[PodWithoutGpu], seen: frozenset[str]
) -> Iterator[PodWithoutGpu]:
    """Yield the pods in the namespaces in `seen`, then the sums of the others."""
    sums: dict[tuple[str, bool, bool], PodWithoutGpu] = {}
    for pod in pods:
        if pod.namespace in seen:
            yield pod
            continue
        kind = pod.node, pod.is_of_platform, pod.is_of_daemon_set
        before = sums.get(kind)
        sums[kind] = pod._replace(
            namespace=OTHERS,
            name=OTHERS,
            owner=OTHERS,
            why="",
            cpu=pod.cpu + (before.cpu if before else 0),
            memory=pod.memory + (before.memory if before else 0),
            pods=pod.pods + (before.pods if before else 0),
        )
    yield from (sums[kind] for kind in sorted(sums))


def _nameless(place: tuple[str, bool], members: Sequence[Consumer]) -> Consumer:
    amounts: dict[str, Amount] = defaultdict(int)
    for consumer in members:
        for resource, amount in consumer.amounts.items():
            amounts[resource] += amount
    shares = tuple(share for consumer in members for share in consumer.shares)
    pods = (OTHERS,) * sum(len(consumer.pods) or 1 for consumer in members)
    node, is_starting = place
    return Consumer(
        namespace=OTHERS,
        name=OTHERS,
        owner=OTHERS,
        node=node,
        is_starting=is_starting,
        amounts=amounts,
        shares=shares,
        pods=pods,
    )


def _team(namespace: str, teams: Teams) -> str:
    return OTHERS if namespace == OTHERS else teams.get(namespace, NO_TEAM)


def gpus_page(
    usage: Usage,
    wanted: Filter,
    teams: Teams | None = None,
    *,
    most: int = PAGE,
    all_resources: bool = False,
) -> GpusPage:
    """The page about `usage`, which is of the whole cluster, with at most so many nodes.

    Without `teams` nothing is said about them. Holders are of one resource, or of
    `all_resources`, one after another.
    """
    of_namespaces = teams or {}
    chosen = filtered(usage, wanted, of_namespaces)
    first = (wanted.page - 1) * most
    nodes = chosen.nodes
    has_room = len(nodes) <= max(_OPEN, most - PAGE) or not wanted.is_empty
    shown = nodes[first : first + most] if has_room else ()
    of_nodes = _holders_of_nodes(usage.consumers, {node.name for node in shown})
    rows = {node.name: _row(node, of_nodes.get(node.name, ()), wanted) for node in shown}
    resources = _resources(usage.consumers)
    resource = wanted.resource if wanted.resource in resources else next(iter(resources), "")
    ranked = resources if all_resources else (resource,)
    holder_of: dict[str, _HolderOf] = {
        "namespaces": lambda consumer: (consumer.namespace, ""),
        "owners": lambda consumer: (consumer.namespace, consumer.owner),
        "teams": lambda consumer: (_team(consumer.namespace, of_namespaces), ""),
    }
    if teams is None:
        del holder_of["teams"]
    holders = {
        kind: _holders(chosen.consumers, ranked, _MOST_BY_KIND[kind], key)
        for kind, key in holder_of.items()
    }
    all_holders = {
        kind: 0 if wanted.is_empty else len(_keys(usage.consumers, ranked, key))
        for kind, key in holder_of.items()
    }
    by_team, other_teams = holders.get("teams", ((), 0))
    room = room_by_model(nodes)
    without_gpu, other_without_gpu = _owners_without_gpu(chosen.without_gpu)
    waiting = [*_waiting(chosen.consumers)]
    return GpusPage(
        totals=tuple(map(_amounts, chosen.totals())),
        room=room,
        resource="" if all_resources else resource,
        resources=resources,
        groups=tuple(_groups(nodes, rows, {one.model: one.rooms for one in room})),
        teams=by_team,
        other_teams=other_teams,
        namespaces=holders["namespaces"][0],
        other_namespaces=holders["namespaces"][1],
        owners=holders["owners"][0],
        other_owners=holders["owners"][1],
        without_gpu=without_gpu,
        other_without_gpu=other_without_gpu,
        words_without_gpu=words_about_pods_without_gpu(
            chosen, are_all=not (wanted.namespace or wanted.team)
        ),
        waiting=tuple(waiting[:_MAX_WAITING]),
        other_waiting=max(len(waiting) - _MAX_WAITING, 0) + _nameless_waiting(chosen.consumers),
        models=tuple(sorted({_model(node) for node in usage.nodes})),
        all_namespaces=tuple(sorted(usage.namespaces())),
        all_teams=tuple(sorted({_team(name, of_namespaces) for name in usage.namespaces()}))
        if teams is not None
        else (),
        filter=wanted,
        hidden=HiddenCounts() if wanted.is_empty else _hidden(usage, chosen, all_holders, holders),
        shown=len(shown),
        matching=len(nodes),
        nodes=len(usage.nodes),
        first=first,
    )


def _hidden(
    usage: Usage,
    chosen: Usage,
    all_holders: Mapping[str, int],
    holders: Mapping[str, tuple[tuple[Holder, ...], int]],
) -> HiddenCounts:
    """Return how many of each are in `usage` and not in `chosen`.

    `all_holders` are how many holders of each kind there are, and `holders` those in `chosen` with
    the number of others.
    """

    def less(count: Callable[[Usage], int]) -> int:
        return count(usage) - count(chosen)

    less_holders = {
        kind: all_holders[kind] - len(rows) - others for kind, (rows, others) in holders.items()
    }
    return HiddenCounts(
        nodes=less(lambda one: len(one.nodes)),
        waiting=less(
            lambda one: sum(1 for _ in _waiting(one.consumers)) + _nameless_waiting(one.consumers)
        ),
        without_gpu=less(lambda one: len({(pod.namespace, pod.owner) for pod in one.without_gpu})),
        **less_holders,
    )


def _resources(consumers: Iterable[Consumer]) -> tuple[str, ...]:
    """Return the resources that consumers have or wait for, first what most of them do."""
    counts = Counter(chain.from_iterable(consumer.amounts for consumer in consumers))
    return tuple(sorted(counts, key=lambda resource: (-counts[resource], resource)))


def idle_holders(
    usage: Usage, wanted: Filter, teams: Teams | None, resource: str, utilisation: Utilisation
) -> tuple[IdleCards, ...]:
    """Return the pods with most of `resource` that was not busy in the last day.

    Those of which that is not known are left out.
    """
    found: list[tuple[float, IdleCards]] = []
    for consumer in filtered(usage, wanted, teams or {}).consumers:
        amount = consumer.amounts.get(resource)
        busy = utilisation.by_pod.get((consumer.namespace, consumer.name))
        if amount and busy and busy.day is not None and consumer.node:
            idle = float(amount) * (1 - busy.day / 100)
            row = IdleCards(
                namespace=consumer.namespace,
                name=consumer.name,
                owner=consumer.owner,
                node=consumer.node,
                amount=text(amount),
                since=consumer.held_since,
                busy=busy,
            )
            found.append((-idle, row))
    return tuple(row for _, row in heapq.nsmallest(_MAX_IDLE, found))


def as_document(usage: Usage, teams: Teams | None) -> dict[str, Any]:
    """Return the output of `gpuward gpus -o json`, with teams of namespaces if there are any."""
    document = to_document(usage)
    if teams is not None:
        namespaces = sorted(usage.namespaces())
        document["teams"] = {name: teams[name] for name in namespaces if name in teams}
    return document


def _owners_without_gpu(
    pods: Iterable[PodWithoutGpu],
) -> tuple[tuple[OwnerWithoutGpu, ...], int]:
    """The owners whose pods take most CPU, then memory, those of the platform last.

    Returns the number of the others, too.
    """
    by_owner: dict[tuple[bool, str, str], list[PodWithoutGpu]] = defaultdict(list)
    for pod in pods:
        by_owner[pod.is_of_platform, pod.namespace, pod.owner].append(pod)
    sums = {
        key: (
            sum(pod.cpu for pod in members),
            sum(pod.memory for pod in members),
            sum(pod.pods for pod in members),
        )
        for key, members in by_owner.items()
    }
    first = heapq.nsmallest(
        _MAX_OWNERS, sums, key=lambda key: (key[0], -sums[key][0], -sums[key][1], key)
    )
    rows = []
    for key in first:
        is_of_platform, namespace, owner = key
        cpu, memory, count = sums[key]
        rows.append(
            OwnerWithoutGpu(
                namespace=namespace,
                owner=owner,
                cpu=cpu_text(cpu),
                memory=memory_text(memory),
                pods=count,
                is_of_platform=is_of_platform,
            )
        )
    return tuple(rows), len(sums) - len(first)


def rows_without_gpu(usage: Usage, node: str) -> tuple[RowWithoutGpu, ...]:
    """Return the pods on `node` that ask for no GPU, with what they take as texts."""
    return tuple(
        RowWithoutGpu(pod, cpu_text(pod.cpu), memory_text(pod.memory))
        for pod in usage.without_gpu
        if pod.node == node
    )


def node_row(usage: Usage, name: str) -> tuple[NodeRow, tuple[Consumer, ...]] | None:
    """One node, and who has GPUs there; None if there is no node of this name with GPUs."""
    node = next((node for node in usage.nodes if node.name == name), None)
    if node is None:
        return None
    consumers = tuple(c for c in usage.consumers if c.node == name)
    return _row(node, consumers, Filter()), consumers


def _model(node: NodeUsage) -> str:
    return node.model or NO_MODEL


def _groups(
    nodes: Sequence[NodeUsage],
    rows: Mapping[str, NodeRow],
    room: Mapping[str | None, tuple[Room, ...]],
) -> Iterator[Group]:
    """Yield the nodes of each model; `room` is that on all of them, by what they call it."""
    ordered = sorted(nodes, key=lambda node: (_model(node), node.name))
    for model, members in groupby(ordered, _model):
        found = [*members]
        totals = Usage(tuple(found), ()).totals()
        shown = tuple(rows[node.name] for node in found if node.name in rows)
        own = room.get(found[0].model, ())
        yield Group(model, len(found), tuple(map(_amounts, totals)), own, shown)


def _amounts(used: ResourceUsage) -> Amounts:
    parts = _states(used)
    taken = used.allocated - used.overcommitted
    return Amounts(
        used.resource,
        used,
        allocated_text(used),
        bar((Part(TAKEN, taken), *parts), used.total or used.allocated),
        f"{text(used.overcommitted)} overcommitted" if used.overcommitted else "",
    )


def _states(used: ResourceUsage) -> tuple[Part, ...]:
    """Return the amounts that no consumer has, by the reason why."""
    return (
        Part(STRANDED, used.stranded, "", "stranded: the node lacks CPU, memory or room for a pod"),
        Part(FREE, used.free, "", "free"),
        Part(
            UNAVAILABLE, used.unavailable, "", "unavailable: unhealthy, or the node takes no pods"
        ),
    )


def _row(node: NodeUsage, consumers: Sequence[Consumer], wanted: Filter) -> NodeRow:
    by_card: dict[str, list[CardUsage]] = defaultdict(list)
    for card in node.cards:
        if card.total:
            by_card[card.resource].append(card)
    return NodeRow(
        node.name,
        node.status,
        node.status == "Ready",
        tuple(
            (_amounts(used), _picture(used, by_card.get(used.resource, ()), consumers, wanted))
            for used in node.resources
        ),
        f"{node.free_cpu / _NANO:.4g}",
        f"{node.free_memory / _GIB:.0f}Gi",
    )


def _picture(
    used: ResourceUsage,
    divided: Sequence[CardUsage],
    consumers: Sequence[Consumer],
    wanted: Filter,
) -> Picture:
    if divided:
        return shared_cards(
            [(_parts_of_card(card, consumers, wanted), card.total or 0) for card in divided]
        )
    parts = [
        _part(consumer, used.resource, amount, wanted)
        for consumer in consumers
        if (amount := consumer.amounts.get(used.resource))
    ]
    others = used.allocated - sum(part.amount for part in parts)
    if others > 0:
        parts.append(Part(TAKEN, others, "", "allocated by another name of the same devices"))
    return cards((*parts, *_states(used)), used.total or used.allocated)


def _parts_of_card(card: CardUsage, consumers: Sequence[Consumer], wanted: Filter) -> list[Part]:
    parts = [
        _part(consumer, card.resource, share.amount, wanted)
        for consumer in consumers
        for share in consumer.shares
        if (share.card, share.resource) == (card.card, card.resource)
    ]
    rest = (card.total or 0) - sum(part.amount for part in parts)
    return [*parts, Part(FREE, max(rest, 0), "", f"free on card {card.card}")]


def _state(consumer: Consumer) -> str:
    return STARTING if consumer.is_starting else TAKEN


def _part(consumer: Consumer, resource: str, amount: Amount, wanted: Filter) -> Part:
    label, title = _texts_of_part(consumer, resource, amount, wanted)
    return Part(_state(consumer), amount, label, title)


def _texts_of_part(
    consumer: Consumer, resource: str, amount: Amount, wanted: Filter
) -> tuple[str, str]:
    """Return the text of what the consumer has, in short and in full.

    The short text is empty if the viewer looks at another namespace.
    """
    what = (
        "starting" if consumer.is_starting else "idle, no pod uses it" if consumer.is_idle else ""
    )
    pods = f"{len(consumer.pods)} pods" if consumer.pods else consumer.name
    if consumer.namespace == OTHERS:
        return "others", f"{pods} of other namespaces: {text(amount)} {resource}"
    title = f"{consumer.namespace}/{pods} of {consumer.owner}: {text(amount)} {resource}"
    short = consumer.owner.rpartition("/")[2]
    is_other = wanted.namespace and consumer.namespace != wanted.namespace
    return "" if is_other else short, f"{title} ({what})" if what else title


def _holders_of_nodes(
    consumers: Iterable[Consumer], names: set[str]
) -> Mapping[str, list[Consumer]]:
    found: dict[str, list[Consumer]] = defaultdict(list)
    for consumer in consumers:
        if consumer.node in names:
            found[consumer.node].append(consumer)
    for held in found.values():
        held.sort(key=lambda consumer: (consumer.namespace, consumer.owner, consumer.name))
    return found


_HolderOf: TypeAlias = Callable[[Consumer], tuple[str, str]]
"""The namespace and the owner of a consumer."""
_MOST_BY_KIND = {
    "namespaces": _MAX_NAMESPACES,
    "owners": _MAX_OWNERS,
    "teams": _MAX_NAMESPACES,
}


def _keys(
    consumers: Iterable[Consumer], resources: Collection[str], holder_of: _HolderOf
) -> set[tuple[str, str, str]]:
    return {
        (resource, *holder_of(consumer))
        for consumer in consumers
        for resource in consumer.amounts
        if resource in resources
    }


class _Sums:
    """The amounts of one holder, and since when it has the first of them."""

    __slots__ = ("has", "pods", "since", "wants")

    def __init__(self) -> None:
        self.has: Amount = 0
        self.wants: Amount = 0
        self.pods = 0
        self.since = ""

    def add(self, consumer: Consumer, amount: Amount) -> None:
        self.pods += len(consumer.pods) or 1
        if not consumer.node:
            self.wants += amount
            return
        self.has += amount
        if since := consumer.held_since:
            self.since = min(self.since or since, since)


def _holders(
    consumers: Iterable[Consumer], resources: Sequence[str], most: int, holder_of: _HolderOf
) -> tuple[tuple[Holder, ...], int]:
    """Return the `most` holders of the first of `resources`, then of the next, and so on.

    Those with most come first: amounts of two resources are not compared, because a card and a GiB
    have no common unit. Returns how many others there are, too.
    """
    sums: dict[tuple[str, str, str], _Sums] = defaultdict(_Sums)
    wanted = frozenset(resources)
    for consumer in consumers:
        for resource, amount in consumer.amounts.items():
            if resource in wanted:
                sums[resource, *holder_of(consumer)].add(consumer, amount)

    def rank(key: tuple[str, str, str]) -> tuple[int, Amount, Amount, tuple[str, str, str]]:
        return resources.index(key[0]), -sums[key].has, -sums[key].wants, key

    first = heapq.nsmallest(most, sums, key=rank)
    rows = []
    for key in first:
        resource, namespace, owner = key
        found = sums[key]
        rows.append(
            Holder(
                namespace=namespace,
                owner=owner,
                resource=resource,
                allocated=text(found.has),
                pending=text(found.wants),
                pods=found.pods,
                since=found.since,
            )
        )
    return tuple(rows), len(sums) - len(first)


def _waiting(consumers: Iterable[Consumer]) -> Iterator[Waiting]:
    for consumer in consumers:
        if not consumer.node and consumer.namespace != OTHERS:
            amounts = ", ".join(f"{text(a)} {name}" for name, a in consumer.amounts.items())
            is_pod = not consumer.name.startswith("resourceclaim/")
            yield Waiting(
                consumer.namespace,
                consumer.name,
                consumer.owner,
                amounts,
                is_pod,
                consumer.held_since,
            )


def _nameless_waiting(consumers: Iterable[Consumer]) -> int:
    """Return how many pods wait in namespaces that the viewer must not see."""
    return sum(len(c.pods) for c in consumers if c.namespace == OTHERS and not c.node)

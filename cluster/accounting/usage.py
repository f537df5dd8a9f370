"""The records of which an account of GPUs is made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from cluster.accounting.device_holders import GivenTwice
from cluster.accounting.device_status import DeviceStatus, SickDevice
from cluster.accounting.offered_twice import OfferedTwice
from cluster.accounting.pods_without_gpu import PodWithoutGpu
from cluster.accounting.shares import FRACTION, Amount, Share


class Consumer(NamedTuple):
    """A pod, or an allocated claim, that has GPUs or waits for them.

    `node` is empty while it waits. `is_starting` says that it has a node and does not run yet.
    `amounts` are what the scheduler counts for it, by resource; `shares` what it has of which card,
    as far as that is recorded; `devices` the whole ones that its status names. `since` is when a
    pod started, and `created` when the object was made; empty if that is not known. `pods` are
    those that share a claim. `is_idle`: no pod that has not terminated uses the claim. `tasks` is
    how many of its containers have a part of a card that HAMi or Volcano divides; `kai` how many
    MiB it has of each card that KAI divides. A pod by which KAI reserves cards has them as
    `reserved`.
    """

    namespace: str
    name: str
    owner: str
    node: str
    is_starting: bool
    amounts: Mapping[str, Amount]
    shares: tuple[Share, ...] = ()
    pods: tuple[str, ...] = ()
    is_idle: bool = False
    devices: tuple[DeviceStatus, ...] = ()
    since: str = ""
    tasks: Mapping[str, int] = {}
    kai: Mapping[str, int] = {}
    reserved: int = 0
    created: str = ""

    @property
    def held_since(self) -> str:
        """Return since when it has the GPUs, or waits for them; empty if that is not known."""
        return self.since or self.created


class ResourceUsage(NamedTuple):
    """One GPU resource of one node, or of several.

    - `total`: what the node has, healthy or not; None if nothing says it.
    - `allocated`: what pods have that are bound to the node and not terminated, also by another
      name of the same devices. `starting` is the part of it that belongs to pods which do not run
      yet.
    - `free`: what pods of the size that was asked about can still take.
    - `stranded`: what would be free if the node had CPU, memory and room for such a pod.
    - `unavailable`: the rest: unhealthy devices, and devices of nodes that take no pods.
    - `pending`: what pods ask for that have no node. No node has pending ones.
    - `overcommitted`: the part of `allocated` that its node does not have, as after a device plugin
      has come back with fewer devices. Of several nodes it is the sum, so that what one node has
      too little is not taken from what another has left.
    - `free_on_card`: the most that is free on one card, of what pods take parts of. A pod gets no
      more of a card, whatever the sum is. None for whole devices, where it is not known of
      anything that is free, and of KAI's fractions where a whole card is idle, which KAI divides
      too.
    - `is_free_at_most`: fewer may be free, as nothing says which devices pods have parts of.
    - `may_be_healthy`: some of what is unavailable may be free: nothing says whether devices are
      unhealthy, or are those that pods have by another name.
    """

    resource: str
    total: Amount | None
    allocated: Amount
    starting: Amount = 0
    free: Amount = 0
    stranded: Amount = 0
    pending: Amount = 0
    overcommitted: Amount = 0
    free_on_card: Amount | None = None
    is_free_at_most: bool = False
    may_be_healthy: bool = False

    @property
    def unavailable(self) -> Amount:
        """Return what is neither allocated, free nor stranded; 0 if the total is unknown."""
        in_use = self.allocated - self.overcommitted + self.free + self.stranded
        return max((self.total or 0) - in_use, 0)

    @property
    def is_free_on_unknown_cards(self) -> bool:
        """Return whether something is free that `free_on_card` does not tell of."""
        return bool(self.free) and self.free_on_card is None

    def __add__(self, other: object) -> ResourceUsage:
        if not isinstance(other, ResourceUsage):
            return NotImplemented
        known = [total for total in (self.total, other.total) if total is not None]
        on_cards = [on for on in (self.free_on_card, other.free_on_card) if on is not None]
        is_known = not (self.is_free_on_unknown_cards or other.is_free_on_unknown_cards)
        sums = (one + another for one, another in zip(self[2:-3], other[2:-3], strict=True))
        return ResourceUsage._make(
            (
                self.resource,
                sum(known) if known else None,
                *sums,
                max(on_cards, default=None) if is_known else None,
                self.is_free_at_most or other.is_free_at_most,
                self.may_be_healthy or other.may_be_healthy,
            )
        )


class CardUsage(NamedTuple):
    """One card of a node, of which pods have shares; `total` is None if it is unknown."""

    card: str
    model: str
    resource: str
    total: Amount | None
    allocated: Amount


class WholeCards(NamedTuple):
    """The whole cards of a node.

    `free` are those for which CPU and memory suffice; `pods` is how many more pods the node takes.
    """

    free: int
    pods: int


class NodeUsage(NamedTuple):
    """A node with GPUs. CPU and memory are what the scheduler has left, in units of 1e-9.

    Of `offered_twice`, the row of the driver counts what pods have of the other resources too.
    `stranded_without_gpu` is what would be free of each resource if the pods that ask for no GPU
    were elsewhere, apart from those of the GPU platform. `whole_cards` is None if the node offers
    partitions, replicas or shares alone.
    """

    name: str
    status: str
    model: str
    resources: tuple[ResourceUsage, ...]
    cards: tuple[CardUsage, ...]
    free_cpu: int
    free_memory: int
    pods: int
    offered_twice: tuple[OfferedTwice, ...] = ()
    stranded_without_gpu: Mapping[str, Amount] = {}
    whole_cards: WholeCards | None = None


def by_offer(nodes: Iterable[NodeUsage]) -> Mapping[OfferedTwice, list[str]]:
    """The names of the nodes that offer their cards twice, by how."""
    found: dict[OfferedTwice, list[str]] = {}
    for node in nodes:
        for twice in node.offered_twice:
            found.setdefault(twice, []).append(node.name)
    return found


def notes_on_cards_offered_twice(nodes: Iterable[NodeUsage]) -> Iterator[str]:
    """Yield sentences about what is not known of nodes that offer their cards twice."""
    for twice, names in by_offer(nodes).items():
        more = f" and {len(names) - 1:,} more nodes offer their" if names[1:] else " offers its"
        yield (
            f"{names[0]}{more} cards twice, as {', '.join(twice.resources)} and by the driver "
            f"{twice.driver}: each card is counted once, in the row of the driver; which cards "
            "pods have by a device plugin is not known"
        )


def remarks_on_other_names(nodes: Iterable[NodeUsage]) -> Iterator[str]:
    """Yield sentences about nodes whose devices have several names, where not all is known."""
    at_most: dict[str, list[str]] = {}
    at_least: dict[str, list[str]] = {}
    for node in nodes:
        if first := next((used for used in node.resources if used.is_free_at_most), None):
            at_most.setdefault(first.resource, []).append(node.name)
        if first := next((used for used in node.resources if used.may_be_healthy), None):
            at_least.setdefault(first.resource, []).append(node.name)
    for resource, names in at_most.items():
        yield (
            f"on {_named(names)} it is not known of which {resource} pods have parts: they count "
            "as parts of as few as possible, so that fewer may be free"
        )
    for resource, names in at_least.items():
        yield (
            f"on {_named(names)} it is not known whether {resource} is unhealthy, or taken out by "
            "the device plugin for pods that have it by another name: it counts as unhealthy, so "
            "that more may be free"
        )


def _named(nodes: Sequence[str]) -> str:
    return f"{nodes[0]} and {len(nodes) - 1:,} more nodes" if nodes[1:] else nodes[0]


class Usage(NamedTuple):
    """An account: the nodes with GPUs by name, and who has GPUs or waits for them.

    `unknown` are sentences that say what could not be counted. `given_twice` are devices that
    several pods or claims have, and `sick` the unhealthy ones that pods have. `without_gpu` are the
    pods on GPU nodes that ask for no GPU, by node, namespace and name.
    """

    nodes: tuple[NodeUsage, ...]
    consumers: tuple[Consumer, ...]
    unknown: tuple[str, ...] = ()
    given_twice: tuple[GivenTwice, ...] = ()
    sick: tuple[SickDevice, ...] = ()
    without_gpu: tuple[PodWithoutGpu, ...] = ()

    def totals(self) -> tuple[ResourceUsage, ...]:
        """Each resource of all nodes, with what is asked for by pods without a node."""
        totals: dict[str, ResourceUsage] = {}
        for node in self.nodes:
            for used in node.resources:
                known = totals.get(used.resource)
                totals[used.resource] = used if known is None else known + used
        if FRACTION in totals and any(
            used.is_free_on_unknown_cards for node in self.nodes for used in node.resources
        ):
            totals[FRACTION] = totals[FRACTION]._replace(free_on_card=None)
        for consumer in self.consumers:
            if not consumer.node:
                for resource, amount in consumer.amounts.items():
                    used = totals.get(resource) or ResourceUsage(resource, None, 0)
                    totals[resource] = used._replace(pending=used.pending + amount)
        return tuple(totals[name] for name in sorted(totals))

    def stranded_without_gpu(self) -> Mapping[str, Amount]:
        """Return what would not be stranded on all nodes without the pods that ask for no GPU."""
        freed = Counter[str]()
        for node in self.nodes:
            freed.update(node.stranded_without_gpu)
        return freed

    def namespaces(self) -> frozenset[str]:
        """The namespaces of the consumers, and of pods on GPU nodes that ask for no GPU."""
        of_pods = {pod.namespace for pod in self.without_gpu}
        return frozenset(of_pods.union(consumer.namespace for consumer in self.consumers))

    def notes(self) -> Iterator[str]:
        """Yield sentences about what is not known, and about devices with a fault."""
        yield from self.unknown
        yield from notes_on_cards_offered_twice(self.nodes)
        yield from (str(each) for each in self.given_twice if each.is_gpu)
        yield from map(str, self.sick)

    def remarks(self) -> Iterator[str]:
        """Yield sentences about rows of which not all is known, and which say so."""
        return remarks_on_other_names(self.nodes)

    def on_nodes(self, names: frozenset[str]) -> Usage:
        """The nodes of these names, and who has GPUs there."""
        return Usage(
            nodes=tuple(node for node in self.nodes if node.name in names),
            consumers=tuple(consumer for consumer in self.consumers if consumer.node in names),
            unknown=self.unknown,
            given_twice=self.given_twice,
            sick=tuple(each for each in self.sick if each.node in names),
            without_gpu=tuple(pod for pod in self.without_gpu if pod.node in names),
        )

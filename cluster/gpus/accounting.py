"""Count a cluster's GPUs as its schedulers count them. Pure: objects in, an account out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from cluster.gpus.claims import Device
from cluster.gpus.nodes import Card, cards_of, model_of
from cluster.gpus.pod_requests import amount_of, whole
from cluster.gpus.shares import Amount
from cluster.gpus.usage import CardUsage, Consumer, NodeUsage, ResourceUsage, Usage
from cluster.source.objects import without_managed_fields
from cluster_commands.gpus.consumers import NodeLoad, PodLedger, card_totals
from cluster_commands.gpus.kai import FRACTION, card_memory
from cluster_commands.gpus.node_status import status_of, takes_pods
from cluster_commands.gpus.node_totals import Total, node_totals
from cluster_commands.gpus.resource_claims import allocated_claims, waiting_devices
from cluster_commands.gpus.resource_slices import cards_by_driver, offered_devices
from rules.base.json_access import as_object, as_text
from rules.profile.profile import Profile

Object = Mapping[str, Any]


class PodSize(NamedTuple):
    """What a pod needs beside a card, in units of 1e-9: see `ResourceUsage.stranded`."""

    cpu: int = 10**9
    memory: int = 2**30 * 10**9


DEFAULT_POD_SIZE = PodSize()


def account(
    nodes: Iterable[Object],
    pods: Iterable[Object],
    *,
    slices: Iterable[Object] = (),
    claims: Iterable[Object] = (),
    profile: Profile,
    pod_size: PodSize = DEFAULT_POD_SIZE,
) -> Usage:
    """Count the GPUs of `nodes` and what `pods` and `claims` have of them.

    Each argument is objects as an API server lists them; `profile` says which resources are GPUs.
    Pods are read once and not kept.
    """
    found_nodes = [*map(_trimmed, nodes)]
    memory = {_name(node): card_memory(node) for node in found_nodes}
    ledger = PodLedger(profile, memory)
    for pod in pods:
        ledger.add(pod)
    devices, unknown = offered_devices(slices, profile)
    listed = list(claims)
    for claim in allocated_claims(listed, devices):
        ledger.add_claim(claim)
    for item in listed:
        if waiting := waiting_devices(item, profile):
            ledger.add_waiting_claim(as_object(item.get("metadata")), waiting)
    offered: dict[str, list[Device]] = defaultdict(list)
    for device in devices.values():
        offered[device.node].append(device)
    found = _Nodes(ledger, offered, profile, pod_size)
    counted = sorted(filter(None, map(found.count, found_nodes)), key=lambda node: node.name)
    return Usage(tuple(counted), tuple(ledger.consumers), unknown)


def _name(node: Object) -> str:
    return as_text(as_object(node.get("metadata")).get("name"))


def _trimmed(node: Object) -> Object:
    """A node without its images and who manages its fields, which together are most of it."""
    status = as_object(node.get("status"))
    return {
        "metadata": without_managed_fields(as_object(node.get("metadata"))),
        "spec": node.get("spec"),
        "status": {key: status[key] for key in status if key != "images"},
    }


class _Nodes:
    """Counts the GPUs of one node after another."""

    def __init__(
        self,
        ledger: PodLedger,
        offered: Mapping[str, list[Device]],
        profile: Profile,
        pod_size: PodSize,
    ) -> None:
        self._loads, self._offered = ledger.loads, offered
        self._profile, self._size = profile, pod_size
        self._allocated: dict[str, dict[str, Amount]] = {}
        self._starting: dict[str, dict[str, Amount]] = {}
        for consumer in ledger.consumers:
            _add(self._allocated, consumer)
            if consumer.is_starting:
                _add(self._starting, consumer)
        self._shares = card_totals(ledger.consumers)

    def count(self, node: Object) -> NodeUsage | None:
        """The GPUs of `node`; None if it has none and no pod there asks for any."""
        name = _name(node)
        status = as_object(node.get("status"))
        allocatable = as_object(status.get("allocatable"))
        load = self._loads.get(name) or NodeLoad()
        cards = cards_of(node)
        offered = self._offered.get(name, [])
        shared = {card for card, what in self._shares.get(name, ()) if what == FRACTION}
        totals = node_totals(status, cards, offered, shared, self._profile)
        rows = {row for row, total in totals.items() if total.capacity}
        rows.update(self._allocated.get(name, ()))
        if not rows:
            return None
        slots = self._room_for_pods(allocatable, load) if takes_pods(node) else None
        usages = (self._resource(name, row, totals.get(row), slots) for row in sorted(rows))
        return NodeUsage(
            name,
            status_of(node),
            model_of(node, cards) or next((d.model for d in offered if d.model), ""),
            tuple(usages),
            tuple(self._cards(name, cards, offered)),
            amount_of(allocatable.get("cpu")) - load.requests.get("cpu", 0),
            amount_of(allocatable.get("memory")) - load.requests.get("memory", 0),
            load.pods,
        )

    def _room_for_pods(self, allocatable: Object, load: NodeLoad) -> int:
        """How many pods of the size fit beside those that are there."""
        sizes = (("cpu", self._size.cpu), ("memory", self._size.memory))
        room = [
            (amount_of(allocatable[name]) - load.requests.get(name, 0)) // size
            for name, size in sizes
            if name in allocatable and size
        ]
        if "pods" in allocatable:
            room.append(whole(amount_of(allocatable["pods"])) - load.pods)
        return max(min(room, default=1 << 62), 0)

    def _resource(
        self, node: str, resource: str, total: Total | None, slots: int | None
    ) -> ResourceUsage:
        allocated = self._allocated.get(node, {}).get(resource, 0)
        rest = max(total.allocatable - allocated, 0) if total else 0
        if found := cards_by_driver(self._offered.get(node, ())).get(resource):
            # Several claims may have parts of one card.
            taken = {card for card, what in self._shares.get(node, ()) if what == resource}
            allocated = len(taken)
            rest = len(found.usable - taken)
        starting = self._starting.get(node, {}).get(resource, 0)
        usage = ResourceUsage(resource, total.capacity if total else None, allocated, starting)
        if slots is None or not rest:
            return usage
        known = self._profile.resource(resource)
        if resource == FRACTION or (known is not None and known.unit != "device"):
            free = rest if slots else 0
        else:
            free = min(rest, slots)
        return usage._replace(free=free, stranded=rest - free)

    def _cards(
        self, name: str, cards: tuple[Card, ...], offered: list[Device]
    ) -> Iterable[CardUsage]:
        """Each card of the node, and what is taken of it."""
        taken = dict(self._shares.get(name, {}))
        for card in cards:
            for resource, total in card.amounts.items():
                allocated = taken.pop((card.card, resource), 0)
                yield CardUsage(card.card, card.model, resource, total, allocated)
        for device in {(d.driver, d.card): d for d in offered}.values():
            allocated = min(taken.pop((device.card, device.driver), 0), 1)
            yield CardUsage(device.card, device.model, device.driver, 1, allocated)
        for (number, resource), allocated in sorted(taken.items()):
            total_here = 1 if resource == FRACTION else None
            yield CardUsage(number, "", resource, total_here, allocated)


def _add(amounts: dict[str, dict[str, Amount]], consumer: Consumer) -> None:
    here = amounts.setdefault(consumer.node, {})
    for resource, amount in consumer.amounts.items():
        here[resource] = here.get(resource, 0) + amount

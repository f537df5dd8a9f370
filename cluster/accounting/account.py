"""Count a cluster's GPUs as its schedulers count them. Pure: objects in, an account out."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple

from cluster.accounting.claims import (
    Claim,
    Device,
    DeviceKey,
    allocated_claims,
    cards_by_driver,
    claims_by_group,
    offered_devices,
    waiting_devices,
)
from cluster.accounting.device_holders import DeviceHolders, GivenTwice, Holder
from cluster.accounting.device_status import SickDevice, device_statuses, sick_devices
from cluster.accounting.nodes import (
    Card,
    Total,
    cards_of,
    model_of,
    node_totals,
    status_of,
    takes_pods,
)
from cluster.accounting.offered_twice import OfferedTwice, offered_twice
from cluster.accounting.other_names import (
    by_other_names,
    devices_with_unknown_parts,
    unhealthy_devices,
)
from cluster.accounting.passthrough import is_gpu, is_whole_card
from cluster.accounting.pod_requests import (
    Requests,
    amount_of,
    effective_requests,
    has_terminated,
    whole,
)
from cluster.accounting.pods_without_gpu import GpuNodeTaints, PodWithoutGpu, pod_without_gpu
from cluster.accounting.shares import (
    FRACTION,
    PER_CARD,
    VOLCANO_CARDS,
    Amount,
    Share,
    card_memory,
    containers_by_card,
    is_reservation,
    kai_memory,
    kai_shares,
    requested,
    shares_of,
)
from cluster.accounting.usage import (
    CardUsage,
    Consumer,
    NodeUsage,
    ResourceUsage,
    Usage,
    WholeCards,
)
from cluster.source.objects import name_of
from reports.owners import Owners
from rules.base.json_values import as_object, as_objects, as_text
from rules.objects.object_ref import object_ref
from rules.placement.selected_cards import offers_parts_of_cards
from rules.profile.profile import Profile, Taint

_MAX_CARDS_OF_A_NODE = 16  # more are replicas or shares
_NO_LIMIT = 1 << 62
_PLUGIN = "nvidia.com/gpu"

# Pods and allocated claims that have GPUs or wait for them, and the load of each node.


class NodeLoad:
    """The load of a node by its pods: amounts in units of 1e-9, and the number of pods.

    - `shares`: what they have of each card, by card and resource, where a scheduler records it.
    - `unplaced`: the GPU resources of which a pod has some, and no record says of which card.
    - `tasks`: how many containers have a part of a card that HAMi or Volcano divides; `doubled` are
      the cards of which one pod has several such parts.
    - `kai`: the MiB of each card that KAI divides; `reserved`: the cards of the pods by which KAI
      reserves them.
    """

    __slots__ = (
        *("doubled", "kai", "pods", "requests", "reserved", "shares", "tasks", "unplaced"),
    )

    def __init__(self) -> None:
        self.requests: dict[str, int] = {}
        self.pods = 0
        self.shares: dict[tuple[str, str], Amount] = {}
        self.unplaced: set[str] = set()
        self.tasks: Counter[str] = Counter()
        self.doubled: set[str] = set()
        self.kai: Counter[str] = Counter()
        self.reserved = 0

    def add(self, requests: Mapping[str, int], consumer: Consumer | None = None) -> None:
        """Count one more pod, with the GPUs that it has."""
        self.pods += 1
        for name, amount in requests.items():
            self.requests[name] = self.requests.get(name, 0) + amount
        if consumer is not None:
            for share in consumer.shares:
                place = share.card, share.resource
                self.shares[place] = self.shares.get(place, 0) + share.amount
            if consumer.tasks:
                self.tasks.update(consumer.tasks)
                self.doubled.update(card for card, count in consumer.tasks.items() if count > 1)
            if consumer.kai:
                self.kai.update(consumer.kai)
            self.reserved += consumer.reserved
            self.unplaced.update({*consumer.amounts} - {s.resource for s in consumer.shares})

    def with_pods(self, requests: Mapping[str, int], count: int) -> NodeLoad:
        """The load with `count` more pods, of which each takes `requests`."""
        more = NodeLoad()
        more.requests, more.pods = {**self.requests}, self.pods + count
        more.shares, more.unplaced = {**self.shares}, {*self.unplaced}
        more.tasks, more.doubled = Counter(self.tasks), {*self.doubled}
        more.kai, more.reserved = Counter(self.kai), self.reserved
        for name, amount in requests.items():
            more.requests[name] = more.requests.get(name, 0) + amount * count
        return more


class CountedPod(NamedTuple):
    """The counted part of a pod that has not terminated.

    `requests` are what it takes of its `node`; `consumer` is None if it has no GPUs by itself.
    `sick` are its unhealthy devices. `without_gpu` is the pod if it has a node and asks for no GPU.
    `is_static` says that the kubelet made it from a file. `claims_by_group` are as the function of
    this name says.
    """

    namespace: str
    name: str
    owner: str
    node: str
    requests: Requests
    consumer: Consumer | None
    has_claims: bool
    sick: tuple[SickDevice, ...]
    without_gpu: PodWithoutGpu | None = None
    is_static: bool = False
    claims_by_group: tuple[tuple[str, str], ...] = ()


def count_pod(
    pod: Mapping[str, Any],
    profile: Profile,
    card_memory: Mapping[str, int],
    gpu_nodes: Container[str] | None = None,
) -> CountedPod | None:
    """Return the counted part of `pod`; None if it has terminated: schedulers ignore it then.

    `card_memory` is how many MiB each card of a node has, by the name of the node. Of pods on
    `gpu_nodes` it is asked whether they ask for a GPU; without these, of pods on all nodes.
    """
    spec, status = as_object(pod.get("spec")), as_object(pod.get("status"))
    if has_terminated(pod):
        return None
    node, requests = as_text(spec.get("nodeName")), effective_requests(pod)
    for name in _names_given_by_claims(status):
        requests.pop(name, None)
    amounts: dict[str, Amount] = {
        name: whole(amount) for name, amount in requests.items() if is_gpu(name, profile)
    }
    memory = card_memory.get(node, 0)
    amounts.update(requested(pod, memory))
    shares: tuple[Share, ...] = ()
    if amounts and node:
        shares = (*shares_of(pod, requests), *kai_shares(pod, memory))
    amounts.update(_sum_of_cards(shares))
    metadata = as_object(pod.get("metadata"))
    namespace, name = as_text(metadata.get("namespace")), as_text(metadata.get("name"))
    has_claims = bool(spec.get("resourceClaims") or status.get("extendedResourceClaimStatus"))
    is_on_gpu_node = bool(node) and (gpu_nodes is None or node in gpu_nodes)
    has_gpus = any(amounts.values())  # also by annotations that the rules know with a profile only
    owner = _owner(pod, metadata) if amounts or has_claims or is_on_gpu_node else ""
    consumer = None
    if amounts:
        starting = bool(node) and status.get("phase") != "Running"
        tasks = containers_by_card(pod) if node else {}
        devices = tuple(one for one in device_statuses(pod) if one.resource in amounts)
        consumer = Consumer(
            namespace=namespace,
            name=name,
            owner=owner,
            node=node,
            is_starting=starting,
            amounts=amounts,
            shares=shares,
            devices=devices,
            since=as_text(status.get("startTime")) if node else "",
            tasks=tasks,
            kai=kai_memory(pod, memory) if node else {},
            reserved=whole(requests.get(_PLUGIN, 0)) if is_reservation(pod) else 0,
            created=as_text(metadata.get("creationTimestamp")),
        )
    return CountedPod(
        namespace=namespace,
        name=name,
        owner=owner,
        node=node,
        requests=requests,
        consumer=consumer,
        has_claims=has_claims,
        sick=tuple(sick_devices(pod, profile)) if node else (),
        without_gpu=pod_without_gpu(pod, profile, owner, requests)
        if is_on_gpu_node and not has_gpus
        else None,
        is_static=any(
            each.get("kind") == "Node" for _, each in as_objects(metadata.get("ownerReferences"))
        ),
        claims_by_group=claims_by_group(pod) if has_claims else (),
    )


def _owner(pod: Mapping[str, Any], metadata: Mapping[str, Any]) -> str:
    owners = Owners()
    owners.add(pod, None)
    ref, _ = owners.top_owner(object_ref("Pod", "", metadata, None))
    return f"{ref.kind.lower()}/{ref.name}"


class PodsWithClaims:
    """The owners of the pods that have claims, and the pods of PodGroups by group and claim."""

    def __init__(self, pods: Iterable[CountedPod] = ()) -> None:
        self.owners: dict[tuple[str, str], str] = {}
        """By the namespace and the name of the pod."""
        self._in_groups: dict[tuple[str, str, str], list[str]] = defaultdict(list)
        for pod in pods:
            self.add(pod)

    def add(self, pod: CountedPod) -> None:
        """Add a pod, if it has claims."""
        if not pod.has_claims:
            return
        self.owners[pod.namespace, pod.name] = pod.owner
        for group, claim in pod.claims_by_group:
            self._in_groups[pod.namespace, group, claim].append(pod.name)

    def users(self, claim: Claim) -> tuple[str, ...]:
        """The pods for which a claim is reserved, also as those of a PodGroup."""
        if not claim.groups:
            return claim.pods
        keys = ((claim.namespace, group, claim.name) for group in claim.groups)
        pods = sorted(chain.from_iterable(self._in_groups.get(key, ()) for key in keys))
        return tuple(dict.fromkeys((*claim.pods, *pods)))


class PodLedger:
    """Counts pods one by one, so that they need not all be kept.

    `card_memory` is as for `count_pod`, and `gpu_nodes` are the taints of GPU nodes by name.
    `loads` are those of nodes, by name; `sick` are the unhealthy devices of pods; `without_gpu` the
    pods on GPU nodes that ask for no GPU, by node.
    """

    def __init__(
        self,
        profile: Profile,
        card_memory: Mapping[str, int],
        gpu_nodes: Mapping[str, tuple[Taint, ...]] = MappingProxyType({}),
    ) -> None:
        self._profile = profile
        self._card_memory, self._gpu_nodes = card_memory, gpu_nodes
        self.loads: dict[str, NodeLoad] = {}
        self.consumers: list[Consumer] = []
        self.with_claims = PodsWithClaims()
        self.sick: list[SickDevice] = []
        self.without_gpu: dict[str, list[PodWithoutGpu]] = defaultdict(list)

    def add(self, pod: Mapping[str, Any]) -> CountedPod | None:
        """Count `pod`; what counts of it, or None if it has terminated."""
        counted = count_pod(pod, self._profile, self._card_memory, self._gpu_nodes)
        if counted is None:
            return None
        if counted.node:
            self.loads.setdefault(counted.node, NodeLoad()).add(counted.requests, counted.consumer)
        if counted.has_claims:
            self.with_claims.add(counted)
        if counted.consumer is not None:
            self.consumers.append(counted.consumer)
        self.sick += counted.sick
        if without := counted.without_gpu:
            taints = self._gpu_nodes[without.node]
            self.without_gpu[without.node].append(without.on_node(taints))
        return counted


def count_claims(
    claims: Collection[Object],
    devices: Mapping[DeviceKey, Device],
    pods: PodsWithClaims,
    profile: Profile,
) -> Iterator[Consumer]:
    """Count the claims that have some of `devices`, or wait for GPUs."""
    for claim in allocated_claims(claims, devices):
        yield from _claim_consumers(claim, pods)
    for raw in claims:
        if waiting := waiting_devices(raw, profile):
            metadata = as_object(raw.get("metadata"))
            text = f"resourceclaim/{as_text(metadata.get('name'))}"
            namespace = as_text(metadata.get("namespace"))
            yield Consumer(
                namespace=namespace,
                name=text,
                owner=text,
                node="",
                is_starting=False,
                amounts=waiting,
                created=as_text(metadata.get("creationTimestamp")),
            )


def _claim_consumers(claim: Claim, with_claims: PodsWithClaims) -> Iterator[Consumer]:
    """Count an allocated claim, for the pod that holds it if there is just one.

    A claim that several pods share has their owner, if they have the same.
    """
    pods, owners = with_claims.users(claim), with_claims.owners
    name = pods[0] if len(pods) == 1 else f"resourceclaim/{claim.name}"
    known = {owners.get((claim.namespace, pod), name) for pod in pods}
    is_idle = not claim.has_other_users and not any(
        (claim.namespace, pod) in owners for pod in pods
    )
    by_node: dict[str, dict[tuple[str, str], Amount]] = {}
    for device, part in claim.devices:
        parts = by_node.setdefault(device.node, {})
        parts[device.card, device.driver] = parts.get((device.card, device.driver), 0) + part
    owner = known.pop() if len(known) == 1 else name
    for node, cards in by_node.items():
        amounts: dict[str, Amount] = {}
        for (_, driver), part in cards.items():
            amounts[driver] = amounts.get(driver, 0) + min(part, 1)
        yield Consumer(
            namespace=claim.namespace,
            name=name,
            owner=owner,
            node=node,
            is_starting=False,
            amounts=amounts,
            shares=tuple(
                Share(card=card, resource=driver, amount=part)
                for (card, driver), part in cards.items()
            ),
            pods=pods if len(pods) > 1 else (),
            is_idle=is_idle,
            since=claim.since,
        )


def _sum_of_cards(shares: Iterable[Share]) -> Mapping[str, Amount]:
    """Return a pod's amounts of all its cards, of the resources that are counted for each card."""
    sums: dict[str, Amount] = {}
    for share in shares:
        if share.resource in PER_CARD:
            sums[share.resource] = sums.get(share.resource, 0) + share.amount
    return sums


def _names_given_by_claims(status: Mapping[str, Any]) -> Iterator[str]:
    """The resources of a pod for which the scheduler made a claim, which is counted itself."""
    claim = as_object(status.get("extendedResourceClaimStatus"))
    for _, mapping in as_objects(claim.get("requestMappings")):
        yield as_text(mapping.get("resourceName"))


def card_totals(consumers: Iterable[Consumer]) -> dict[str, dict[tuple[str, str], Amount]]:
    """Return the consumers' amounts of each card: by node, then by card and resource."""
    found: dict[str, dict[tuple[str, str], Amount]] = {}
    for consumer in consumers:
        cards = found.setdefault(consumer.node, {})
        for share in consumer.shares:
            place = share.card, share.resource
            cards[place] = cards.get(place, 0) + share.amount
    return found


Object = Mapping[str, Any]


class PodSize(NamedTuple):
    """The needs of a pod beside a card, in units of 1e-9: see `ResourceUsage.stranded`."""

    cpu: int = 10**9
    memory: int = 2**30 * 10**9


DEFAULT_POD_SIZE = PodSize()


class Account:
    """The GPUs of a cluster's nodes, and what its pods and claims have of them.

    `nodes` are objects as an API server lists them; `profile` says which resources are GPUs.
    """

    def __init__(self, nodes: Iterable[Object], profile: Profile) -> None:
        self._nodes, self._profile = [*nodes], profile
        memory = {name_of(node): card_memory(node) for node in self._nodes}
        taints = GpuNodeTaints(profile)
        gpu_nodes = {
            name_of(node): found for node in self._nodes if (found := taints.of(node)) is not None
        }
        self._ledger = PodLedger(profile, memory, gpu_nodes)

    def add_pod(self, pod: Object) -> CountedPod | None:
        """Count `pod`, which is not kept; what counts of it, or None if it has terminated."""
        return self._ledger.add(pod)

    def keep_pods_without_gpu(self, names: Collection[tuple[str, str]]) -> None:
        """Leave out the pods that ask for no GPU, but for these, by namespace and name."""
        for pods in self._ledger.without_gpu.values():
            pods[:] = [pod for pod in pods if (pod.namespace, pod.name) in names]

    def nodes(self) -> Iterator[tuple[Object, NodeLoad]]:
        """Each node, with or without GPUs, and what its pods take."""
        for node in self._nodes:
            yield node, self._ledger.loads.get(name_of(node)) or NodeLoad()

    def usage(
        self,
        slices: Iterable[Object] = (),
        claims: Iterable[Object] = (),
        pod_size: PodSize = DEFAULT_POD_SIZE,
    ) -> Usage:
        """The GPUs that nodes offer, also by `slices`, and what pods and `claims` have of them."""
        devices, unknown = offered_devices(slices, self._profile)
        claims = [*claims]
        of_claims = count_claims(claims, devices, self._ledger.with_claims, self._profile)
        consumers = (*self._ledger.consumers, *of_claims)
        offered: dict[str, list[Device]] = defaultdict(list)
        for device in devices.values():
            offered[device.node].append(device)
        without = {node: sorted(pods) for node, pods in self._ledger.without_gpu.items()}
        counter = NodeCounter(
            self._ledger.loads, consumers, offered, self._profile, pod_size, without
        )
        counted = sorted(filter(None, map(counter.count, self._nodes)), key=lambda node: node.name)
        twice = given_twice(consumers, claims, self._profile)
        return Usage(
            nodes=tuple(counted),
            consumers=consumers,
            unknown=unknown,
            given_twice=twice,
            sick=tuple(self._ledger.sick),
            without_gpu=tuple(pod for node in sorted(without) for pod in without[node]),
        )


def given_twice(
    consumers: Iterable[Consumer], claims: Iterable[Object], profile: Profile
) -> tuple[GivenTwice, ...]:
    """The devices that several of the pods among the consumers have, or several of the claims."""
    holders = DeviceHolders(profile)
    for claim in claims:
        holders.add_claim(claim)
    for consumer in consumers:
        holder = Holder(consumer.namespace, consumer.name)
        holders.add_pod(holder, consumer.node, consumer.devices, consumer.since)
    return holders.given_twice()


class NodeCounter:
    """Counts the GPUs of one node after another.

    `loads`, `offered` and `without_gpu`, the pods that ask for no GPU, are by the name of a node;
    `consumers` are of these nodes, and of none.
    """

    def __init__(
        self,
        loads: Mapping[str, NodeLoad],
        consumers: Sequence[Consumer],
        offered: Mapping[str, list[Device]],
        profile: Profile,
        pod_size: PodSize,
        without_gpu: Mapping[str, Sequence[PodWithoutGpu]] = MappingProxyType({}),
    ) -> None:
        self._loads, self._offered, self._without_gpu = loads, offered, without_gpu
        self._profile, self._size = profile, pod_size
        self._allocated: dict[str, dict[str, Amount]] = {}
        self._starting: dict[str, dict[str, Amount]] = {}
        for consumer in consumers:
            _add(self._allocated, consumer)
            if consumer.is_starting:
                _add(self._starting, consumer)
        self._shares = card_totals(consumers)

    def count(self, node: Object) -> NodeUsage | None:
        """The GPUs of `node`; None if it has none and no pod there asks for any."""
        name = name_of(node)
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
        twice = tuple(offered_twice(node, totals, cards_by_driver(offered), self._profile))
        for each in twice:
            rows.difference_update(each.resources)
        slots = self._room_for_pods(allocatable, load) if takes_pods(node) else None
        usages = [self._resource(name, row, totals, twice, slots) for row in sorted(rows)]
        others = [pod for pod in self._without_gpu.get(name, ()) if not pod.is_of_platform]
        freed = {}
        if others and any(used.stranded for used in usages):
            more = self._room_for_pods(allocatable, load, others)
            for used in usages:
                alone = self._resource(name, used.resource, totals, twice, more)
                if alone.free > used.free:
                    freed[used.resource] = alone.free - used.free
        most = self._most_on_cards(name, cards, shared)
        if any(used.free for used in usages if used.resource not in most):
            most.pop(FRACTION, None)  # KAI may divide a card that is idle
        unknown = devices_with_unknown_parts(self._allocated.get(name, {}), totals)
        for number, used in enumerate(usages):
            if used.resource in most and used.resource not in load.unplaced:
                on_card = min(used.free, most[used.resource])
                usages[number] = used._replace(free_on_card=on_card)
            elif used.free and used.resource in unknown:
                usages[number] = used._replace(is_free_at_most=True)
        return NodeUsage(
            name=name,
            status=status_of(node),
            model=model_of(node, cards) or next((d.model for d in offered if d.model), ""),
            resources=tuple(usages),
            cards=tuple(self._cards(name, cards, offered)),
            free_cpu=amount_of(allocatable.get("cpu")) - load.requests.get("cpu", 0),
            free_memory=amount_of(allocatable.get("memory")) - load.requests.get("memory", 0),
            pods=load.pods,
            offered_twice=twice,
            stranded_without_gpu=freed,
            whole_cards=self._whole_cards(node, cards, usages, load),
        )

    def _whole_cards(
        self, node: Object, cards: Iterable[Card], usages: Iterable[ResourceUsage], load: NodeLoad
    ) -> WholeCards | None:
        """Return the whole cards of `node`, by the resource of which most are free.

        A pod takes them by one resource, and another one may name the same cards.
        """
        labels = as_object(as_object(node.get("metadata")).get("labels"))
        if offers_parts_of_cards(labels) or any(card.slots > 1 for card in cards):
            return None
        whole_ones = [used for used in usages if self._is_whole(name_of(node), used)]
        if not whole_ones:
            return None
        allocatable = as_object(as_object(node.get("status")).get("allocatable"))
        most = max(int(used.free + used.stranded) for used in whole_ones)
        return WholeCards(
            min(most, self._room_beside(allocatable, load)), _free_slots(allocatable, load)
        )

    def _is_whole(self, node: str, used: ResourceUsage) -> bool:
        if not 0 < (used.total or 0) <= _MAX_CARDS_OF_A_NODE:
            return False
        known = self._profile.resource(used.resource)
        if known is not None:
            return known.sharing == "whole" and known.unit == "device"
        is_driver = used.resource in cards_by_driver(self._offered.get(node, ()))
        return is_driver or is_whole_card(used.resource)

    def _room_for_pods(
        self, allocatable: Object, load: NodeLoad, gone: Sequence[PodWithoutGpu] = ()
    ) -> int:
        """Return how many pods of the size fit beside those that are there, without `gone`."""
        slots = _free_slots(allocatable, load) + len(gone)
        return max(min(self._room_beside(allocatable, load, gone), slots), 0)

    def _room_beside(
        self, allocatable: Object, load: NodeLoad, gone: Sequence[PodWithoutGpu] = ()
    ) -> int:
        """Return for how many pods of the size there are CPU and memory, without `gone`."""
        sizes = (
            ("cpu", self._size.cpu, sum(pod.cpu for pod in gone)),
            ("memory", self._size.memory, sum(pod.memory for pod in gone)),
        )
        room = [
            (amount_of(allocatable[name]) - load.requests.get(name, 0) + freed) // size
            for name, size, freed in sizes
            if name in allocatable and size
        ]
        return max(min(room, default=_NO_LIMIT), 0)

    def _resource(
        self,
        node: str,
        resource: str,
        totals: Mapping[str, Total],
        twice: Iterable[OfferedTwice],
        slots: int | None,
    ) -> ResourceUsage:
        total = totals.get(resource)
        of_node, starting_there = self._allocated.get(node, {}), self._starting.get(node, {})
        own = of_node.get(resource, 0)
        allocated = own + by_other_names(resource, of_node, totals)
        starting = starting_there.get(resource, 0)
        starting += by_other_names(resource, starting_there, totals)
        unhealthy = unhealthy_devices(resource, of_node, totals)
        rest: Amount = 0
        if total:
            left = total.capacity - allocated - unhealthy.number
            rest = max(min(total.allocatable - own, left), 0)
        if found := cards_by_driver(self._offered.get(node, ())).get(resource):
            # Several claims may have parts of one card.
            taken = {card for card, what in self._shares.get(node, ()) if what == resource}
            allocated = len(taken)
            rest = len(found.usable - taken)
            for each in (each for each in twice if each.driver == resource):
                cards = len(found.offered)
                by_plugin = each.cards_taken(of_node, totals, cards)
                allocated += by_plugin
                starting += each.cards_taken(starting_there, totals, cards)
                rest = max(rest - by_plugin, 0)
        usage = ResourceUsage(
            resource=resource,
            total=total.capacity if total else None,
            allocated=allocated,
            starting=starting,
            overcommitted=max(allocated - (total.capacity if total else 0), 0),
            may_be_healthy=not unhealthy.is_known,
        )
        if slots is None or not rest:
            return usage
        known = self._profile.resource(resource)
        if resource == FRACTION or (known is not None and known.unit != "device"):
            free = rest if slots else 0
        else:
            free = min(rest, slots)
        return usage._replace(free=free, stranded=rest - free)

    def _most_on_cards(
        self, name: str, cards: Iterable[Card], shared: Iterable[str]
    ) -> dict[str, Amount]:
        """Return the most that is free on one card, by resource; `shared` are those of KAI."""
        taken, most = self._shares.get(name, {}), dict[str, Amount]()
        parts: list[tuple[str, str, Amount]] = [(card, FRACTION, 1) for card in shared]
        parts += (
            (card.card, what, total) for card in cards for what, total in card.amounts.items()
        )
        for card, resource, total in parts:
            free = max(total - taken.get((card, resource), 0), 0)
            if resource != VOLCANO_CARDS:  # which are whole ones
                most[resource] = max(free, most.get(resource, 0))
        return most

    def _cards(
        self, name: str, cards: tuple[Card, ...], offered: list[Device]
    ) -> Iterable[CardUsage]:
        """Each card of the node, and what is taken of it."""
        taken = dict(self._shares.get(name, {}))
        for card in cards:
            for resource, total in card.amounts.items():
                allocated = taken.pop((card.card, resource), 0)
                yield CardUsage(
                    card=card.card,
                    model=card.model,
                    resource=resource,
                    total=total,
                    allocated=allocated,
                )
        for device in {(d.driver, d.card): d for d in offered}.values():
            allocated = min(taken.pop((device.card, device.driver), 0), 1)
            yield CardUsage(
                card=device.card,
                model=device.model,
                resource=device.driver,
                total=1,
                allocated=allocated,
            )
        for (number, resource), allocated in sorted(taken.items()):
            total_here = 1 if resource == FRACTION else None
            yield CardUsage(
                card=number, model="", resource=resource, total=total_here, allocated=allocated
            )


def _free_slots(allocatable: Object, load: NodeLoad) -> int:
    """Return how many more pods a node takes; less than none if it has too many."""
    limit = allocatable.get("pods")
    return _NO_LIMIT if limit is None else whole(amount_of(limit)) - load.pods


def _add(amounts: dict[str, dict[str, Amount]], consumer: Consumer) -> None:
    here = amounts.setdefault(consumer.node, {})
    for resource, amount in consumer.amounts.items():
        here[resource] = here.get(resource, 0) + amount

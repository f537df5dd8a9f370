"""Cards: those that two pods have, those that are sick, and those that two plugins offer."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping

from cluster.accounting.account import given_twice
from cluster.accounting.nodes import cards_of
from cluster.accounting.pod_requests import amount_of, whole
from cluster.accounting.shares import whole_number
from cluster.doctor.facts import DoctorFacts, by_name
from cluster.doctor.rows import Row, not_known, wrong
from cluster.source.objects import CLAIMS, NODES, Object
from rules.base.json_values import as_object, as_text
from rules.placement.node_labels import GPU_COUNT

_GIVEN_TWICE = "cards given twice"
_END_ONE = "delete one of the pods, and its claim if it has one of its own: both use the same card"
_CLAIM = "claim:"


def check_cards_given_twice(facts: DoctorFacts) -> Iterator[Row]:
    """One row for each device that two claims or two pods have, and that cannot be shared.

    Source: kubernetes/kubernetes issues 136269 and 137534
    """
    usage = facts.usage
    given = (
        usage.given_twice if usage else given_twice((), facts.objects(CLAIMS), facts.policy.profile)
    )
    for each in given:
        device = each.device
        if device.is_of_driver:
            message = (
                f"each have the device {device.name} of the pool {device.place} "
                f"({device.resource}) for themselves"
            )
        else:
            message = f"have the same device {device.name} of {device.place} as {device.resource}"
        message += f" since {each.since}" if each.since else ""
        kind = "resourceclaim" if device.is_of_driver else "pod"
        subjects = [f"{kind}/{holder.name} in {holder.namespace}" for holder in each.holders]
        yield wrong(_GIVEN_TWICE, subjects, message, _END_ONE)


_SICK = "sick cards"
_REPLACE = (
    "move the pod away, and see what the device plugin and the kernel (Xid) say of the card: "
    "kubectl cordon NODE keeps other pods away"
)
_LOOK = "see what the device plugin of the node logs, and what the kernel (Xid) says of its cards"


def check_sick_cards(facts: DoctorFacts) -> Iterator[Row]:
    """One row for the pods with devices that are not healthy, one for nodes that lost some."""
    profile = facts.policy.profile
    sick = {
        f"{given.subject} ({given.device} of {given.node})": given.subject
        for given in facts.pods.given
        if given.health == "Unhealthy"
        and (given.resource.startswith(_CLAIM) or profile.resource(given.resource) is not None)
    }
    if sick:
        message = "have a device that its device plugin calls unhealthy"
        yield wrong(_SICK, [*sick], message, _REPLACE, names=[*dict.fromkeys(sick.values())])
    lost: dict[tuple[str, int, int], list[str]] = defaultdict(list)
    for name, node in by_name(facts.objects(NODES)):
        status = as_object(node.get("status"))
        capacity, allocatable = (
            as_object(status.get(field)) for field in ("capacity", "allocatable")
        )
        for resource in capacity:
            known = profile.resource(resource)
            if known is None or known.unit != "device":
                continue
            there = whole(amount_of(capacity[resource]))
            usable = whole(amount_of(allocatable.get(resource)))
            if usable < there:
                lost[resource, usable, there].append(name)
    for (resource, usable, there), nodes in sorted(lost.items()):
        message = f"offer {usable:,} of {there:,} {resource}: the others are not healthy"
        yield wrong(_SICK, nodes, message, _LOOK)


_COUNT = "nvidia.com/gpu.count"
_TWO_PLUGINS = "cards offered by two plugins"
_ONE_PLUGIN = (
    "let one plugin offer the cards of a node: label nodes for each, and select them by the "
    "nodeSelector of its DaemonSet"
)
_VOLCANO = ("volcano.sh/vgpu-number", "volcano.sh/gpu-number")


def check_two_plugins(facts: DoctorFacts) -> Iterator[Row]:
    """One row for the nodes whose cards NVIDIA's plugin and that of a scheduler both offer."""
    both: dict[tuple[str, str, bool], list[str]] = defaultdict(list)
    for name, node in by_name(facts.objects(NODES)):
        labels = as_object(as_object(node.get("metadata")).get("labels"))
        capacity = as_object(as_object(node.get("status")).get("capacity"))
        nvidia = _cards_of_nvidia(capacity, labels)
        for resource, cards in _cards_of_schedulers(node, capacity):
            there = whole_number(as_text(labels.get(_COUNT)))
            if nvidia and cards and not (there and nvidia + cards <= there):
                both["nvidia.com/gpu", resource, bool(there)].append(name)
    for (first, second, is_known), nodes in sorted(both.items()):
        message = f"offer cards both as {first} and as {second}"
        if is_known:
            message += ", more than they have: a card can be given away twice"
            yield wrong(_TWO_PLUGINS, nodes, message, _ONE_PLUGIN)
        else:
            message += f", and no label {_COUNT} says how many they have"
            yield not_known(_TWO_PLUGINS, nodes, message, _ONE_PLUGIN)


_WHOLE_AND_PARTS = "whole cards and partitions"
_PARTS = re.compile(r"nvidia\.com/mig-([1-7])g\.", re.ASCII)
_PARTS_OF_A_CARD = 7
_PLUGIN_AGAIN = (
    "restart the device plugin and GPU feature discovery of the node after its partitions have "
    "changed; the MIG manager of NVIDIA's operator does it"
)


def check_whole_cards_and_partitions(facts: DoctorFacts) -> Iterator[Row]:
    """One row for the nodes that offer whole cards and partitions, of more cards than they have.

    Of NVIDIA's cards, where the label is about all of them: those of one model.
    """
    found: list[str] = []
    for name, node in by_name(facts.objects(NODES)):
        labels = as_object(as_object(node.get("metadata")).get("labels"))
        capacity = as_object(as_object(node.get("status")).get("capacity"))
        there = whole_number(as_text(labels.get(_COUNT)))
        cards = _cards_of_nvidia(capacity, labels)
        parts = sum(
            int(match[1]) * whole(amount_of(capacity[resource]))
            for resource in capacity
            if (match := _PARTS.match(resource))
        )
        if there and cards and parts and cards - (-parts // _PARTS_OF_A_CARD) > there:
            found.append(name)
    if found:
        message = (
            f"offer whole cards and partitions, of more cards than {_COUNT} says: a card can be "
            "given away whole and in parts"
        )
        yield wrong(_WHOLE_AND_PARTS, found, message, _PLUGIN_AGAIN)


def _cards_of_nvidia(capacity: Mapping[str, object], labels: Mapping[str, object]) -> int:
    """Return how many cards the resource of NVIDIA's plugin stands for."""
    devices = whole(amount_of(capacity.get("nvidia.com/gpu")))
    replicas = whole_number(as_text(labels.get("nvidia.com/gpu.replicas"))) or 1
    return -(-devices // replicas)


def _cards_of_schedulers(node: Object, capacity: Mapping[str, object]) -> Iterator[tuple[str, int]]:
    """The resources of other plugins for NVIDIA's cards, each with the number of cards."""
    vgpu, gpu = _VOLCANO
    if whole(amount_of(capacity.get(vgpu))):
        cards = [card for card in cards_of(node) if "volcano.sh/vgpu-memory" in card.amounts]
        yield vgpu, max(len(cards), 1)
    yield gpu, whole(amount_of(capacity.get(gpu)))
    yield GPU_COUNT, whole(amount_of(capacity.get(GPU_COUNT)))

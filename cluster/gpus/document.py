"""An account as plain data, for JSON and YAML."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from cluster.accounting.pods_without_gpu import PodWithoutGpu
from cluster.accounting.room import room_by_model
from cluster.accounting.shares import Amount
from cluster.accounting.usage import CardUsage, Consumer, NodeUsage, ResourceUsage, Usage

_NANO = 10**9
VERSION = 1
"""Grows when a field changes its meaning or goes away."""


def to_document(usage: Usage) -> dict[str, Any]:
    """The fields that docs/gpus.md describes."""
    return {
        "version": VERSION,
        "nodes": [_node(node) for node in usage.nodes],
        "consumers": [_consumer(consumer) for consumer in usage.consumers],
        "totals": [_resource(used, pending=True) for used in usage.totals()],
        "room": [
            {"model": one.model, "cards": room.size, "pods": room.pods, "nodes": room.nodes}
            for one in room_by_model(usage.nodes)
            for room in one.rooms
        ],
        "podsWithoutGpu": [pod_without_gpu_document(pod) for pod in usage.without_gpu],
    }


def to_document_of_clusters(usages: Mapping[str, Usage]) -> dict[str, Any]:
    """Return the documents of several clusters, by their contexts."""
    clusters = [{"context": context, **to_document(usage)} for context, usage in usages.items()]
    return {"version": VERSION, "clusters": clusters}


def _node(node: NodeUsage) -> dict[str, Any]:
    return {
        "name": node.name,
        "status": node.status,
        "model": node.model,
        "freeCpu": node.free_cpu / _NANO,
        "freeMemoryBytes": node.free_memory // _NANO,
        "pods": node.pods,
        "resources": [_resource(used) for used in node.resources],
        "cards": [_card(card) for card in node.cards],
        "offeredTwice": [
            {"driver": twice.driver, "resources": list(twice.resources)}
            for twice in node.offered_twice
        ],
        "strandedByPodsWithoutGpu": {
            name: _number(amount) for name, amount in node.stranded_without_gpu.items()
        },
    }


def _resource(used: ResourceUsage, *, pending: bool = False) -> dict[str, Any]:
    known = used.total is not None
    shown = {
        "resource": used.resource,
        "total": _number(used.total),
        "allocated": _number(used.allocated),
        "starting": _number(used.starting),
        "free": _number(used.free) if known else None,
        "freeOnCard": _number(used.free_on_card),
        "freeIsAtMost": used.is_free_at_most,
        "stranded": _number(used.stranded) if known else None,
        "unavailable": _number(used.unavailable) if known else None,
        "overcommitted": _number(used.overcommitted) if known else None,
    }
    return {**shown, "pending": _number(used.pending)} if pending else shown


def _card(card: CardUsage) -> dict[str, Any]:
    return {
        "card": card.card,
        "model": card.model,
        "resource": card.resource,
        "total": _number(card.total),
        "allocated": _number(card.allocated),
    }


def _consumer(consumer: Consumer) -> dict[str, Any]:
    return {
        "namespace": consumer.namespace,
        "name": consumer.name,
        "owner": consumer.owner,
        "node": consumer.node or None,
        "since": consumer.held_since or None,
        "starting": consumer.is_starting,
        "pods": list(consumer.pods),
        "idle": consumer.is_idle,
        "amounts": {name: _number(amount) for name, amount in consumer.amounts.items()},
        "shares": [
            {"card": share.card, "resource": share.resource, "amount": _number(share.amount)}
            for share in consumer.shares
        ],
        "devices": [device._asdict() for device in consumer.devices],
    }


def stranded_by_pods_without_gpu(usage: Usage) -> dict[str, Any]:
    """Return what would not be stranded without the pods that ask for no GPU, by resource."""
    return {name: _number(amount) for name, amount in sorted(usage.stranded_without_gpu().items())}


def pod_without_gpu_document(pod: PodWithoutGpu) -> dict[str, Any]:
    """The pod on a GPU node that asks for no GPU, as an object of JSON."""
    return {
        "namespace": pod.namespace,
        "name": pod.name,
        "owner": pod.owner,
        "node": pod.node,
        "why": pod.why,
        "cpu": pod.cpu / _NANO,
        "memoryBytes": pod.memory // _NANO,
        "platform": pod.is_of_platform,
        "daemonSet": pod.is_of_daemon_set,
        "pods": pod.pods,
    }


def _number(amount: Amount | None) -> int | float | None:
    return float(amount) if isinstance(amount, Decimal) else amount

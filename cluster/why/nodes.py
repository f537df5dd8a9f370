"""The parts of a node that the filters look at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from cluster.accounting.account import NodeLoad
from cluster.accounting.nodes import model_of, taints_of
from cluster.accounting.pod_requests import amount_of
from cluster.accounting.shares import card_memory
from cluster.why.cards.card_rooms import CardRoom, rooms_of
from cluster.why.cards.divided_cards import CardState, divided_cards
from cluster.why.cards.kai_cards import KaiCards, kai_cards
from rules.base.json_values import as_object, as_text, as_texts
from rules.profile.profile import Taint


class Node(NamedTuple):
    """A node; amounts are in units of 1e-9.

    - `devices`: the names of the devices that it offers.
    - `rooms`: what is free on one card, by resource; `card_memory`: the MiB of a card, if known;
      `divided`: the cards that HAMi or Volcano divides, by the resource of their memory; `kai`:
      the cards as KAI counts them.
    - `declared_features`: what its kubelet says that it has.
    """

    name: str
    model: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    is_cordoned: bool
    allocatable: Mapping[str, int]
    load: NodeLoad
    capacity: Mapping[str, int] = {}
    devices: frozenset[str] = frozenset()
    rooms: Mapping[str, CardRoom] = {}
    card_memory: int = 0
    divided: Mapping[str, tuple[CardState, ...]] = {}
    kai: KaiCards = KaiCards()
    declared_features: frozenset[str] = frozenset()


def read_node(raw: Mapping[str, Any], load: NodeLoad | None) -> Node:
    """The node `raw`, of which pods take `load`."""
    metadata, spec = as_object(raw.get("metadata")), as_object(raw.get("spec"))
    status = as_object(raw.get("status"))
    allocatable = _amounts(status.get("allocatable"))
    load, memory = load or NodeLoad(), card_memory(raw)
    labels = {key: as_text(value) for key, value in as_object(metadata.get("labels")).items()}
    return Node(
        as_text(metadata.get("name")),
        model_of(raw),
        labels,
        tuple(taints_of(raw)),
        spec.get("unschedulable") is True,
        allocatable,
        load,
        _amounts(status.get("capacity")),
        frozenset(name for name, amount in allocatable.items() if "/" in name and amount),
        rooms_of(raw, load),
        memory,
        divided_cards(raw, load),
        kai_cards(raw, load, memory),
        frozenset(as_texts(status.get("declaredFeatures"))),
    )


def _amounts(quantities: object) -> Mapping[str, int]:
    return {name: amount_of(value) for name, value in as_object(quantities).items()}

"""The cards that KAI gives to pods which ask for parts of them.

KAI counts MiB: a part of a card is that part of its memory, which a label of the node says; without
it each card counts as having 100. A card is divided as soon as one pod has a part of it.

Source: kai-scheduler/KAI-Scheduler pkg/scheduler/api/node_info,
isTaskAllocatableOnNonAllocatedResources and IsTaskFitOnGpuGroup.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, NamedTuple

from cluster.accounting.account import NodeLoad
from cluster.accounting.pod_requests import amount_of, whole
from cluster.accounting.shares import (
    DEVICES_OF_KAI,
    FRACTION,
    kai_part_or_memory,
    memory_for_kai,
    whole_number,
)
from rules.base.json_values import as_object, as_text

_PLUGIN, _MIG_PREFIX = "nvidia.com/gpu", "nvidia.com/mig-"
_MIG_LABEL, _MIG_STRATEGY = "node-role.kubernetes.io/mig-enabled", "nvidia.com/mig.strategy"


class KaiCards(NamedTuple):
    """The cards of a node as KAI counts them.

    - `memory`: the MiB of each; 0 if no label says it.
    - `idle`: how many are whole; `free`: the MiB that are free on each divided one.
    - `mig`: the strategy by which they are MIG devices; empty if they are not.
    """

    memory: int = 0
    idle: int = 0
    free: tuple[int, ...] = ()
    mig: str = ""


def kai_cards(node: Mapping[str, Any], load: NodeLoad, memory: int) -> KaiCards:
    """The cards of `node`, each with `memory` MiB, of which its pods take `load`."""
    allocatable = as_object(as_object(node.get("status")).get("allocatable"))
    labels = as_object(as_object(node.get("metadata")).get("labels"))
    size = memory_for_kai(memory)
    free = tuple(size - used for used in load.kai.values() if used)
    # The pods that reserve divided cards for KAI ask for them too.
    taken = whole(load.requests.get(_PLUGIN, 0)) - load.reserved + len(free)
    strategy = as_text(labels.get(_MIG_STRATEGY))
    return KaiCards(
        memory,
        max(whole(amount_of(allocatable.get(_PLUGIN))) - taken, 0),
        free,
        strategy if strategy and _has_mig(labels, allocatable) else "",
    )


def _has_mig(labels: Mapping[str, Any], allocatable: Mapping[str, Any]) -> bool:
    if _MIG_LABEL in labels:
        return as_text(labels[_MIG_LABEL]) in {"true", "True", "TRUE", "t", "T", "1"}
    return any(
        name.startswith(_MIG_PREFIX) and amount_of(amount) for name, amount in allocatable.items()
    )


class KaiRequest(NamedTuple):
    """A request of parts of `cards` cards: a part of each, or MiB."""

    cards: int
    part: Decimal
    memory: int

    @property
    def text(self) -> str:
        """The amount of one card."""
        return f"{self.memory} MiB" if self.memory else f"{self.part.normalize():f} {FRACTION}"

    def reason_against(self, node: KaiCards) -> str:
        """Return why KAI does not give these cards of a node; empty if it does."""
        if node.mig in {"single", "mixed"}:
            return f"KAI gives no parts of the cards of nodes with MIG strategy {node.mig}"
        size = memory_for_kai(node.memory)
        wanted = self.memory or int(self.part * size)
        cards = -(-wanted * 100 // size)  # in hundredths
        if cards > 100 and cards % 100:  # noqa: PLR2004  # a whole card
            return f"the pod asks for {self.text} of one card, and a card has {size} MiB"
        room = node.idle + sum(free >= wanted for free in node.free)
        if room >= self.cards:
            return ""
        most = max((*([size] if node.idle else []), *node.free), default=0)
        if self.cards > 1:
            return (
                f"the pod asks for {self.text} of each of {self.cards} cards, and {room} have that "
                "much free"
            )
        if self.memory:
            return f"the pod asks for {self.text} of one card, and at most {max(most, 0)} are free"
        left = (Decimal(max(most, 0)) / size).quantize(Decimal("0.01")).normalize()
        return f"the pod asks for {self.text} of one card, and at most {left:f} of 1 are free"


def kai_request(pod: Mapping[str, Any]) -> KaiRequest | None:
    """Return what `pod` asks of KAI; None if it asks for no part of a card."""
    annotations = as_object(as_object(pod.get("metadata")).get("annotations"))
    part, memory = kai_part_or_memory(annotations)
    if not (part or memory):
        return None
    return KaiRequest(whole_number(as_text(annotations.get(DEVICES_OF_KAI))) or 1, part, memory)

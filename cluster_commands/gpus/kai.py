"""Parts of cards that the KAI scheduler hands out.

Source: kai-scheduler/KAI-Scheduler pkg/common/constants and pkg/scheduler/api/node_info.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from cluster.gpus.shares import Amount, Share, whole_number
from rules.base.json_access import as_object, as_text

FRACTION = "gpu-fraction"
"""The annotation, and what is counted: parts of cards, which are no resource; 1 is a card."""
MEMORY = "gpu-memory"
"""The annotation, and what is counted on nodes that do not say their cards' memory: MiB."""
_MEMORY_LABEL = "nvidia.com/gpu.memory"
_MIB = 2**20
_GROUP = "runai-gpu-group"
# Of a card. Without a least part, `1e-999999` would be shown with a million digits.
_LEAST_PART = Decimal("1e-9")


def card_memory(node: Mapping[str, Any]) -> int:
    """The MiB of each card of `node`, as KAI counts them; 0 if the node does not say it."""
    labels = as_object(as_object(node.get("metadata")).get("labels"))
    memory = whole_number(as_text(labels.get(_MEMORY_LABEL)))
    if memory >= _MIB:  # some releases of the labeller write bytes
        memory //= _MIB
    return memory - memory % 100


def requested(pod: Mapping[str, Any], memory: int) -> Mapping[str, Amount]:
    """What `pod` asks KAI for, of all its cards together; `memory` is that of a card of its node.

    The parts of cards, or MiB if `memory` is 0. Empty if the pod asks for neither.
    """
    annotations = as_object(as_object(pod.get("metadata")).get("annotations"))
    if not (request := _of_each_card(annotations, memory)):
        return request
    cards = whole_number(as_text(annotations.get("gpu-fraction-num-devices"))) or 1
    return {name: amount * cards for name, amount in request.items()}


def kai_shares(pod: Mapping[str, Any], memory: int) -> Iterator[Share]:
    """What `pod` has of which card: KAI sets one label for each."""
    metadata = as_object(pod.get("metadata"))
    request = _of_each_card(as_object(metadata.get("annotations")), memory)
    for key, value in as_object(metadata.get("labels")).items() if request else ():
        if key == _GROUP or key.startswith(f"{_GROUP}/"):
            for name, amount in request.items():
                yield Share(as_text(value), name, amount)


def _of_each_card(annotations: Mapping[str, Any], memory: int) -> Mapping[str, Amount]:
    if fraction := _part(annotations.get(FRACTION)):
        return {FRACTION: fraction}
    wanted = whole_number(as_text(annotations.get(MEMORY)))
    if not wanted:
        return {}
    if not memory:
        return {MEMORY: wanted}
    # KAI rounds parts up, to hundredths of a card, and gives nobody more than a card has.
    return {FRACTION: Decimal(-(-wanted * 100 // memory)) / 100} if wanted <= memory else {}


def _part(value: object) -> Decimal:
    """A part of a card, less than 1; 0 for everything else."""
    try:
        number = Decimal(as_text(value)[:20] or "0")
        return number if _LEAST_PART <= number < 1 else Decimal(0)
    except InvalidOperation:  # also where NaN is compared
        return Decimal(0)

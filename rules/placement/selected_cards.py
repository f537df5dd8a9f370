"""The memory of the cards that a pod may get, by the labels of nodes."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from rules.base.json_access import as_text
from rules.objects.pod import Pod
from rules.placement.ack_nodes import CARDS
from rules.placement.node_modes import allowed_values

# Labels whose value names the card: GPU feature discovery, GKE, ACK, Karpenter, and the label that
# the autoscaler expects on EKS.
_MODEL_LABELS = (
    "nvidia.com/gpu.product",
    "cloud.google.com/gke-accelerator",
    "aliyun.accelerator/nvidia_name",
    "karpenter.k8s.aws/instance-gpu-name",
    "k8s.amazonaws.com/accelerator",
)
# Labels whose value is the memory of one card in MiB.
_MEMORY_LABELS = (
    "nvidia.com/gpu.memory",
    "aliyun.accelerator/nvidia_mem",
    "karpenter.k8s.aws/instance-gpu-memory",
)
_IN_MEBIBYTES = r"([1-9][0-9]{0,7})(?:MiB)?"

_MOST_DIGITS = 4

MEBIBYTES = {"GiB": 1024, "MiB": 1}
"""How many MiB one is of a resource, by the unit that a profile gives for it."""


class CardMemory(NamedTuple):
    """The memory of the smallest and the largest card that a pod may get.

    In MiB, and never less than a device plugin counts. `cards` names the cards for messages.
    """

    smallest: int
    largest: int
    cards: str


def selected_card_memory(pod: Pod) -> CardMemory | None:
    """The memory of the cards on the nodes that the pod selects; None if it selects no cards.

    None as well if one of the cards is not known.
    """
    return _card_memory(lambda label: allowed_values(pod, label))


def card_memory_of_node(labels: Mapping[str, str]) -> CardMemory | None:
    """The memory of the cards of a node with these labels; None if the labels do not say it."""
    return _card_memory(lambda label: {labels[label]} if label in labels else None)


def cards_of_share(pod: Pod) -> int:
    """Over how many cards ACK's scheduler spreads the memory of the pod, by its label."""
    text = as_text(pod.labels.get(CARDS))
    is_count = text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
    return max(int(text), 1) if is_count else 1


def _card_memory(values_of: Callable[[str], Collection[str] | None]) -> CardMemory | None:
    for label in _MEMORY_LABELS:
        if values := values_of(label):
            amounts = [re.fullmatch(_IN_MEBIBYTES, value) for value in values]
            known = [int(amount[1]) for amount in amounts if amount]
            if len(known) == len(values):
                return CardMemory(min(known), max(known), f"a card with {label}: {_list(values)}")
    for label in _MODEL_LABELS:
        if values := values_of(label):
            from rules.profile.platforms.cards import memory_sizes  # noqa: PLC0415  # rarely needed

            sizes = [memory_sizes(value) for value in values]
            if all(sizes):
                sizes_in_mib = [size * 1024 for known in sizes for size in known]
                return CardMemory(min(sizes_in_mib), max(sizes_in_mib), _list(values))
    return None


def _list(values: Iterable[str]) -> str:
    return " or ".join(sorted(values))

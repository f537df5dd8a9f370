"""The memory of the cards that a pod may get, by the labels of the nodes that it selects."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from rules.objects.pod import Pod
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
    for label in _MEMORY_LABELS:
        if values := allowed_values(pod, label):
            amounts = [re.fullmatch(_IN_MEBIBYTES, value) for value in values]
            known = [int(amount[1]) for amount in amounts if amount]
            if len(known) == len(values):
                return CardMemory(min(known), max(known), f"a card with {label}: {_list(values)}")
    for label in _MODEL_LABELS:
        if values := allowed_values(pod, label):
            from rules.platforms.cards import memory_sizes  # noqa: PLC0415  # rarely needed

            sizes = [memory_sizes(value) for value in values]
            if all(sizes):
                sizes_in_mib = [size * 1024 for known in sizes for size in known]
                return CardMemory(min(sizes_in_mib), max(sizes_in_mib), _list(values))
    return None


def _list(values: Iterable[str]) -> str:
    return " or ".join(sorted(values))

"""Which card a pod was given, as schedulers record it in annotations of the pod.

The keys are those of `rules.gpu.allocation_keys`. Whole cards of a device plugin have no such
record: only the kubelet of the node knows which ones it handed out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

from cluster.gpus.pod_requests import Requests, amount_of, whole
from rules.base.json_access import as_object, as_objects, as_text
from rules.placement.ack_nodes import GPU_CORE, GPU_MEM

Amount: TypeAlias = int | Decimal
PER_CARD = frozenset(
    {
        *("nvidia.com/gpumem", "nvidia.com/gpucores"),
        *("volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores"),
    }
)
"""Resources of HAMi and Volcano whose amount in a pod is for each of its cards."""
VOLCANO_MEMORY, VOLCANO_CARDS = "volcano.sh/gpu-memory", "volcano.sh/gpu-number"
"""Resources of cards of which Volcano itself divides the memory."""
# A pod has few cards. Longer records are not read, so that no tenant makes the command slow.
_MAX_CHARACTERS, _MAX_SHARES = 20_000, 1000
_MAX_AMOUNT = 10**15


class Share(NamedTuple):
    """What a pod has of one card. `card` is the card's index or UUID, or KAI's name for it."""

    card: str
    resource: str
    amount: Amount


def shares_of(pod: Mapping[str, Any], requests: Requests) -> tuple[Share, ...]:
    """The cards that schedulers recorded for `pod`, each with what the pod has of it.

    `requests` are those of the pod: Volcano records the card alone. A record that cannot be read
    counts as none: anybody may write annotations.
    """
    metadata = as_object(pod.get("metadata"))
    found: dict[tuple[str, str], Amount] = {}
    annotations = as_object(metadata.get("annotations"))
    for key, read in _READERS.items():
        text = as_text(annotations.get(key))
        if text and len(text) <= _MAX_CHARACTERS:
            for share in read(text):
                place = share.card, share.resource
                if share.amount:
                    found[place] = found.get(place, 0) + share.amount
    if not found:
        found.update(_ack_before_allocation(annotations))
        found.update(_volcano_cards(annotations, requests))
    return tuple(Share(*place, amount) for place, amount in found.items())[:_MAX_SHARES]


def allocation_by_card(text: str) -> dict[int, int]:
    """ACK's record `{container: {card: amount}}`, summed by card; empty if it is none."""
    shares: dict[int, int] = {}
    try:
        for cards in json.loads(text).values():
            for card, amount in cards.items():
                if 0 < amount < _MAX_AMOUNT:
                    shares[int(card)] = shares.get(int(card), 0) + int(amount)
    except (ValueError, TypeError, AttributeError, RecursionError):
        return {}
    return shares


def _ack(resource: str) -> Callable[[str], Iterator[Share]]:
    def read(text: str) -> Iterator[Share]:
        for card, amount in allocation_by_card(text).items():
            yield Share(str(card), resource, amount)

    return read


def _ack_before_allocation(annotations: Mapping[str, Any]) -> Iterator[tuple[Any, Amount]]:
    """ACK's older record: one card for all containers of the pod."""
    card = as_text(annotations.get("ALIYUN_COM_GPU_MEM_IDX"))
    amount = amount_of(annotations.get("ALIYUN_COM_GPU_MEM_POD"))
    if card.isdecimal() and amount:
        yield (card[:10], GPU_MEM), whole(amount)


def _volcano_cards(
    annotations: Mapping[str, Any], requests: Requests
) -> Iterator[tuple[Any, Amount]]:
    """Volcano's cards by index, of pods that ask for memory of one, or for whole ones.

    Source: volcano-sh/volcano pkg/scheduler/api/devices/nvidia/gpushare
    """
    cards = as_text(annotations.get("volcano.sh/gpu-index"))[:_MAX_CHARACTERS].split(",")
    if all(card.isdecimal() for card in cards):
        memory = whole(requests.get(VOLCANO_MEMORY, 0))
        for card in cards[:_MAX_SHARES]:
            if memory:
                yield (card[:10], VOLCANO_MEMORY), memory
            elif VOLCANO_CARDS in requests:
                yield (card[:10], VOLCANO_CARDS), 1


def _by_uuid(memory: str, cores: str) -> Callable[[str], Iterator[Share]]:
    """HAMi's form, one part for each container: `UUID,type,memory,cores:…;`."""

    def read(text: str) -> Iterator[Share]:
        for device in text.replace(";", ":").split(":"):
            fields = device.split(",")
            if len(fields) >= 4:  # noqa: PLR2004  # its four fields
                yield Share(fields[0], memory, whole_number(fields[2]))
                yield Share(fields[0], cores, whole_number(fields[3]))

    return read


def _koordinator(text: str) -> Iterator[Share]:
    try:
        cards = as_objects(as_object(json.loads(text)).get("gpu"))
    except (ValueError, RecursionError):
        return
    for _, card in cards:
        minor = card.get("minor")
        if not isinstance(minor, int | str):
            continue
        for name, value in as_object(card.get("resources")).items():
            yield Share(str(minor), name, whole(amount_of(value)))


_READERS: Mapping[str, Callable[[str], Iterator[Share]]] = {
    # koordinator-sh/koordinator pkg/util/transformer/ack_pod_transformer_test.go has examples.
    "scheduler.framework.gpushare.allocation": _ack(GPU_MEM),
    "gpushare.alibabacloud.com/core-percentage": _ack(GPU_CORE),
    # Project-HAMi/HAMi pkg/device/devices.go
    "hami.io/vgpu-devices-allocated": _by_uuid("nvidia.com/gpumem", "nvidia.com/gpucores"),
    # Project-HAMi/volcano-vgpu-device-plugin pkg/plugin/vgpu/util/types.go, in the same form
    "volcano.sh/vgpu-ids-new": _by_uuid("volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores"),
    # koordinator-sh/koordinator apis/extension/device_share.go
    "scheduling.koordinator.sh/device-allocated": _koordinator,
}


def whole_number(text: str) -> int:
    """A whole number; 0 for everything else, and for what no card has."""
    return int(text) if text.isdecimal() and len(text) < len(str(_MAX_AMOUNT)) else 0

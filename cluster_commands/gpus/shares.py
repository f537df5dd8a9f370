"""Which card a pod was given, as schedulers record it in annotations and labels of the pod.

The keys are those of `rules.gpu.allocation_keys`. Whole cards of a device plugin have no such
record: only the kubelet of the node knows which ones it handed out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple, TypeAlias

from cluster_commands.gpus.pod_requests import amount_of, whole
from rules.base.json_access import as_object, as_objects, as_text
from rules.placement.ack_nodes import GPU_CORE, GPU_MEM

Amount: TypeAlias = int | Decimal
FRACTION = "gpu-fraction"
"""KAI's parts of cards, which are no resource: 1 is a card."""
PER_CARD = frozenset(
    {
        *("nvidia.com/gpumem", "nvidia.com/gpucores"),
        *("volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores"),
    }
)
"""Resources of HAMi and Volcano whose amount in a pod is for each of its cards."""
# A pod has few cards. Longer records are not read, so that no tenant makes the command slow.
_MAX_CHARACTERS, _MAX_SHARES = 20_000, 1000
_MAX_AMOUNT = 10**15
# Of a card. Without a least part, `1e-999999` would be shown with a million digits.
_LEAST_PART = Decimal("1e-9")


class Share(NamedTuple):
    """What a pod has of one card. `card` is the card's index or UUID, or KAI's name for it."""

    card: str
    resource: str
    amount: Amount


def shares_of(pod: Mapping[str, Any]) -> tuple[Share, ...]:
    """The cards that schedulers recorded for `pod`, each with what the pod has of it.

    A record that cannot be read counts as none: anybody may write annotations.
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
    shares = [Share(*place, amount) for place, amount in found.items()][:_MAX_SHARES]
    return (*shares, *_kai_shares(annotations, as_object(metadata.get("labels"))))


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


def _by_uuid(memory: str, cores: str) -> Callable[[str], Iterator[Share]]:
    """HAMi's form, one part for each container: `UUID,type,memory,cores:…;`."""

    def read(text: str) -> Iterator[Share]:
        for device in text.replace(";", ":").split(":"):
            fields = device.split(",")
            if len(fields) >= 4:  # noqa: PLR2004  # its four fields
                yield Share(fields[0], memory, _number(fields[2]))
                yield Share(fields[0], cores, _number(fields[3]))

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


def _kai_shares(annotations: Mapping[str, Any], labels: Mapping[str, Any]) -> Iterator[Share]:
    """KAI's parts: one label for each card (kai-scheduler/KAI-Scheduler pkg/common/constants)."""
    portion = _decimal(annotations.get("gpu-fraction"))
    if not portion:
        return
    for key, value in labels.items():
        if key == "runai-gpu-group" or key.startswith("runai-gpu-group/"):
            yield Share(as_text(value), FRACTION, portion)


def requested_fraction(pod: Mapping[str, Any]) -> Amount:
    """The cards of which `pod` asks KAI for a part, times that part; 0 if it does not."""
    annotations = as_object(as_object(pod.get("metadata")).get("annotations"))
    cards = as_text(annotations.get("gpu-fraction-num-devices"))
    return _decimal(annotations.get("gpu-fraction")) * (_number(cards) or 1)


def _decimal(value: object) -> Decimal:
    """A part of a card, less than 1; 0 for everything else."""
    try:
        number = Decimal(as_text(value)[:20] or "0")
        return number if _LEAST_PART <= number < 1 else Decimal(0)
    except InvalidOperation:  # also where NaN is compared
        return Decimal(0)


def _number(text: str) -> int:
    """A whole number; 0 for everything else, and for what no card has."""
    return int(text) if text.isdecimal() and len(text) < len(str(_MAX_AMOUNT)) else 0

"""The cards that a pod was given, or parts of them, as schedulers record it in annotations.

The keys are those of `rules.gpu.allocation_keys`. Whole cards of a device plugin have no such
record: only the kubelet of the node knows which ones it handed out.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

from cluster.accounting.pod_requests import Requests, amount_of, whole
from rules.base.json_values import as_object, as_objects, as_text
from rules.placement.node_labels import GPU_CORE, GPU_COUNT, GPU_MEM

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
    """A pod's share of one card. `card` is the card's index or UUID, or KAI's name for it."""

    card: str
    resource: str
    amount: Amount


def containers_by_card(pod: Mapping[str, Any]) -> Mapping[str, int]:
    """Return how many containers of a pod have a part of a card that HAMi or Volcano divides.

    Init containers run one after the other: alone on a card, they count as one.
    """
    if _DIVIDED.keys().isdisjoint(_annotations(pod)):
        return {}
    found: Counter[str] = Counter()
    for key in _DIVIDED:
        initial, others = _containers(pod, key)
        found.update(card for container in others for card, _, _ in container)
        found |= Counter({card: 1 for container in initial for card, _, _ in container})
    return dict(islice(found.items(), _MAX_SHARES))


def shares_of(pod: Mapping[str, Any], requests: Requests) -> tuple[Share, ...]:
    """The cards that schedulers recorded for `pod`, each with what the pod has of it.

    `requests` are those of the pod: Volcano records the card alone. A record that cannot be read
    counts as none: any user may write annotations.
    """
    annotations = _annotations(pod)
    if _RECORDS.isdisjoint(annotations):
        return ()
    found: dict[tuple[str, str], Amount] = {}
    for key, names in _DIVIDED.items():
        found.update(_of_divided_cards(pod, key, names))
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
    found.update(_power_of_known_cards(as_object(pod.get("metadata")), requests, found))
    return tuple(Share(*place, amount) for place, amount in found.items())[:_MAX_SHARES]


def _annotations(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    return as_object(as_object(pod.get("metadata")).get("annotations"))


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
            yield Share(card=str(card), resource=resource, amount=amount)

    return read


def _ack_before_allocation(annotations: Mapping[str, Any]) -> Iterator[tuple[Any, Amount]]:
    """ACK's older record: one card for all containers of the pod."""
    card = as_text(annotations.get(_ACK_CARD))
    amount = amount_of(annotations.get("ALIYUN_COM_GPU_MEM_POD"))
    if card.isdecimal() and amount:
        yield (card[:10], GPU_MEM), whole(amount)


def _power_of_known_cards(
    metadata: Mapping[str, Any], requests: Requests, found: Mapping[tuple[str, str], Amount]
) -> Iterator[tuple[Any, Amount]]:
    """Yield a pod's computing power of ACK, where only the cards of its memory are recorded.

    A pod gets both of the same card. Where it has several, its label says over how many cards ACK's
    scheduler has spread them evenly.
    """
    cards = {card for card, resource in found if resource == GPU_MEM}
    power = whole(requests.get(GPU_CORE, 0))
    if not cards or not power or any(resource == GPU_CORE for _, resource in found):
        return
    spread = as_text(as_object(metadata.get("labels")).get(GPU_COUNT))
    if len(cards) == 1 or (spread == str(len(cards)) and power % len(cards) == 0):
        for card in cards:
            yield (card, GPU_CORE), power // len(cards)


def _volcano_cards(
    annotations: Mapping[str, Any], requests: Requests
) -> Iterator[tuple[Any, Amount]]:
    """Volcano's cards by index, of pods that ask for memory of one, or for whole ones.

    Source: volcano-sh/volcano pkg/scheduler/api/devices/nvidia/gpushare
    """
    cards = as_text(annotations.get(_VOLCANO_INDICES))[:_MAX_CHARACTERS].split(",")
    if all(card.isdecimal() for card in cards):
        memory = whole(requests.get(VOLCANO_MEMORY, 0))
        for card in cards[:_MAX_SHARES]:
            if memory:
                yield (card[:10], VOLCANO_MEMORY), memory
            elif VOLCANO_CARDS in requests:
                yield (card[:10], VOLCANO_CARDS), 1


_DIVIDED = {
    # Project-HAMi/HAMi pkg/device/devices.go
    "hami.io/vgpu-devices-allocated": ("nvidia.com/gpumem", "nvidia.com/gpucores"),
    # Project-HAMi/volcano-vgpu-device-plugin pkg/plugin/vgpu/util/types.go, in the same form
    "volcano.sh/vgpu-ids-new": ("volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores"),
}
"""The records of HAMi and Volcano, and the memory and the cores that they are about."""
_Container: TypeAlias = list[tuple[str, int, int]]


def _containers(
    pod: Mapping[str, Any], key: str
) -> tuple[Sequence[_Container], Sequence[_Container]]:
    """Card, memory and cores of each part of a card: of init containers, and of the others.

    The record is `UUID,type,memory,cores:…;`, with a part for each container. HAMi begins with the
    init containers; Volcano has none of them.
    """
    spec, text = as_object(pod.get("spec")), as_text(_annotations(pod).get(key))
    if not text or len(text) > _MAX_CHARACTERS:
        return (), ()
    containers = [
        [
            (fields[0], whole_number(fields[2]), whole_number(fields[3]))
            for device in part.split(":")
            if len(fields := device.split(",")) >= 4  # noqa: PLR2004  # its four fields
        ]
        for part in text.split(";")
    ]
    initial = [*as_objects(spec.get("initContainers"))]
    count = len(initial) if key.startswith("hami.io/") else 0
    return containers[:count], containers[count:]


def _of_divided_cards(
    pod: Mapping[str, Any], key: str, names: tuple[str, str]
) -> Iterator[tuple[tuple[str, str], Amount]]:
    """Yield the amounts of each card: all containers together, or the most of an init container.

    Source: Project-HAMi/HAMi pkg/device/initContainer.go
    """
    initial, others = _containers(pod, key)
    together: dict[tuple[str, str], int] = {}
    for container in others:
        for card, *amounts in container:
            for name, amount in zip(names, amounts, strict=True):
                together[card, name] = together.get((card, name), 0) + amount
    for container in initial:
        for card, *amounts in container:
            for name, amount in zip(names, amounts, strict=True):
                together[card, name] = max(together.get((card, name), 0), amount)
    yield from ((place, amount) for place, amount in together.items() if amount)


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
            yield Share(card=str(minor), resource=name, amount=whole(amount_of(value)))


_READERS: Mapping[str, Callable[[str], Iterator[Share]]] = {
    # koordinator-sh/koordinator pkg/util/transformer/ack_pod_transformer_test.go has examples.
    "scheduler.framework.gpushare.allocation": _ack(GPU_MEM),
    "gpushare.alibabacloud.com/core-percentage": _ack(GPU_CORE),
    # koordinator-sh/koordinator apis/extension/device_share.go
    "scheduling.koordinator.sh/device-allocated": _koordinator,
}
_ACK_CARD, _VOLCANO_INDICES = "ALIYUN_COM_GPU_MEM_IDX", "volcano.sh/gpu-index"
_RECORDS = frozenset((*_DIVIDED, *_READERS, _ACK_CARD, _VOLCANO_INDICES))
"""The annotations that say which cards a pod has: most pods have none of them."""


def whole_number(text: str) -> int:
    """A whole number; 0 for everything else, and for what no card has."""
    return int(text) if text.isdecimal() and len(text) < len(str(_MAX_AMOUNT)) else 0


# Parts of cards that the KAI scheduler hands out. Source: kai-scheduler/KAI-Scheduler
# pkg/common/constants and pkg/scheduler/api/node_info.

FRACTION = "gpu-fraction"
"""The annotation, and what is counted: parts of cards, which are no resource; 1 is a card."""
MEMORY = "gpu-memory"
"""The annotation, and what is counted on nodes that do not say their cards' memory: MiB."""
DEVICES_OF_KAI = "gpu-fraction-num-devices"
"""The annotation with the number of cards of which a pod wants a part."""
_MEMORY_WITHOUT_LABEL = 100
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
    """Return the request of `pod` to KAI, of all its cards; `memory` is that of a card of its node.

    The parts of cards, or MiB if `memory` is 0. Empty if the pod asks for neither.
    """
    annotations = _annotations(pod)
    if not (request := _of_each_card(annotations, memory)):
        return request
    cards = whole_number(as_text(annotations.get(DEVICES_OF_KAI))) or 1
    return {name: amount * cards for name, amount in request.items()}


def kai_shares(pod: Mapping[str, Any], memory: int) -> Iterator[Share]:
    """Yield the share of `pod` of each card: KAI sets one label for each."""
    metadata = as_object(pod.get("metadata"))
    request = _of_each_card(as_object(metadata.get("annotations")), memory)
    for key, value in as_object(metadata.get("labels")).items() if request else ():
        if key == _GROUP or key.startswith(f"{_GROUP}/"):
            for name, amount in request.items():
                yield Share(card=as_text(value), resource=name, amount=amount)


def memory_for_kai(memory: int) -> int:
    """The MiB of a card that KAI counts with, if its label says `memory`; 0 if it has no label."""
    return memory or _MEMORY_WITHOUT_LABEL


def kai_memory(pod: Mapping[str, Any], memory: int) -> Mapping[str, int]:
    """The MiB of each divided card that `pod` has, by KAI's name for the card."""
    metadata = as_object(pod.get("metadata"))
    part, wanted = kai_part_or_memory(as_object(metadata.get("annotations")))
    amount = wanted or int(part * memory_for_kai(memory))
    labels = as_object(metadata.get("labels")) if amount else {}
    return {
        as_text(value): amount
        for key, value in labels.items()
        if key == _GROUP or key.startswith(f"{_GROUP}/")
    }


def is_reservation(pod: Mapping[str, Any]) -> bool:
    """Return whether KAI has made a pod to reserve a card that it divides."""
    labels = as_object(as_object(pod.get("metadata")).get("labels"))
    return labels.get("app") == "kai-resource-reservation"


def kai_part_or_memory(annotations: Mapping[str, Any]) -> tuple[Decimal, int]:
    """The part of a card, or the MiB, that annotations ask KAI for; 0 for what they do not."""
    part = _part(annotations.get(FRACTION))
    return part, 0 if part else whole_number(as_text(annotations.get(MEMORY)))


def _of_each_card(annotations: Mapping[str, Any], memory: int) -> Mapping[str, Amount]:
    if fraction := _part(annotations.get(FRACTION)):
        return {FRACTION: fraction}
    wanted = whole_number(as_text(annotations.get(MEMORY)))
    if not wanted:
        return {}
    if not memory:
        return {MEMORY: wanted}
    # KAI rounds parts up, to hundredths of a card, and gives no pod more than a card has.
    return {FRACTION: Decimal(-(-wanted * 100 // memory)) / 100} if wanted <= memory else {}


def _part(value: object) -> Decimal:
    """A part of a card, less than 1; 0 for everything else."""
    try:
        number = Decimal(as_text(value)[:20] or "0")
        return number if _LEAST_PART <= number < 1 else Decimal(0)
    except InvalidOperation:  # also where NaN is compared
        return Decimal(0)

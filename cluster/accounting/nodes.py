"""A node's cards, as far as it says more than their number; its status; its GPU resources."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from cluster.accounting.claims import Device, cards_by_driver
from cluster.accounting.passthrough import is_gpu
from cluster.accounting.pod_requests import amount_of, whole
from cluster.accounting.shares import FRACTION, VOLCANO_CARDS, VOLCANO_MEMORY, Amount
from rules.base.json_values import as_object, as_objects, as_text
from rules.inventory.collectors import stated_amount
from rules.placement.node_labels import GPU_CORE, GPU_COUNT, GPU_MEM
from rules.profile.profile import Profile, Taint

# Labels that name the model of a node's cards, the most exact first.
_MODEL_LABELS = (
    # NVIDIA/k8s-device-plugin docs/gpu-feature-discovery/README.md
    "nvidia.com/gpu.product",
    # ROCm/k8s-device-plugin cmd/k8s-node-labeller/README.md
    "amd.com/gpu.product-name",
    "beta.amd.com/gpu.product-name",
    # Alibaba Cloud ACK and the gpushare plugin
    "aliyun.accelerator/nvidia_name",
    # koordinator-sh/koordinator apis/extension/device_share.go
    "node.koordinator.sh/gpu-model",
    # Clouds name the model before a node exists.
    "cloud.google.com/gke-accelerator",
    "cloud.google.com/gke-tpu-accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
    "eks.amazonaws.com/instance-gpu-name",
    "karpenter.azure.com/sku-gpu-name",
)
_MAX_CARDS = 1000
_MAX_CHARACTERS = 200_000


class Card(NamedTuple):
    """One card of a node: its index or UUID, its model if known, and what it has to share.

    `slots` is how many containers may share it, if its scheduler limits that; `mode` how it is
    divided, if that is registered, such as `mig`.
    """

    card: str
    model: str
    amounts: Mapping[str, int]
    slots: int = 0
    mode: str = ""
    is_healthy: bool = True


def model_of(node: Mapping[str, Any], cards: tuple[Card, ...] = ()) -> str:
    """The model of the node's cards, empty if nothing names it."""
    labels = as_object(as_object(node.get("metadata")).get("labels"))
    named = (as_text(labels.get(key)) for key in _MODEL_LABELS)
    return next(filter(None, named), "") or next((card.model for card in cards if card.model), "")


def cards_of(node: Mapping[str, Any], *, with_sick: bool = False) -> tuple[Card, ...]:
    """The cards whose shares a scheduler counts one by one; empty where it counts devices only.

    `with_sick`: also those that are not healthy and that their scheduler gives to pods.
    """
    annotations = as_object(as_object(node.get("metadata")).get("annotations"))
    status = as_object(node.get("status"))
    found = [
        *_ack(as_object(status.get("allocatable"))),
        *_hami(as_text(annotations.get("hami.io/node-nvidia-register"))),
        *(
            card
            for card in _volcano(as_text(annotations.get("volcano.sh/node-vgpu-register")))
            if card.is_healthy or with_sick
        ),
        *_volcano_shared(
            as_object(status.get("capacity")),
            as_text(annotations.get("volcano.sh/gpu-unhealthy-ids")),
        ),
    ]
    return tuple(found[:_MAX_CARDS])


def _ack(allocatable: Mapping[str, Any]) -> Iterator[Card]:
    """ACK's cards are equal: the memory of the node divided by their number."""
    if not (count := whole(amount_of(allocatable.get(GPU_COUNT)))):
        return
    memory = whole(amount_of(allocatable.get(GPU_MEM)))
    cores = whole(amount_of(allocatable.get(GPU_CORE)))
    for index in range(min(count, _MAX_CARDS)):
        amounts = {GPU_MEM: memory // count}
        if cores:
            amounts[GPU_CORE] = cores // count
        yield Card(str(index), "", amounts)


_FIELDS_OF_HAMI = ("id", "count", "devmem", "devcore", "type", "numa", "health", "index", "mode")


def _hami(text: str) -> Iterator[Card]:
    """HAMi's register: a JSON list, before that `UUID,count,memory,cores,type,numa,health:…`."""
    devices: list[Mapping[str, Any]]
    if len(text) > _MAX_CHARACTERS:
        return
    if text.startswith("["):
        try:
            devices = [device for _, device in as_objects(json.loads(text))]
        except (ValueError, RecursionError):
            return
    else:
        devices = [
            dict(zip(_FIELDS_OF_HAMI, fields))  # noqa: B905  # older records end before
            for fields in (device.split(",") for device in text.split(":"))
        ]
    for device in devices:
        if device.get("health") in (True, "true"):  # a set cannot look up a list
            amounts = {
                "nvidia.com/gpumem": whole(amount_of(device.get("devmem"))),
                "nvidia.com/gpucores": whole(amount_of(device.get("devcore"))),
            }
            card, model, mode = (as_text(device.get(key)) for key in ("id", "type", "mode"))
            yield Card(card, model, amounts, whole(amount_of(device.get("count"))), mode)


def _volcano(text: str) -> Iterator[Card]:
    """The register of Volcano's vGPU plugin: `UUID,count,memory,type,health[,mode]:…`."""
    for device in text[:_MAX_CHARACTERS].split(":"):
        fields = device.split(",")
        if len(fields) >= 5:  # noqa: PLR2004  # the fields above
            amounts = {"volcano.sh/vgpu-memory": whole(amount_of(fields[2]))}
            amounts["volcano.sh/vgpu-cores"] = 100
            mode = fields[5] if len(fields) > 5 else ""  # noqa: PLR2004  # the mode
            slots, is_healthy = whole(amount_of(fields[1])), fields[4] == "true"
            yield Card(fields[0], fields[3], amounts, slots, mode, is_healthy)


def _volcano_shared(capacity: Mapping[str, Any], unhealthy: str) -> Iterator[Card]:
    """The equal cards of which Volcano itself divides the memory; `unhealthy` are indices.

    Source: volcano-sh/volcano pkg/scheduler/api/devices/nvidia/gpushare
    """
    if not (count := whole(amount_of(capacity.get(VOLCANO_CARDS)))):
        return
    memory = whole(amount_of(capacity.get(VOLCANO_MEMORY)))
    broken = unhealthy[:_MAX_CHARACTERS].split(",")
    for index in range(min(count, _MAX_CARDS)):
        if memory and str(index) not in broken:
            yield Card(str(index), "", {VOLCANO_MEMORY: memory // count, VOLCANO_CARDS: 1})


# The status of a node, as kubectl shows it, and the taints that keep pods away.

# The taints by which Kubernetes itself keeps pods away, such as node.kubernetes.io/not-ready; and
# that of nodes which a cloud has yet to set up.
_TAINTS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
_EFFECTS = ("NoSchedule", "NoExecute")


def status_of(node: Mapping[str, Any]) -> str:
    """Return the status as `kubectl get nodes` shows it, such as `Ready,SchedulingDisabled`."""
    conditions = as_objects(as_object(node.get("status")).get("conditions"))
    ready = [as_text(c.get("status")) for _, c in conditions if c.get("type") == "Ready"]
    known = {"True": "Ready", "False": "NotReady"}.get(ready[0] if ready else "")
    # kubectl also shows NotReady for Unknown.
    status = known or ("NotReady" if ready else "Unknown")
    cordoned = as_object(node.get("spec")).get("unschedulable") is True
    return f"{status},SchedulingDisabled" if cordoned else status


def takes_pods(node: Mapping[str, Any]) -> bool:
    """Return whether new pods may come that tolerate no taint of Kubernetes itself."""
    spec = as_object(node.get("spec"))
    return spec.get("unschedulable") is not True and not any(
        taint.get("effect") in _EFFECTS and as_text(taint.get("key")).startswith(_TAINTS)
        for _, taint in as_objects(spec.get("taints"))
    )


def taints_of(node: Mapping[str, Any]) -> Iterator[Taint]:
    """The taints of a node that keep pods away."""
    for _, taint in as_objects(as_object(node.get("spec")).get("taints")):
        if taint.get("effect") in _EFFECTS:
            key, value = as_text(taint.get("key")), as_text(taint.get("value"))
            yield Taint((), key, value, as_text(taint.get("effect")))


# The amounts of a node's GPU resources.


class Total(NamedTuple):
    """A node's amount of a resource, and how much of it pods may use."""

    capacity: Amount
    allocatable: Amount


def node_totals(
    status: Mapping[str, Any],
    cards: Iterable[Card],
    offered: Iterable[Device],
    shared_cards: Collection[str],
    profile: Profile,
) -> Mapping[str, Total]:
    """The totals of a node by resource.

    They are from its `status`; of resources that are not there, from the `cards` that its device
    plugin has registered; and from its devices in ResourceSlices, by driver. `shared_cards` are
    those that KAI has divided.
    """
    capacity = as_object(status.get("capacity"))
    allocatable = as_object(status.get("allocatable"))
    totals: dict[str, Total] = {}
    for resource in {**allocatable, **capacity}:
        if is_gpu(resource, profile):
            usable = whole(amount_of(allocatable.get(resource)))
            totals[resource] = Total(stated_amount(status, resource), usable)
    registered: dict[str, int] = defaultdict(int)
    for card in cards:
        for resource, amount in card.amounts.items():
            registered[resource] += amount
    for resource, amount in registered.items():
        totals.setdefault(resource, Total(amount, amount))
    for driver, found in cards_by_driver(offered).items():
        totals[driver] = Total(len(found.offered), len(found.usable))
    if shared_cards:
        totals[FRACTION] = Total(len(shared_cards), len(shared_cards))
    return totals

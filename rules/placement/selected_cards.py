"""The cards that a pod may get: their memory, and whether nodes share or divide them."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from rules.base.json_values import Json, as_object, as_objects, as_text
from rules.base.quantity import Quantity, parse
from rules.base.text_matching import has_placeholder
from rules.objects.object_ref import BUILT_IN_GROUPS, group_of, object_ref
from rules.objects.pod import Pod
from rules.placement.node_affinity import (
    REQUIRED_AFFINITY,
    expression_values,
    expressions,
    is_empty_term,
    required_terms,
)
from rules.placement.node_labels import GPU_CORE, GPU_COUNT, GPU_MEM, MODE_LABEL, allowed_values
from rules.workloads.discovery import flatten_lists
from rules.workloads.kinds import POD_TEMPLATE_PATHS

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
_MEBIBYTES_PATTERN = r"([1-9][0-9]{0,7})(?:MiB)?"

MAX_DIGITS_OF_COUNT = 4

MEBIBYTES_BY_UNIT = {"GiB": 1024, "MiB": 1}
"""The MiB in one of a resource, by the unit that a profile gives for it."""


class CardMemory(NamedTuple):
    """The memory of the smallest and the largest card that a pod may get.

    In MiB, and never less than a device plugin counts. `cards` names the cards for messages.
    """

    smallest_mebibytes: int
    largest_mebibytes: int
    cards: str


def selected_card_memory(pod: Pod) -> CardMemory | None:
    """The memory of the cards on the nodes that the pod selects; None if it selects no cards.

    None as well if one of the cards is not known.
    """
    return _card_memory(lambda label: allowed_values(pod, label))


def card_memory_of_node(labels: Mapping[str, str]) -> CardMemory | None:
    """The memory of the cards of a node with these labels; None if the labels do not say it."""
    return _card_memory(lambda label: {labels[label]} if label in labels else None)


# More than any node has; one that counts MiB seems to have a thousand times as many.
MAX_CARDS_PER_NODE = 64


def labelled_share_of_card(labels: Mapping[str, str], total: int, unit: str) -> int:
    """Return how much GPU_MEM the largest card of a node has by its labels; 0 if they do not tell.

    The node offers `total` of it. `unit` is that of the profile: a device plugin may count in
    another one, and then the node seems to have more cards than any has.
    """
    known, mebibytes = card_memory_of_node(labels), MEBIBYTES_BY_UNIT.get(unit, 0)
    if not (known and mebibytes):
        return 0
    if total * mebibytes > MAX_CARDS_PER_NODE * known.largest_mebibytes:
        return 0
    return known.largest_mebibytes // mebibytes


def cards_of_share(labels: Mapping[str, Any]) -> int:
    """Over how many cards ACK's scheduler spreads the memory of a pod with these labels."""
    text = as_text(labels.get(GPU_COUNT))
    is_count = text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS_OF_COUNT
    return max(int(text), 1) if is_count else 1


_INSTANCE_TYPE_LABELS = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
# Labels whose value is the number of devices: GPU feature discovery, Karpenter, and GKE.
_COUNT_LABELS = (
    "nvidia.com/gpu.count",
    "karpenter.k8s.aws/instance-gpu-count",
    "karpenter.k8s.aws/instance-accelerator-count",
    "cloud.google.com/gke-accelerator-count",
)


class DeviceCount(NamedTuple):
    """The largest number of devices on a node that a pod selects.

    `label` says so, as `key: value`.
    """

    max_devices: int
    label: str


def selected_device_count(pod: Pod) -> DeviceCount | None:
    """Return how many devices the pod's nodes have; None if their labels do not say it.

    None as well if those nodes offer a card several times, or in parts.
    """
    if not (pod.node_selector or required_terms(pod)):
        return None
    if selects_shared_cards(pod) or selects_mig_cards(pod):
        return None
    for label in (*_COUNT_LABELS, *_INSTANCE_TYPE_LABELS):
        values = allowed_values(pod, label)
        if not values:
            continue
        counts = [(_device_count(label, value), value) for value in sorted(values)]
        known = [(count, value) for count, value in counts if count is not None]
        if len(known) == len(counts):
            largest, value = max(known)
            return DeviceCount(largest, f"{label}: {value}")
    return None


def _device_count(label: str, value: str) -> int | None:
    if label in _INSTANCE_TYPE_LABELS:
        from rules.profile.platforms.instance_types import accelerator_count_of  # noqa: PLC0415  # rare

        return accelerator_count_of(value)
    return int(value) if re.fullmatch("[1-9][0-9]{0,3}", value) else None


def _card_memory(values_of: Callable[[str], Collection[str] | None]) -> CardMemory | None:
    for label in _MEMORY_LABELS:
        if values := values_of(label):
            amounts = [re.fullmatch(_MEBIBYTES_PATTERN, value) for value in values]
            known = [int(amount[1]) for amount in amounts if amount]
            if len(known) == len(values):
                return CardMemory(
                    min(known), max(known), f"a card with {label}: {_joined_with_or(values)}"
                )
    for label in _MODEL_LABELS:
        if values := values_of(label):
            from rules.profile.platforms.cards import memory_sizes_gb  # noqa: PLC0415  # rarely needed

            sizes = [memory_sizes_gb(value) for value in values]
            if all(sizes):
                sizes_in_mib = [size * 1024 for known in sizes for size in known]
                return CardMemory(min(sizes_in_mib), max(sizes_in_mib), _joined_with_or(values))
    return None


def _joined_with_or(values: Iterable[str]) -> str:
    return " or ".join(sorted(values))


GKE_PARTITION_SIZE = "cloud.google.com/gke-gpu-partition-size"
_PRODUCT_LABEL = "nvidia.com/gpu.product"
_SHARING_STRATEGIES = frozenset({"time-slicing", "time-sharing", "mps"})
_MAX_DIGITS_OF_CLIENTS = 6
_ValueTests: TypeAlias = Mapping[str, Callable[[str], bool]]
"""By label, whether a node with this value has cards of some sort."""


def _is_strategy(value: str) -> bool:
    # GKE's page writes the values of nodes that auto-provisioning makes in upper case, with `_`.
    return value.lower().replace("_", "-") in _SHARING_STRATEGIES


def _is_several(value: str) -> bool:
    is_number = value.isascii() and value.isdigit() and len(value) <= _MAX_DIGITS_OF_CLIENTS
    return is_number and int(value) > 1


# https://github.com/NVIDIA/k8s-device-plugin, docs/gpu-feature-discovery: the product of shared
# cards ends with -SHARED, and that of MIG devices has their profile after -MIG-.
# https://cloud.google.com/kubernetes-engine/docs/concepts/timesharing-gpus: nodes with shared cards
# have both of GKE's labels, and pods may select either.
_SHARED_CARD_TESTS: _ValueTests = {
    "nvidia.com/gpu.sharing-strategy": _is_strategy,
    "cloud.google.com/gke-gpu-sharing-strategy": _is_strategy,
    "cloud.google.com/gke-max-shared-clients-per-gpu": _is_several,
    _PRODUCT_LABEL: lambda value: value.endswith("-SHARED"),
}
# Of these, labels that only nodes with such cards have: `Exists` selects them as well.
_LABELS_OF_SHARED_CARDS_ALONE = frozenset(
    {
        "cloud.google.com/gke-gpu-sharing-strategy",
        "cloud.google.com/gke-max-shared-clients-per-gpu",
    }
)
_MIG_CARD_TESTS: _ValueTests = {
    GKE_PARTITION_SIZE: bool,
    _PRODUCT_LABEL: lambda value: "-MIG-" in value and not value.endswith("-SHARED"),
}


def selects_shared_cards(pod: Pod) -> bool:
    """Return whether all nodes that `pod` may run on let several containers share a card."""
    return _selects_by_labels(pod, _SHARED_CARD_TESTS, _LABELS_OF_SHARED_CARDS_ALONE)


def selects_mig_cards(pod: Pod) -> bool:
    """Return whether all nodes that `pod` may run on offer MIG devices as `nvidia.com/gpu`."""
    return _selects_by_labels(pod, _MIG_CARD_TESTS, {GKE_PARTITION_SIZE})


def offers_parts_of_cards(labels: Mapping[str, Any]) -> bool:
    """Return whether `nvidia.com/gpu` is replicas or MIG devices on a node with these labels."""
    return any(
        divides(as_text(labels.get(label)))
        for tests in (_SHARED_CARD_TESTS, _MIG_CARD_TESTS)
        for label, divides in tests.items()
    )


def _selects_by_labels(pod: Pod, tests: _ValueTests, alone: Collection[str]) -> bool:
    """Return whether the labels that the pod demands show by `tests` that its nodes have the cards.

    No other nodes have the labels in `alone`, so it is enough to demand that they exist. Of the
    terms of a required affinity, each must show it.
    """
    if not (pod.node_selector or pod.spec.get("affinity")):
        return False
    for label, divides in tests.items():
        values = allowed_values(pod, label)
        if values and all(map(divides, values)):
            return True
    terms = [term for _, term in required_terms(pod) if not is_empty_term(term)]
    return bool(terms) and all(
        any(_shows(expression, tests, alone) for _, expression in expressions(term))
        for term in terms
    )


def _shows(expression: Mapping[str, Any], tests: _ValueTests, alone: Collection[str]) -> bool:
    key, operator = as_text(expression.get("key")), as_text(expression.get("operator"))
    if operator == "In" and key in tests:
        values = expression_values(expression)
        return bool(values) and all(map(tests[key], values or ()))
    return operator in {"Exists", "Gt"} and key in alone


# The pools of ACK's nodes on which pods share cards. A pool is known by `nodeSelector` alone, if
# one of its labels is the mode `core_mem` or names a node pool. A pod with required node affinity
# is in no known pool, because it may require more.

if TYPE_CHECKING:
    from rules.inventory.builder import InventoryBuilder

NODE_POOL_LABELS = ("alibabacloud.com/nodepool-id", "node.alibabacloud.com/nodepool-id")
_MAX_LABELS = 20
_MAX_VALUE_CHARACTERS = 63  # characters of the value of a label


def labels_of_share_pool(spec: Mapping[str, Any]) -> str:
    """The labels of the nodes that a pod with a share requires; empty if it names no pool.

    `spec` is the pod's.
    """
    selector = as_object(spec.get("nodeSelector"))
    affinity = as_object(as_object(spec.get("affinity")).get("nodeAffinity"))
    if len(selector) > _MAX_LABELS or REQUIRED_AFFINITY in affinity:
        return ""
    if selector.get(MODE_LABEL, "core_mem") != "core_mem":
        return ""
    if MODE_LABEL not in selector and selector.keys().isdisjoint(NODE_POOL_LABELS):
        return ""
    values = [as_text(value) for value in selector.values()]
    if any(len(value) > _MAX_VALUE_CHARACTERS or has_placeholder(value) for value in values):
        return ""
    return ", ".join(sorted(f"{key}: {as_text(value)}" for key, value in selector.items()))


def requests_share(spec: Mapping[str, Any], resource: str) -> bool:
    """Return whether a container or an init container of a pod has `resource` in its limits."""
    for field in ("initContainers", "containers"):
        for _, container in as_objects(spec.get(field)):
            limits = as_object(as_object(container.get("resources")).get("limits"))
            amount = parse(limits[resource]) if resource in limits else None
            if isinstance(amount, Quantity) and amount.nano > 0:
                return True
    return False


def add_shares_to_inventory(
    builder: "InventoryBuilder", manifest: Json, namespace: str | None
) -> None:
    """Add the pods and built-in workloads in `manifest` that share cards of a known pool.

    `namespace` is where objects go that name none, if that is known.
    """
    for raw, _ in flatten_lists(as_object(manifest), ()):
        kind, group = as_text(raw.get("kind")), group_of(raw)
        if group not in BUILT_IN_GROUPS or kind not in POD_TEMPLATE_PATHS:
            continue
        metadata, template = as_object(raw.get("metadata")), raw
        if metadata.get("uid"):
            continue  # it runs in a cluster, beside whatever else runs there
        for key in POD_TEMPLATE_PATHS[kind]:
            template = as_object(template.get(str(key)))
        spec = as_object(template.get("spec"))
        if requests_share(spec, GPU_MEM) and (pool := labels_of_share_pool(spec)):
            owner = str(object_ref(kind, group, metadata, namespace))
            builder.shares.add(pool, owner, has_power=requests_share(spec, GPU_CORE))

"""What keeps one node from taking a pod, in the order in which kube-scheduler asks.

The scheduler runs its filter plugins one after the other, and the first that refuses a node says
why. A plugin may have several reasons, such as too little of several resources. After it come the
device plugin, and the schedulers that count what is free on one card.
Source: Kubernetes, `pkg/scheduler/apis/config/v1/default_plugins.go` and
`pkg/scheduler/framework/plugins`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from cluster.gpus.accounting import NodeLoad
from cluster.gpus.nodes import model_of, taints_of
from cluster.gpus.pod_requests import amount_of, effective_requests, whole
from cluster.gpus.shares import card_memory
from cluster.why.amounts import NANO
from cluster.why.cards import CardRequest, CardRoom, asked_of_a_card, rooms_of
from rules.base.json_values import as_object, as_objects, as_text
from rules.placement.tolerations import display_taint, tolerates
from rules.profile.profile import Taint

_CORDONED = Taint((), "node.kubernetes.io/unschedulable", None, "NoSchedule")
_BY_NAME = "node(s) didn't satisfy plugin(s) [NodeAffinity]"
_MAX_INT64 = 2**63 - 1
_NVIDIA = ("nvidia.com/gpu", "nvidia.com/gpu.shared")


class Obstacle(NamedTuple):
    """Why a node cannot take a pod.

    - `plugin`: the filter of kube-scheduler that refuses it.
    - `message`: what an event of kube-scheduler says.
    - `subject`: what it is about: a taint, a label, or the name of a resource.
    - `asked`, `free`, `total`, `capacity`: of a resource, in units of 1e-9: what the pod asks for,
      and what the node has left, offers, and would offer if all its devices were healthy.
    - `is_expected`: the node's labels say that it has such devices.

    `message` is empty if kube-scheduler does not refuse the pod, and another program does.
    """

    plugin: str
    message: str
    subject: str = ""
    asked: int = 0
    free: int = 0
    total: int = 0
    capacity: int = 0
    is_expected: bool = False


class Node(NamedTuple):
    """What the filters look at of a node; amounts in units of 1e-9.

    - `devices`: the names of the devices that it offers.
    - `rooms`: what is free on one card, by resource; `card_memory`: the MiB of a card, if known.
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


def read_node(raw: Mapping[str, Any], load: NodeLoad | None) -> Node:
    """The node `raw`, of which pods take `load`."""
    metadata, spec = as_object(raw.get("metadata")), as_object(raw.get("spec"))
    status = as_object(raw.get("status"))
    allocatable = _amounts(status.get("allocatable"))
    load = load or NodeLoad()
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
        card_memory(raw),
    )


def _amounts(quantities: object) -> Mapping[str, int]:
    return {name: amount_of(value) for name, value in as_object(quantities).items()}


Uncounted: TypeAlias = Mapping[str, frozenset[str] | None]
"""Resources that nodes need not offer, each with the names of these nodes; None: no node need."""


class Wanted:
    """What a pod asks of a node.

    `uncounted` are resources that another scheduler counts, or that a DeviceClass serves.
    """

    def __init__(self, pod: Mapping[str, Any], uncounted: Uncounted = MappingProxyType({})) -> None:
        spec = as_object(pod.get("spec"))
        self.pod, self.spec = pod, spec
        self._uncounted = uncounted
        self._of_a_card: dict[int, Mapping[str, CardRequest]] = {}
        self.requests = effective_requests(pod)
        self.node_name = as_text(spec.get("nodeName"))
        self._tolerations = [toleration for _, toleration in as_objects(spec.get("tolerations"))]
        self._selector = as_object(spec.get("nodeSelector"))
        affinity = as_object(as_object(spec.get("affinity")).get("nodeAffinity"))
        required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
        self._terms = (
            [term for _, term in as_objects(as_object(required).get("nodeSelectorTerms"))]
            if isinstance(required, dict)
            else None
        )

    def obstacles(self, node: Node) -> Iterator[tuple[Obstacle, ...]]:
        """What each filter says that refuses `node`; nothing if none does.

        kube-scheduler stops at the first. What comes after it says whether it would be enough to
        remove that.
        """
        if self._names is not None and node.name not in self._names:
            yield (Obstacle("NodeAffinity", _BY_NAME),)
        for plugin in (
            *(self._unschedulable, self._taint, self._affinity, self._resources),
            *(self._shares, self._cards),
        ):
            if found := tuple(plugin(node)):
                yield found

    def obstacles_of_kubelet(self, node: Node) -> Iterator[tuple[Obstacle, ...]]:
        """Why the kubelet of `node` refuses the pod, if it names the node itself.

        Then nobody asks kube-scheduler. A kubelet does not check a device that its node does not
        offer. Source: Kubernetes, `pkg/kubelet/lifecycle/predicate.go`.
        """
        taints = tuple(taint for taint in node.taints if taint.effect == "NoExecute")
        resources = [o for o in self._resources(node) if o.total or "/" not in o.subject]
        for found in (
            tuple(self._taint(node._replace(taints=taints))),
            tuple(self._affinity(node)),
            tuple(resources),
            tuple(self._shares(node)),
        ):
            if found:
                yield tuple(obstacle._replace(message="") for obstacle in found)

    def _is_uncounted(self, resource: str, node: Node) -> bool:
        if resource in node.devices or resource not in self._uncounted:
            return False
        nodes = self._uncounted[resource]
        return nodes is None or node.name in nodes

    def copies(self, node: Node) -> int:
        """How many such pods the resources of `node` are enough for."""
        room = [whole(node.allocatable.get("pods", 0)) - node.load.pods]
        for name, asked in self.requests.items():
            total = node.allocatable.get(name, 0)
            if asked and not self._is_uncounted(name, node):
                room.append((total - node.load.requests.get(name, 0)) // asked)
        return max(min(room), 0)

    def doubts(self, node: Node) -> Iterator[str]:
        """What is not known of a node that refuses the pod for no known reason."""
        for resource, asked in self._asked_of_a_card(node.card_memory).items():
            room = node.rooms.get(resource)
            if room is not None and (not room.is_known or asked.most > room.free):
                yield f"how much {resource} is free on one card"

    @property
    def asks_of_a_card(self) -> bool:
        """Whether the pod asks for a part of a card."""
        return bool(self._asked_of_a_card(0))

    def _asked_of_a_card(self, memory: int) -> Mapping[str, CardRequest]:
        """The same for all nodes whose cards have as much memory."""
        if memory not in self._of_a_card:
            self._of_a_card[memory] = asked_of_a_card(self.pod, memory)
        return self._of_a_card[memory]

    @cached_property
    def _names(self) -> frozenset[str] | None:
        """The only nodes that are looked at, if every term of the affinity names some."""
        if not self._terms:
            return None
        names: set[str] = set()
        for term in self._terms:
            listed = [_named(field) for _, field in as_objects(term.get("matchFields"))]
            known = [found for found in listed if found is not None]
            if not known:
                return None
            names |= frozenset.intersection(*known)
        return frozenset(names)

    def _tolerates(self, taint: Taint) -> bool:
        return any(tolerates(toleration, taint) for toleration in self._tolerations)

    def _unschedulable(self, node: Node) -> Iterator[Obstacle]:
        if node.is_cordoned and not self._tolerates(_CORDONED._replace(value="")):
            yield Obstacle("NodeUnschedulable", "node(s) were unschedulable")

    def _taint(self, node: Node) -> Iterator[Obstacle]:
        untolerated = next((t for t in node.taints if not self._tolerates(t)), None)
        if untolerated is not None:
            text = display_taint(untolerated._replace(value=untolerated.value or None))
            yield Obstacle("TaintToleration", "node(s) had untolerated taint(s)", text)

    def _affinity(self, node: Node) -> Iterator[Obstacle]:
        missing = next(
            (
                f"{key}={value}"
                for key, value in self._selector.items()
                if node.labels.get(key) != value
            ),
            "",
        )
        if not missing and self._terms is not None:
            terms = [_unmet(term, node) for term in self._terms]
            if terms and "" not in terms:
                missing = " or ".join(dict.fromkeys(terms))
            elif not terms:
                missing = "a term of the node affinity"
        if missing:
            message = "node(s) didn't match Pod's node affinity/selector"
            yield Obstacle("NodeAffinity", message, missing)

    def _resources(self, node: Node) -> Iterator[Obstacle]:
        plugin = "NodeResourcesFit"
        room = whole(node.allocatable.get("pods", 0)) - node.load.pods
        if room < 1:
            total = node.allocatable.get("pods", 0)
            yield Obstacle(plugin, "Too many pods", "pods", NANO, 0, total)
        # GPUs first: what is beside them matters only where they are.
        for name, asked in sorted(self.requests.items(), key=lambda item: "/" not in item[0]):
            total = node.allocatable.get(name, 0)
            free = total - node.load.requests.get(name, 0)
            if asked > free and not self._is_uncounted(name, node):
                capacity, is_expected = node.capacity.get(name, 0), _is_expected(node, name)
                amounts = asked, max(free, 0), total, capacity
                yield Obstacle(plugin, f"Insufficient {name}", name, *amounts, is_expected)

    def _shares(self, node: Node) -> Iterator[Obstacle]:
        """NVIDIA's device plugin gives a container one share of a card that MPS shares.

        Source: NVIDIA/k8s-device-plugin `cmd/nvidia-device-plugin`, failRequestsGreaterThanOne.
        """
        if node.labels.get("nvidia.com/gpu.sharing-strategy") != "mps":
            return
        for field in ("containers", "initContainers"):
            for _, container in as_objects(self.spec.get(field)):
                limits = as_object(as_object(container.get("resources")).get("limits"))
                for name in _NVIDIA:
                    if (asked := amount_of(limits.get(name))) > NANO and name in node.devices:
                        yield Obstacle("MPS", "", name, asked)
                        return

    def _cards(self, node: Node) -> Iterator[Obstacle]:
        """Too little is free on one card, whatever the sum over the cards of the node is."""
        for resource, asked in self._asked_of_a_card(node.card_memory).items():
            room = node.rooms.get(resource)
            if room is not None and asked.least > room.free:
                yield Obstacle("Card", "", resource, asked.least, room.free, room.total)


def _is_expected(node: Node, resource: str) -> bool:
    """Whether the labels of a node say that it has the devices of a vendor, and it offers none."""
    vendor = resource.partition("/")[0]
    is_labelled = node.labels.get(f"{vendor}/gpu.present") == "true" or any(
        node.labels.get(f"{vendor}/{key}") for key in ("gpu.product", "gpu.product-name")
    )
    return is_labelled and not any(name.startswith(f"{vendor}/") for name in node.devices)


def _named(field: Mapping[str, Any]) -> frozenset[str] | None:
    """The names that a field selector allows; None if it is another one."""
    if field.get("key") != "metadata.name" or field.get("operator") != "In":
        return None
    values = field.get("values")
    return frozenset(map(as_text, values if isinstance(values, list) else ()))


def _unmet(term: Mapping[str, Any], node: Node) -> str:
    """The first requirement of a term that `node` does not meet; empty if it meets the term.

    A term without requirements is met by no node.
    """
    requirements = [found for _, found in as_objects(term.get("matchExpressions"))]
    fields = [found for _, found in as_objects(term.get("matchFields"))]
    if not (requirements or fields):
        return "an empty term"
    for requirement in requirements:
        if not _meets(requirement, node.labels):
            return _requirement_text(requirement)
    for field in fields:
        if not _meets(field, {"metadata.name": node.name}):
            return _requirement_text(field)
    return ""


def _meets(requirement: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Source: Kubernetes, `staging/src/k8s.io/apimachinery/pkg/labels/selector.go`, Matches."""
    key, values = as_text(requirement.get("key")), requirement.get("values")
    listed = [as_text(value) for value in values] if isinstance(values, list) else []
    value = labels.get(key)
    match requirement.get("operator"):
        case "In":
            return value in listed
        case "NotIn":
            return value not in listed
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case operator:
            return _compares(value or "", operator, listed[0] if listed else "")


def _compares(value: str, operator: object, bound: str) -> bool:
    own, other = _integer(value), _integer(bound)
    if own is None or other is None:
        return False
    return (operator == "Gt" and own > other) or (operator == "Lt" and own < other)


def _integer(text: str) -> int | None:
    """A whole number of 64 bits, as Go's `strconv.ParseInt` reads it."""
    digits = text[1:] if text[:1] in {"-", "+"} else text
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= len(str(_MAX_INT64))):
        return None
    number = int(text)
    return number if -_MAX_INT64 - 1 <= number <= _MAX_INT64 else None


def _requirement_text(requirement: Mapping[str, Any]) -> str:
    key, operator = as_text(requirement.get("key")), as_text(requirement.get("operator"))
    values = requirement.get("values")
    listed = [as_text(value) for value in values] if isinstance(values, list) else []
    texts = {
        "In": f"{key}={listed[0]}" if len(listed) == 1 else f"{key} in ({', '.join(listed)})",
        "NotIn": f"{key} not in ({', '.join(listed)})",
        "Exists": key,
        "DoesNotExist": f"no label {key}",
    }
    return texts.get(operator, f"{key} {operator} {', '.join(listed)}")

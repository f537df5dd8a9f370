"""Collect what an inventory keeps of many objects together: nodes, and pods that share cards."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple

from rules.base.json_values import as_object, as_objects, as_text
from rules.base.quantity import Quantity, parse
from rules.base.taints import is_temporary_taint
from rules.base.text_matching import matches_any
from rules.inventory.inventory import (
    HOSTNAME_LABEL,
    SURVEY_NAME,
    FlavorNodes,
    FlavorTaint,
    GpuNodes,
    NodeGroup,
    NodeSurvey,
    SharePool,
)

MAX_NODE_GROUPS = 200
MAX_LABEL_CHARACTERS = 200_000
"""Of the labels of all groups: a file of an inventory holds a megabyte, and has each twice."""
MAX_RESOURCES_PER_GROUP = 200
"""Of the nodes of one group."""
MAX_CHARACTERS_OF_NAMES = 300_000
"""Of the names of all GPU nodes, and of what shows that they are: some 5,000 nodes of a cloud."""


class _CollectedGroup(NamedTuple):
    """The facts about nodes with the same labels, as they are collected: see NodeGroup."""

    labels: dict[str, str]
    resources: dict[str, int]
    per_card: dict[str, int]


class NodeCollector:
    """Groups nodes by the labels and GPU resources whose names match the patterns.

    A cluster has thousands of nodes of few kinds, so their number does not matter. `is_full` says
    that there are more groups, or more resources in one of them, than an inventory holds.
    `card_counts` has for a resource that is the sum of a node's cards the one that counts these.
    """

    def __init__(
        self,
        labels: Iterable[str] = (),
        resources: Iterable[str] = (),
        card_counts: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._labels, self._resources = tuple(labels), tuple(resources)
        self._card_counts = card_counts
        self._groups: dict[str, _CollectedGroup] = {}
        self._characters = 0
        self.is_full = False
        self.has_all = False
        """Whether every node of the cluster has been added. A caller that knows this sets it."""

    def add(self, node: Mapping[str, Any]) -> None:
        """Add a Node."""
        every = as_object(as_object(node.get("metadata")).get("labels"))
        labels = {k: as_text(v) for k, v in sorted(every.items()) if matches_any(self._labels, k)}
        name = ",".join(f"{key}={value}" for key, value in labels.items())
        if name not in self._groups:
            self._characters += len(name)
            if len(self._groups) >= MAX_NODE_GROUPS or self._characters > MAX_LABEL_CHARACTERS:
                self.is_full = True
                return
            self._groups[name] = _CollectedGroup(labels, {}, {})
        _, resources, per_card = self._groups[name]
        status = as_object(node.get("status"))
        for resource, count in self._card_counts.items():
            if total := stated_amount(status, resource):
                each = _amount_per_card(total, stated_amount(status, count))
                before = per_card.get(resource, each)
                per_card[resource] = max(each, before) if each and before else 0
        for resource, amount in _offered(status, self._resources):
            if resource in resources or len(resources) < MAX_RESOURCES_PER_GROUP:
                resources[resource] = max(amount, resources.get(resource, 0))
            else:
                self.is_full = True

    def records(self) -> dict[type, dict[str, dict[str, Any]]]:
        """The records of what has been added, as an `Inventory` takes them; empty if nothing."""
        found: dict[type, dict[str, dict[str, Any]]] = {}
        if self._groups:
            groups = {
                name: NodeGroup(
                    group.labels,
                    dict(sorted(group.resources.items())),
                    {resource: amount for resource, amount in group.per_card.items() if amount},
                )
                for name, group in self._groups.items()
            }
            found[NodeGroup] = {"": groups}
        if (self._groups or self.has_all) and not self.is_full:
            survey = NodeSurvey(frozenset(self._labels), frozenset(self._resources), self.has_all)
            found[NodeSurvey] = {"": {SURVEY_NAME: survey}}
        return found


class GpuNodeCollector:
    """Collects the names of the nodes that have GPUs.

    `resources` are patterns of the GPU resources that nodes offer. `is_gpu_label` says of the key
    and the value of a label whether only GPU nodes have it: nodes offer no resource for devices
    that pods get by claims. `is_full` says that there are more names than an inventory holds.
    """

    def __init__(
        self,
        resources: Iterable[str] = (),
        is_gpu_label: Callable[[str, str], bool] = lambda _key, _value: False,
    ) -> None:
        self._resources = tuple(resources)
        self._is_gpu_label = is_gpu_label
        self._names: dict[str, set[str]] = {}
        self._characters = 0
        self.is_full = False

    def add(self, node: Mapping[str, Any]) -> None:
        """Add a Node, if it has GPUs."""
        if not (shown_by := self.sign(node)):
            return
        metadata = as_object(node.get("metadata"))
        labels = as_object(metadata.get("labels"))
        names = {as_text(metadata.get("name")), as_text(labels.get(HOSTNAME_LABEL))} - {""}
        size = len(shown_by) + sum(map(len, names))
        if self._characters + size > MAX_CHARACTERS_OF_NAMES:
            self.is_full = True
            return
        self._characters += size
        self._names.setdefault(shown_by, set()).update(names)

    def has(self, node: Mapping[str, Any]) -> bool:
        """Return whether a Node that has been added has GPUs."""
        name = as_text(as_object(node.get("metadata")).get("name"))
        is_kept = any(name in names for names in self._names.values())
        return is_kept or (self.is_full and bool(self.sign(node)))

    def sign(self, node: Mapping[str, Any]) -> str:
        """The resource, or the label, that shows that a Node has GPUs; empty if it has none."""
        labels = as_object(as_object(node.get("metadata")).get("labels"))
        offered = (name for name, _ in _offered(as_object(node.get("status")), self._resources))
        marks = (key for key in sorted(labels) if self._is_gpu_label(key, as_text(labels[key])))
        return next(chain(offered, marks), "")

    def records(self) -> dict[type, dict[str, dict[str, GpuNodes]]]:
        """The records of what has been added, as an `Inventory` takes them; empty if nothing."""
        found = {sign: GpuNodes(frozenset(names)) for sign, names in self._names.items()}
        return {GpuNodes: {"": found}} if found else {}


MAX_NODES_BEFORE_FLAVORS = 1_000
"""Nodes that are kept for flavors which may follow them."""


class FlavorNodeCollector:
    """Collects the taints that all GPU nodes of a flavor have.

    The caller adds GPU nodes alone. Flavors and nodes come in any order; of a flavor that follows
    more than MAX_NODES_BEFORE_FLAVORS nodes nothing is known.
    """

    def __init__(self) -> None:
        self._labels: dict[str, Mapping[str, Any]] = {}
        self._taints: dict[str, tuple[FlavorTaint, ...]] = {}
        self._nodes: list[tuple[Mapping[str, Any], tuple[FlavorTaint, ...]]] = []

    def add_flavor(self, name: str, spec: Mapping[str, Any]) -> None:
        """Add a flavor with this specification."""
        if name not in self._labels and len(self._nodes) <= MAX_NODES_BEFORE_FLAVORS:
            self._labels[name] = as_object(spec.get("nodeLabels"))
            for labels, taints in self._nodes:
                self._compare(name, labels, taints)

    def add(self, node: Mapping[str, Any]) -> None:
        """Add a Node."""
        labels = as_object(as_object(node.get("metadata")).get("labels"))
        taints = flavor_taints(as_object(node.get("spec")).get("taints"))
        lasting = tuple(each for each in taints if not is_temporary_taint(each.key))
        if len(self._nodes) <= MAX_NODES_BEFORE_FLAVORS:
            self._nodes.append((labels, lasting))
        for name in self._labels:
            self._compare(name, labels, lasting)

    def _compare(
        self, name: str, labels: Mapping[str, Any], taints: tuple[FlavorTaint, ...]
    ) -> None:
        if all(labels.get(key) == value for key, value in self._labels[name].items()):
            known = self._taints.get(name, taints)
            self._taints[name] = tuple(taint for taint in known if taint in taints)

    def records(self) -> dict[type, dict[str, dict[str, FlavorNodes]]]:
        """The records of what has been added, as an `Inventory` takes them; empty if nothing."""
        found = {name: FlavorNodes(taints) for name, taints in self._taints.items()}
        return {FlavorNodes: {"": found}} if found else {}


def flavor_taints(listed: object) -> tuple[FlavorTaint, ...]:
    """The taints in a list of a flavor, or of a node."""
    return tuple(
        FlavorTaint(*(as_text(taint.get(field)) for field in FlavorTaint._fields))
        for _, taint in as_objects(listed)
    )


def _offered(status: Mapping[str, Any], resources: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    """The GPU resources of a node. Its capacity stays when its device plugin restarts."""
    for name in {**as_object(status.get("capacity")), **as_object(status.get("allocatable"))}:
        if matches_any(resources, name) and (amount := stated_amount(status, name)):
            yield name, amount


def stated_amount(status: Mapping[str, Any], resource: str) -> int:
    """Return how much of `resource` a node with this status has, healthy or not.

    0 if it does not say so.
    """
    found = [as_object(status.get(field)).get(resource) for field in ("capacity", "allocatable")]
    return max([0, *(a.value for a in map(parse, found) if isinstance(a, Quantity))])


def _amount_per_card(total: int, cards: int) -> int:
    """Return the amount of each card in `total`; 0 if it is not known, as cards may differ."""
    return total // cards if cards and total % cards == 0 else 0


MAX_SHARING_OBJECTS = 1_000
"""Objects of all pools together. What comes later is not known."""


class ShareCollector:
    """Collects objects whose pods share cards, by the pool of nodes that the pods require.

    An object that is there in two forms, as in a repository with several environments, does not
    count: it is not known which one runs beside the others.
    """

    def __init__(self) -> None:
        self._with_power: dict[str, set[str]] = {}
        self._without: dict[str, set[str]] = {}
        self._count = 0

    def add(self, pool: str, owner: str, *, has_power: bool) -> None:
        """Add an object, by its kind and name, whose pods require the nodes of `pool`."""
        self._count += 1
        if self._count <= MAX_SHARING_OBJECTS:
            by_pool = self._with_power if has_power else self._without
            by_pool.setdefault(pool, set()).add(owner)

    def records(self) -> dict[type, dict[str, dict[str, SharePool]]]:
        """The records of what has been added, as an `Inventory` takes them; empty if nothing."""
        certain = {
            pool: SharePool(min(owners - self._without.get(pool, set())))
            for pool, owners in self._with_power.items()
            if owners - self._without.get(pool, set())
        }
        return {SharePool: {"": certain}} if certain else {}

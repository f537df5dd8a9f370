"""Make an inventory of manifests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rules.base.json_access import as_object, as_objects, as_text
from rules.inventory.inventory import Inventory
from rules.inventory.nodes import NodeCollector
from rules.inventory.records import (
    ADMIN_ACCESS,
    ClusterQueue,
    ConfigMap,
    DeviceClass,
    LimitRange,
    LocalQueue,
    Namespace,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceQuota,
    RuntimeClass,
)
from rules.inventory.shares import ShareCollector
from rules.inventory.variable_names import VariableNames

MAX_OBJECTS = 100_000
MAX_IN_NAMESPACE = 2_000_000
"""Characters of the records of a namespace, whose tenants choose their number and size.

Objects of the cluster have no such bound: there is a Namespace for each of many tenants.
"""
_NAMED = 5  # namespaces in a message
_OBJECT = 100  # characters that count for any object, however little is kept of it
MAX_VALUE = 100  # characters of the value of a ConfigMap, whose tenant may choose any
_DRA = "resource.k8s.io"
_KUEUE = "kueue.x-k8s.io"


class _Reader(NamedTuple):
    """How a kind is read: the record of a manifest."""

    kind: type
    read: Callable[[Mapping[str, Any], VariableNames], Any]
    is_namespaced: bool = True


def _config_map(raw: Mapping[str, Any], variables: VariableNames) -> ConfigMap:
    data = as_object(raw.get("data"))
    return ConfigMap({name: _bounded(as_text(data[name])) for name in variables.among(data)})


def _bounded(value: str) -> str:
    """`value` cut to MAX_VALUE characters; the mark keeps its last word from becoming another."""
    return value if len(value) <= MAX_VALUE else f"{value[:MAX_VALUE]}…"


def _limit_range(raw: Mapping[str, Any], _variables: VariableNames) -> LimitRange:
    """The defaults are those that the API server fills in: `SetDefaults_LimitRangeItem`."""
    most: dict[str, Any] = {}
    limits: set[str] = set()
    requests: set[str] = set()
    for _, item in as_objects(as_object(raw.get("spec")).get("limits")):
        if item.get("type") == "Container":
            # Of several, the pod must obey all: a rule that reads only one says less.
            most |= as_object(item.get("max"))
            limits |= {*as_object(item.get("default")), *as_object(item.get("max"))}
            requests |= {*as_object(item.get("defaultRequest")), *as_object(item.get("min"))}
    return LimitRange(most, frozenset(limits), frozenset(requests | limits))


def _resource_quota(raw: Mapping[str, Any], _variables: VariableNames) -> ResourceQuota:
    spec = as_object(raw.get("spec"))
    return ResourceQuota(
        as_object(spec.get("hard")), bool(spec.get("scopes") or spec.get("scopeSelector"))
    )


def _device_class(raw: Mapping[str, Any], _variables: VariableNames) -> DeviceClass:
    return DeviceClass(as_text(as_object(raw.get("spec")).get("extendedResourceName")))


def _namespace(raw: Mapping[str, Any], _variables: VariableNames) -> Namespace:
    labels = as_object(as_object(raw.get("metadata")).get("labels"))
    return Namespace({key: labels[key] for key in ADMIN_ACCESS if key in labels})


def _claim(raw: Mapping[str, Any], _variables: VariableNames) -> ResourceClaim:
    """Whoever made it: a pod may also name a claim that was made for another pod."""
    return ResourceClaim(_classes(as_object(raw.get("spec"))))


def _claim_template(raw: Mapping[str, Any], _variables: VariableNames) -> ResourceClaimTemplate:
    return ResourceClaimTemplate(_classes(as_object(as_object(raw.get("spec")).get("spec"))))


def _classes(spec: Mapping[str, Any]) -> frozenset[str]:
    """The classes of all requests, also of those of which only the first that fits counts."""
    requests = [r for _, r in as_objects(as_object(spec.get("devices")).get("requests"))]
    alternatives = (a for r in requests for _, a in as_objects(r.get("firstAvailable")))
    exactly = (as_object(request.get("exactly")) for request in requests)
    named = (as_text(r.get("deviceClassName")) for r in (*requests, *exactly, *alternatives))
    return frozenset(filter(None, named))


def _runtime_class(raw: Mapping[str, Any], _variables: VariableNames) -> RuntimeClass:
    return RuntimeClass(as_text(raw.get("handler")))


def _cluster_queue(raw: Mapping[str, Any], _variables: VariableNames) -> ClusterQueue:
    groups = [g for _, g in as_objects(as_object(raw.get("spec")).get("resourceGroups"))]
    covered = [listed for g in groups if isinstance(listed := g.get("coveredResources"), list)]
    return ClusterQueue(frozenset(as_text(name) for listed in covered for name in listed))


def _local_queue(raw: Mapping[str, Any], _variables: VariableNames) -> LocalQueue:
    return LocalQueue(as_text(as_object(raw.get("spec")).get("clusterQueue")))


_READERS: Mapping[tuple[str, str], _Reader] = {
    ("", "ConfigMap"): _Reader(ConfigMap, _config_map),
    ("", "LimitRange"): _Reader(LimitRange, _limit_range),
    ("", "ResourceQuota"): _Reader(ResourceQuota, _resource_quota),
    ("", "Namespace"): _Reader(Namespace, _namespace, is_namespaced=False),
    ("node.k8s.io", "RuntimeClass"): _Reader(RuntimeClass, _runtime_class, is_namespaced=False),
    (_DRA, "DeviceClass"): _Reader(DeviceClass, _device_class, is_namespaced=False),
    (_DRA, "ResourceClaim"): _Reader(ResourceClaim, _claim),
    (_DRA, "ResourceClaimTemplate"): _Reader(ResourceClaimTemplate, _claim_template),
    (_KUEUE, "ClusterQueue"): _Reader(ClusterQueue, _cluster_queue, is_namespaced=False),
    (_KUEUE, "LocalQueue"): _Reader(LocalQueue, _local_queue),
}


class InventoryBuilder:
    """Collects the records of objects, up to MAX_OBJECTS and MAX_IN_NAMESPACE.

    `variables` are those that it keeps of ConfigMaps; `nodes` collects what it keeps of nodes.
    """

    def __init__(self, variables: VariableNames, nodes: NodeCollector | None = None) -> None:
        self._variables = variables
        self.nodes = nodes or NodeCollector()
        self.shares = ShareCollector()
        self._records: dict[type, dict[str, dict[str, Any]]] = {}
        self._count = 0
        self._sizes: Counter[str] = Counter()
        self._incomplete: set[str] = set()

    def add(self, kind: str, group: str, namespace: str, name: str, raw: Mapping[str, Any]) -> None:
        """Add an object, unless its kind is of no interest or it has no name.

        The namespace may be words that stand for the one that the object does not name, such as
        `the folder gpus`.
        """
        if (group, kind) == ("", "Node"):
            self.nodes.add(raw)
            return
        reader = _READERS.get((group, kind))
        if reader is None or not name:
            return
        home = namespace if reader.is_namespaced else ""
        records = self._records.setdefault(reader.kind, {}).setdefault(home, {})
        record = reader.read(raw, self._variables)
        if name in records:
            if records[name] != record:
                records[name] = None
            return
        size = _OBJECT + len(name) + len(repr(record)) if reader.is_namespaced else 0
        if self._count < MAX_OBJECTS and self._sizes[home] + size <= MAX_IN_NAMESPACE:
            self._count += 1
            self._sizes[home] += size
            records[name] = record
        else:
            self._incomplete.add(home)

    def what_is_missing(self) -> str:
        """A message about objects for which there was no room; empty if there were none."""
        if not self._incomplete:
            return ""
        places = [_place(home) for home in sorted(self._incomplete)]
        where = ", ".join(places[:_NAMED]) + (", and others" if len(places) > _NAMED else "")
        return f"not all objects that pods refer to are known, there are too many: {where}"

    def inventory(self) -> Inventory:
        """What has been added so far."""
        return Inventory(self._records | self.nodes.records() | self.shares.records())


def _place(home: str) -> str:
    """Where the objects are that `InventoryBuilder.add` got with this namespace."""
    if not home:
        return "in the cluster"
    return f"in {home}" if " " in home else f"in namespace {home}"

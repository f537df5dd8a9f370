"""Make an inventory of manifests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from rules.base.json_access import as_object, as_objects, as_text
from rules.inventory.inventory import Inventory
from rules.inventory.records import (
    ConfigMap,
    DeviceClass,
    LimitRange,
    Namespace,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceQuota,
    RuntimeClass,
)

MAX_OBJECTS = 100_000
# Rules read no longer values of variables.
_MAX_VALUE = 4096
_DRA = "resource.k8s.io"

IsVariable: TypeAlias = Callable[[str], bool]


class _Reader(NamedTuple):
    """How a kind is read: the record of a manifest, None if it has nothing that a rule asks for."""

    kind: type
    read: Callable[[Mapping[str, Any], IsVariable], Any]
    is_namespaced: bool = True


def _config_map(raw: Mapping[str, Any], is_variable: IsVariable) -> ConfigMap:
    data = as_object(raw.get("data"))
    return ConfigMap({k: as_text(v)[: _MAX_VALUE + 1] for k, v in data.items() if is_variable(k)})


def _limit_range(raw: Mapping[str, Any], _is_variable: IsVariable) -> LimitRange:
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


def _resource_quota(raw: Mapping[str, Any], _is_variable: IsVariable) -> ResourceQuota:
    spec = as_object(raw.get("spec"))
    return ResourceQuota(
        as_object(spec.get("hard")), bool(spec.get("scopes") or spec.get("scopeSelector"))
    )


def _device_class(raw: Mapping[str, Any], _is_variable: IsVariable) -> DeviceClass:
    return DeviceClass(as_text(as_object(raw.get("spec")).get("extendedResourceName")))


def _namespace(raw: Mapping[str, Any], _is_variable: IsVariable) -> Namespace:
    return Namespace(as_object(as_object(raw.get("metadata")).get("labels")))


def _claim(raw: Mapping[str, Any], _is_variable: IsVariable) -> ResourceClaim:
    return ResourceClaim(_classes(as_object(raw.get("spec"))))


def _claim_template(raw: Mapping[str, Any], _is_variable: IsVariable) -> ResourceClaimTemplate:
    return ResourceClaimTemplate(_classes(as_object(as_object(raw.get("spec")).get("spec"))))


def _classes(spec: Mapping[str, Any]) -> frozenset[str]:
    """The classes of all requests, also of those of which only the first that fits counts."""
    requests = [r for _, r in as_objects(as_object(spec.get("devices")).get("requests"))]
    alternatives = (a for r in requests for _, a in as_objects(r.get("firstAvailable")))
    exactly = (as_object(request.get("exactly")) for request in requests)
    named = (as_text(r.get("deviceClassName")) for r in (*requests, *exactly, *alternatives))
    return frozenset(filter(None, named))


def _runtime_class(raw: Mapping[str, Any], _is_variable: IsVariable) -> RuntimeClass:
    return RuntimeClass(as_text(raw.get("handler")))


_READERS: Mapping[tuple[str, str], _Reader] = {
    ("", "ConfigMap"): _Reader(ConfigMap, _config_map),
    ("", "LimitRange"): _Reader(LimitRange, _limit_range),
    ("", "ResourceQuota"): _Reader(ResourceQuota, _resource_quota),
    ("", "Namespace"): _Reader(Namespace, _namespace, is_namespaced=False),
    ("node.k8s.io", "RuntimeClass"): _Reader(RuntimeClass, _runtime_class, is_namespaced=False),
    (_DRA, "DeviceClass"): _Reader(DeviceClass, _device_class, is_namespaced=False),
    (_DRA, "ResourceClaim"): _Reader(ResourceClaim, _claim),
    (_DRA, "ResourceClaimTemplate"): _Reader(ResourceClaimTemplate, _claim_template),
}


class InventoryBuilder:
    """Collects the records of objects, up to MAX_OBJECTS; `is_full` says that there were more.

    `is_variable` says whether container runtimes read a variable, by its name.
    """

    def __init__(self, is_variable: IsVariable) -> None:
        self._is_variable = is_variable
        self._records: dict[type, dict[str, dict[str, Any]]] = {}
        self._count = 0
        self.is_full = False

    def add(self, kind: str, group: str, namespace: str, name: str, raw: Mapping[str, Any]) -> None:
        """Add an object, unless its kind is of no interest or it has no name.

        The namespace may be any text that stands for the one that the object does not name.
        """
        reader = _READERS.get((group, kind))
        if reader is None or not name:
            return
        home = namespace if reader.is_namespaced else ""
        records = self._records.setdefault(reader.kind, {}).setdefault(home, {})
        record = reader.read(raw, self._is_variable)
        if name in records:
            if records[name] != record:
                records[name] = None
        elif self._count < MAX_OBJECTS:
            self._count += 1
            records[name] = record
        else:
            self.is_full = True

    def inventory(self) -> Inventory:
        """What has been added so far."""
        return Inventory(self._records)

"""The nodes that have the devices for a pod's claims, and the obstacles on the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import cached_property
from typing import NamedTuple

from cluster.source.objects import Object
from cluster.why.devices.allocation import (
    TOO_MANY_CHOICES,
    Attempt,
    FatalError,
    Holdings,
    NotKnownError,
    try_to_allocate,
)
from cluster.why.devices.pools import DevicePools, Reaches
from cluster.why.devices.refusals import Shortage, find_shortage
from cluster.why.devices.requests import ClaimRequest
from rules.base.json_values import as_object, as_objects, as_text
from rules.engine.bounds import StepLimit, TooManyStepsError
from rules.gpu.devices import DEVICE_CLASS_PREFIX
from rules.profile.platforms.records import Version


class Allocation(Enum):
    """The allocator's result for a node and claims."""

    CAN = "can"
    CANNOT = "cannot"
    NOT_KNOWN = "not known"


class Verdict(NamedTuple):
    """The decision of the allocator about a node.

    - `shortage`: why it cannot; `unknown`: what would have to be known.
    - `is_fatal`: the allocator ends its search for all nodes; `may_end`: why it may do so.
    """

    allocation: Allocation
    shortage: Shortage | None = None
    unknown: str = ""
    is_fatal: bool = False
    may_end: str = ""


class DeviceAllocator:
    """The known devices of a cluster, allocated as kube-scheduler does it.

    Claims of namespaces that `shows` does not accept are not named. `version` is that of
    Kubernetes, which decides about some faults; None if it is not known.
    """

    def __init__(
        self,
        slices: Iterable[Object],
        classes: Iterable[Object],
        claims: Iterable[Object],
        taint_rules: Iterable[Object] = (),
        shows: Callable[[str], bool] = lambda _: True,
        version: Version | None = None,
    ) -> None:
        self._pools = DevicePools(slices, taint_rules, version)
        self._held = Holdings(claims, shows)
        self._raw_classes = {_name_of(raw): raw for raw in classes}

    @cached_property
    def _classes(self) -> Mapping[str, tuple[str, ...]]:
        return {
            name: tuple(
                as_text(as_object(selector.get("cel")).get("expression"))
                for _, selector in as_objects(as_object(raw.get("spec")).get("selectors"))
            )
            for name, raw in self._raw_classes.items()
        }

    def missing_classes(self, claims: Iterable[ClaimRequest]) -> list[tuple[str, str]]:
        """The DeviceClasses that do not exist, each with what names it."""
        return [
            (claim.label, name)
            for claim in claims
            for name in dict.fromkeys(claim.classes)
            if name not in self._classes
        ]

    def allocate(
        self, claims: Sequence[ClaimRequest], node: str, reaches: Reaches, limit: StepLimit
    ) -> Verdict:
        """Return whether `node` has the devices for all of `claims`, whose classes exist.

        `limit` is that of a pod, for all nodes: a user who writes claims can make the search long.
        """
        if not self._pools.are_known:
            return Verdict(
                Allocation.NOT_KNOWN, unknown="the ResourceSlices, of which there is none"
            )
        pools = self._pools.of_node(node, reaches)
        try:
            return _verdict(Attempt(pools, claims, self._classes, self._held, limit))
        except TooManyStepsError:
            return Verdict(Allocation.NOT_KNOWN, unknown=TOO_MANY_CHOICES)

    def class_of(self, resource: str) -> str:
        """The DeviceClass that serves an extended resource; empty if there is none."""
        return self._class_by_resource.get(resource, "")

    @cached_property
    def _class_by_resource(self) -> Mapping[str, str]:
        """Of classes for the same resource the newest one serves it, then the first by name.

        Source: Kubernetes, `staging/src/k8s.io/dynamic-resource-allocation/deviceclass`.
        """
        served = {f"{DEVICE_CLASS_PREFIX}{name}": name for name in self._raw_classes}
        by_age = sorted(self._raw_classes.items(), reverse=True)
        for name, raw in sorted(by_age, key=lambda item: _created(item[1])):
            if resource := as_text(as_object(raw.get("spec")).get("extendedResourceName")):
                served[resource] = name
        return served


def _verdict(attempt: Attempt) -> Verdict:
    try:
        has_devices, may_end = try_to_allocate(attempt)
    except FatalError as error:
        found = find_shortage(attempt)
        shortage = Shortage(str(error), (str(error), *found.reasons[1:]), found.remedy)
        return Verdict(Allocation.CANNOT, shortage, is_fatal=True)
    except NotKnownError as error:
        return Verdict(Allocation.NOT_KNOWN, unknown=str(error), may_end=error.may_end)
    if has_devices:
        return Verdict(Allocation.CAN)
    return Verdict(Allocation.CANNOT, find_shortage(attempt), may_end=may_end)


def _created(raw: Object) -> str:
    return as_text(as_object(raw.get("metadata")).get("creationTimestamp"))


def _name_of(raw: Object) -> str:
    return as_text(as_object(raw.get("metadata")).get("name"))

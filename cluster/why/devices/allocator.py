"""The nodes that have the devices for a pod's claims, and the obstacles on the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import cached_property
from typing import NamedTuple

from cluster.source.objects import Object, name_of
from cluster.why.devices.allocation import (
    TOO_MANY_CHOICES,
    Attempt,
    Holdings,
    try_to_allocate,
)
from cluster.why.devices.errors import FatalError, NotKnownError
from cluster.why.devices.features import (
    EXTENDED_RESOURCES,
    OFF_BY_DEFAULT,
    Features,
    Variants,
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
        self._slices, self._rules, self._version = [*slices], [*taint_rules], version
        self._held = Holdings(claims, shows)
        self._variants = Variants(version, self._slices, self._rules)
        self._pools: dict[Features, DevicePools] = {}
        self._raw_classes = {name_of(raw): raw for raw in classes}

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
        if not self._slices:
            return Verdict(
                Allocation.NOT_KNOWN, unknown="the ResourceSlices, of which there is none"
            )
        if unread := self._variants.unread(claims):
            return Verdict(Allocation.NOT_KNOWN, unknown=unread, may_end=unread)
        are_whole = self._pools_with(Features()).are_whole(node, reaches)
        verdicts = []
        for features, read in self._variants.of(claims, are_pools_whole=are_whole):
            pools = self._pools_with(features).of_node(node, reaches)
            try:
                found = _verdict(Attempt(pools, read, self._classes, self._held, limit, features))
            except TooManyStepsError:
                return Verdict(Allocation.NOT_KNOWN, unknown=TOO_MANY_CHOICES)
            if found.allocation is Allocation.NOT_KNOWN:
                return found
            verdicts.append(found)
        return _agreed(verdicts, self._variants.doubt(claims, are_pools_whole=are_whole))

    def _pools_with(self, features: Features) -> DevicePools:
        if features not in self._pools:
            self._pools[features] = DevicePools(self._slices, self._rules, self._version, features)
        return self._pools[features]

    @property
    def doubt_about_extended_resources(self) -> str:
        """Return what would have to be known of classes that serve resources; empty if it is."""
        if not EXTENDED_RESOURCES.is_off(self._version):
            return ""
        return f"whether the feature gate {EXTENDED_RESOURCES.name} is on: {OFF_BY_DEFAULT}"

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


def _agreed(verdicts: Sequence[Verdict], doubt: str) -> Verdict:
    """The verdict of several allocators that may decide; not known if they differ."""
    first = verdicts[0]
    if any(one.allocation is not first.allocation for one in verdicts):
        why = next(
            (one.shortage.reasons[0] for one in verdicts if one.is_fatal and one.shortage), ""
        )
        may_end = next((one.may_end for one in verdicts if one.may_end), why)
        return Verdict(Allocation.NOT_KNOWN, unknown=doubt, may_end=may_end)
    if all(one.is_fatal for one in verdicts):
        return first
    may_end = next((one.may_end or doubt for one in verdicts if one.may_end or one.is_fatal), "")
    return first._replace(is_fatal=False, may_end=may_end)


def _created(raw: Object) -> str:
    return as_text(as_object(raw.get("metadata")).get("creationTimestamp"))

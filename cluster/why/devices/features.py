"""The features of kube-scheduler's device allocator, which depend on the version of Kubernetes.

Source: Kubernetes, `pkg/features/kube_features.go` of 1.34.4, 1.36.3 and 1.37.2, and
`staging/src/k8s.io/dynamic-resource-allocation/structured/internal` of 0.34.13, 0.35.10, 0.36.6 and
0.37.2.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

from cluster.accounting.claims import content_of
from cluster.kubernetes_faults import (
    DISTINCT_DEVICES,
    DISTINCT_VALUES,
    SHARED_COUNTERS,
    KubernetesFault,
)
from cluster.source.objects import Object
from cluster.why.devices.requests import ClaimRequest, Request
from rules.base.json_values import as_object, as_objects
from rules.profile.platforms.records import Version, compare_versions, parse_version


class Gate(NamedTuple):
    """A feature gate: its name, and the first version in which it is on by default."""

    name: str
    since: str

    def is_off(self, version: Version | None) -> bool:
        """Return whether a version has it off by default; not if the version is not known."""
        return is_before(version, self.since) is True


TAINTS = Gate("DRADeviceTaints", "1.36")
TAINT_RULES = Gate("DRADeviceTaintRules", "1.37")
PARTITIONS = Gate("DRAPartitionableDevices", "1.36")
SHARES = Gate("DRAConsumableCapacity", "1.36")
BINDING = Gate("DRADeviceBindingConditions", "1.36")
EXTENDED_RESOURCES = Gate("DRAExtendedResource", "1.36")
OFF_BY_DEFAULT = "off by default in this version of Kubernetes"
_STRICT_POOLS = "1.35"
"""The first version that gives away no device of a pool which is not complete."""
_ALTERNATIVES = "1.36"
"""The first version that gives the devices of one alternative only, if that asks for all."""
_NEW_COUNTS = "1.37"
"""The first version that counts shares and partitions as it does today."""


def is_before(version: Version | None, other: str) -> bool | None:
    """Return whether a version is older than another; None if that is not known."""
    parsed = parse_version(other)
    if version is None or parsed is None:
        return None
    order = compare_versions(version._replace(is_preview=False), parsed)
    return None if order is None else order < 0


_NOT_READ = (PARTITIONS, SHARES)
"""Before they were on by default, these worked otherwise than today."""


class Features(NamedTuple):
    """The behaviour of an allocator.

    - `off`: the feature gates that are off.
    - `uses_incomplete_pools`: of a pool that is not complete only requests for all devices get
      none; slices that the node cannot reach do not count; and a device that is there twice ends
      the search.
    - `is_before_1_37`: a request for all devices is met without those of which too little is left;
      a device is in use only if a share of it has an amount; and each node reaches all counters.
    """

    off: frozenset[Gate] = frozenset()
    uses_incomplete_pools: bool = False
    is_before_1_37: bool = False


class Variant(NamedTuple):
    """An allocator that the cluster may have, and the claims as it reads them."""

    features: Features
    claims: Sequence[ClaimRequest]


class Variants:
    """The allocators that a cluster of a version may have.

    A field that belongs to a feature is stored only where the API server has that on. So if the
    version is not known, the features that objects need are taken to be on; if it has them off by
    default, kube-scheduler may have them on or off.
    """

    def __init__(
        self, version: Version | None, slices: Iterable[Object], taint_rules: Iterable[Object]
    ) -> None:
        self._version = version
        self._needed = frozenset(_gates_of_slices(slices))
        if any(True for _ in taint_rules):
            self._needed |= {TAINT_RULES}

    def unread(self, claims: Iterable[ClaimRequest]) -> str:
        """Return what would have to be known to say anything; empty if nothing has to."""
        needed = {gate for gate in self._unsure(claims) if gate in _NOT_READ}
        if needed:
            return _which_are_on(needed)
        is_faulty = self._version is not None and SHARED_COUNTERS.affects(self._version)
        if is_faulty and {SHARES, PARTITIONS} <= self._needed:
            return f"which counters devices with several allocations leave: {SHARED_COUNTERS}"
        if self._choices(_ALTERNATIVES)[-1] and any(map(_has_later_all, claims)):
            return (
                "which devices alternatives for all devices get: before Kubernetes "
                f"{_ALTERNATIVES}, kube-scheduler mixes them up with the first alternative"
            )
        return ""

    def of(self, claims: Sequence[ClaimRequest], *, are_pools_whole: bool) -> Iterator[Variant]:
        """Yield the allocators that may decide about `claims`.

        The first is what the allocator is meant to do. `are_pools_whole`: the node can reach each
        slice of its pools, and no device is there twice.
        """
        unsure = self._unsure(claims)
        lenient = [False] if are_pools_whole else self._choices(_STRICT_POOLS)
        old = self._choices(_NEW_COUNTS) if self._is_counted_otherwise(claims) else [False]
        read = [claims]
        if (without := [*map(self._without_faulty_constraints, claims)]) != [*claims]:
            read.append(without)
        for is_lenient, is_old, each in product(lenient, old, read):
            for is_off in product((False, True), repeat=len(unsure)):
                off = frozenset(gate for gate, here in zip(unsure, is_off, strict=True) if here)
                yield Variant(Features(off, is_lenient, is_old), each)

    def _is_counted_otherwise(self, claims: Iterable[ClaimRequest]) -> bool:
        """Return whether shares and partitions of the cluster are counted otherwise before 1.37."""
        asks_for_all = any(request.devices is None for request in _requests(claims))
        found = {SHARES, PARTITIONS} & self._needed
        return len(found) > 1 or (asks_for_all and bool(found))

    def _choices(self, version: str) -> list[bool]:
        """Return the answers that are possible to whether the cluster is older than `version`."""
        is_old = is_before(self._version, version)
        return [False, True] if is_old is None else [is_old]

    def _without_faulty_constraints(self, claim: ClaimRequest) -> ClaimRequest:
        """The claim without constraints that this version may not enforce."""
        if self._has(DISTINCT_VALUES):
            faulty = [*_requests([claim])]
        elif self._has(DISTINCT_DEVICES):
            faulty = [request for request in _requests([claim]) if request.devices != 1]
        else:
            return claim
        kept = tuple(
            one
            for one in claim.constraints
            if not (one.is_distinct and any(map(one.is_about, faulty)))
        )
        return claim._replace(constraints=kept)

    def _has(self, fault: KubernetesFault) -> bool:
        """Return whether this version may have a fault."""
        return self._version is None or fault.affects(self._version) is not False

    def _unsure(self, claims: Iterable[ClaimRequest]) -> list[Gate]:
        """The features that the objects need, and that this version has off by default."""
        needed = self._needed | ({SHARES} if any(map(_needs_shares, claims)) else set())
        return sorted(gate for gate in needed if gate.is_off(self._version))

    def doubt(self, claims: Sequence[ClaimRequest], *, are_pools_whole: bool) -> str:
        """Return what would have to be known if these allocators decide differently."""
        if unsure := self._unsure(claims):
            return _which_are_on(unsure)
        if not are_pools_whole and is_before(self._version, _STRICT_POOLS) is None:
            return (
                f"the version of Kubernetes: before {_STRICT_POOLS}, devices of a pool that is not "
                "complete are given away"
            )
        if is_before(self._version, _NEW_COUNTS) is None and self._is_counted_otherwise(claims):
            return (
                f"the version of Kubernetes: before {_NEW_COUNTS}, shares and partitions were "
                "counted otherwise"
            )
        return (
            "whether kube-scheduler gives devices with the same values, as "
            f"{DISTINCT_VALUES if self._has(DISTINCT_VALUES) else DISTINCT_DEVICES} lets it"
        )


def _gates_of_slices(slices: Iterable[Object]) -> Iterator[Gate]:
    for raw in slices:
        spec = as_object(raw.get("spec"))
        if spec.get("sharedCounters") or "perDeviceNodeSelection" in spec:
            yield PARTITIONS
        for _, device in as_objects(spec.get("devices")):
            content = content_of(device)
            for field, gate in _FIELDS.items():
                if content.get(field):
                    yield gate


_FIELDS: Mapping[str, Gate] = {
    "taints": TAINTS,
    "consumesCounters": PARTITIONS,
    "allowMultipleAllocations": SHARES,
    "bindingConditions": BINDING,
}
"""The fields of devices that belong to features."""


def _needs_shares(claim: ClaimRequest) -> bool:
    is_distinct = any(constraint.is_distinct for constraint in claim.constraints)
    return is_distinct or any(request.capacity for request in _requests([claim]))


def _has_later_all(claim: ClaimRequest) -> bool:
    """Return whether an alternative after the first one asks for all devices."""
    return any(one.devices is None for alternatives in claim.requests for one in alternatives[1:])


def _requests(claims: Iterable[ClaimRequest]) -> Iterator[Request]:
    for claim in claims:
        for alternatives in claim.requests:
            yield from alternatives


def _which_are_on(gates: Collection[Gate]) -> str:
    names = " and ".join(sorted(gate.name for gate in gates))
    one = len(gates) == 1
    return (
        f"whether the feature gate{'s'[one:]} {names} {'is' if one else 'are'} on: {OFF_BY_DEFAULT}"
    )

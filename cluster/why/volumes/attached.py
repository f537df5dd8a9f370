"""The number of volumes that a node can have: kube-scheduler's filter NodeVolumeLimits.

Source: Kubernetes, `pkg/scheduler/framework/plugins/nodevolumelimits/csi.go`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from cluster.source.objects import Object
from cluster.why.nodes import Node
from cluster.why.placed.label_selectors import labels_of
from cluster.why.placed.pods import PlacedPods, namespace_of
from cluster.why.volumes.known import (
    Claim,
    KnownVolumes,
    VolumeObstacle,
    class_of,
    object_of,
)
from cluster.why.volumes.older_volumes import DRIVER_BY_PLUGIN, DriverVolume, driver_volume
from rules.base.json_values import as_object, as_objects, as_text

_PLUGIN = "NodeVolumeLimits"
_TOO_MANY = "node(s) exceed max volume count"


class _Attached(NamedTuple):
    """The volumes of a node; `unknown` is how many more of any driver it may have.

    kube-scheduler counts a volume that is attached, and that no pod there has, once more for a pod
    that needs it.
    """

    of_pods: frozenset[DriverVolume]
    others: frozenset[DriverVolume]
    unknown: int

    def without(self, released: AbstractSet[DriverVolume | None]) -> _Attached:
        """Return the others, once the pods with those that are `released` have ended."""
        return self._replace(of_pods=self.of_pods - released, others=self.others - released)

    def count(self, driver: str) -> int:
        """Return how many are of a driver."""
        return sum(one.driver == driver for one in self.of_pods | self.others)


_BY_NODE: WeakKeyDictionary[PlacedPods, dict[str, _Attached | None]] = WeakKeyDictionary()
"""The volumes of nodes, by name, on which pods are placed."""


class AttachedVolumes:
    """The volumes of drivers that a pod needs attached to its node."""

    def __init__(
        self,
        pod: Mapping[str, Any],
        claims: Iterable[Claim],
        known: KnownVolumes,
        placed: PlacedPods,
    ) -> None:
        self._known, self._placed = known, placed
        namespace = namespace_of(pod)
        # Of all pods that are asked about, the nodes have the same volumes.
        self._by_node = _BY_NODE.setdefault(placed, {})
        found = {claim.name: self._volume(namespace, claim.name, claim.raw) for claim in claims}
        self._by_claim = {name: volume for name, volume in found.items() if volume is not None}
        volumes = as_objects(as_object(pod.get("spec")).get("volumes"))
        disks = [(as_text(one.get("name")), driver_volume(one)) for _, one in volumes]
        self._unreadable = [
            f"whether a node can have its volume {name}: kube-scheduler cannot read it"
            for name, one in disks
            if one and not one.handle
        ]
        of_older = {one for _, one in disks if one and one.handle}
        of_older |= {one for one, is_older in self._by_claim.values() if is_older}
        # Those that it names by an older kind count only where there is a CSINode.
        self._always = frozenset(one for one, is_older in self._by_claim.values() if not is_older)
        self._needed = self._always | of_older

    @property
    def are_any(self) -> bool:
        """Return whether nodes have to be asked because of them."""
        return bool(self._needed or self._unreadable)

    def of_claim(self, name: str) -> DriverVolume | None:
        """Return the volume of a claim; None if no driver attaches it."""
        found = self._by_claim.get(name)
        return found and found[0]

    def obstacles(
        self, node: Node, released: AbstractSet[DriverVolume | None] = frozenset()
    ) -> Iterator[VolumeObstacle]:
        """Yield the drivers that `node` lacks, or that attach no more volumes to it.

        `released` are volumes that pods have whose end has to be waited for.
        """
        csi_nodes = self._known.csi_nodes()
        if csi_nodes is None:
            return
        csi_node = csi_nodes.get(node.name)
        drivers, wanted = _drivers_of(csi_node), self._wanted_at(csi_node)
        for driver in wanted:
            if driver not in drivers and self._must_run(driver):
                yield VolumeObstacle(
                    _PLUGIN,
                    f"{driver} CSI driver is not installed on the node",
                    driver,
                    f"the driver {driver} of its volumes does not run there",
                    f"let {driver} run on these nodes",
                )
        for driver, needed in wanted.items():
            limit = _limit(drivers.get(driver))
            if limit is None or self._is_far_from(limit, node):
                continue
            attached = self._attached(node)
            if attached is None:
                continue
            attached = attached.without(released)
            new = len(self._new_volumes(driver, attached))
            there = attached.count(driver)
            # A volume that is not known may be one of those that the pod needs.
            unknown = attached.unknown
            if new > unknown and there + new - unknown > limit:
                missing_room = there + new - limit
                volumes = f"{missing_room} volume{'s'[missing_room == 1 :]}"
                yield VolumeObstacle(
                    _PLUGIN,
                    _TOO_MANY,
                    driver,
                    f"it needs {needed} volume{'s'[needed == 1 :]} of {driver}, of which "
                    f"{there} of at most {limit} are attached to a node",
                    f"wait until {volumes} of {driver} {'is' if missing_room == 1 else 'are'} "
                    "detached there, as pods with them end",
                )

    def doubts(self, node: Node) -> Iterator[str]:
        """Yield the unknown facts about a node that is not refused."""
        csi_nodes = self._known.csi_nodes()
        if csi_nodes is None:
            for driver in dict.fromkeys(one.driver for one in self._needed):
                yield f"how many volumes of {driver} a node can have: its CSINode says it"
            yield from self._unreadable
            return
        csi_node = csi_nodes.get(node.name)
        drivers, wanted = _drivers_of(csi_node), self._wanted_at(csi_node)
        if csi_node is not None:
            yield from self._unreadable
        # kube-scheduler reads the volumes that are there only if there is a limit.
        if wanted and any(_limit(one) is not None for one in drivers.values()):
            yield from self._unreadable_at(node)
        for driver in wanted:
            limit = _limit(drivers.get(driver))
            if limit is None or self._is_far_from(limit, node):
                continue
            attached = self._attached(node)
            if attached is None:
                yield f"how many volumes of {driver} are attached: VolumeAttachments say it"
                continue
            new = len(self._new_volumes(driver, attached))
            there = attached.count(driver)
            if new and there + new + attached.unknown > limit:
                yield f"how many volumes of {driver} the pods of {node.name} have"

    def _unreadable_at(self, node: Node) -> Iterator[str]:
        for one in sorted(self._placed.older_at.get(node.name, ())):
            if not one.handle:
                yield f"how many volumes of {one.driver} {node.name} has: one cannot be read"

    def _wanted_at(self, csi_node: Object | None) -> Counter[str]:
        """Return how many volumes of each driver kube-scheduler counts at a node."""
        counted = self._always if csi_node is None else self._needed
        return Counter(volume.driver for volume in counted)

    def _must_run(self, driver: str) -> bool:
        """Return whether a driver keeps pods from nodes where it does not run."""
        found = object_of(self._known.drivers(), driver) or {}
        return as_object(found.get("spec")).get("preventPodSchedulingIfMissing") is True

    def _new_volumes(self, driver: str, attached: _Attached) -> set[DriverVolume]:
        return {one for one in self._needed - attached.of_pods if one.driver == driver}

    def _is_far_from(self, limit: int, node: Node) -> bool:
        """Return whether `node` has room whatever its volumes are, which are then not read."""
        listed = self._known.attachments(node.name)
        if listed is None:
            return False
        claims = len(self._placed.claims_at.get(node.name, ()))
        older = len(self._placed.older_at.get(node.name, ()))
        others = claims + older + len(listed)
        return len(self._needed) + others <= limit

    def _attached(self, node: Node) -> _Attached | None:
        """Return the volumes that `node` has; None if its VolumeAttachments are not known."""
        if node.name not in self._by_node:
            listed = self._known.attachments(node.name)
            found = None if listed is None else self._count(node, listed)
            self._by_node[node.name] = found
        return self._by_node[node.name]

    def _count(self, node: Node, listed: Mapping[str, Object]) -> _Attached:
        of_pods = {one for one in self._placed.older_at.get(node.name, ()) if one.handle}
        others, unknown = set(), 0
        for namespace, name in self._placed.claims_at.get(node.name, ()):
            claims = self._known.claims(namespace)
            raw = object_of(claims, name)
            if raw is None:
                unknown += claims is None
                continue
            volume = self._volume(namespace, name, raw)
            if volume is not None:
                of_pods.add(volume[0])
            else:
                unknown += self._may_be_attached(raw)
        volumes = self._known.volumes()
        for raw in listed.values():
            spec = as_object(raw.get("spec"))
            name = as_text(as_object(spec.get("source")).get("persistentVolumeName"))
            volume_raw = object_of(volumes, name)
            unknown += volumes is None
            csi = as_object(as_object((volume_raw or {}).get("spec")).get("csi"))
            if csi and (driver := as_text(spec.get("attacher"))):
                others.add(DriverVolume(driver, as_text(csi.get("volumeHandle"))))
        return _Attached(frozenset(of_pods), frozenset(others), unknown)

    def _volume(self, namespace: str, name: str, raw: Object) -> tuple[DriverVolume, bool] | None:
        """Return the volume of a claim, and whether it is of an older kind.

        None if no driver attaches it, or it is not known.
        """
        volumes, bound = (
            self._known.volumes(),
            as_text(as_object(raw.get("spec")).get("volumeName")),
        )
        if bound and volumes is None:
            return None
        volume = object_of(volumes, bound)
        if volume is not None:
            spec = as_object(volume.get("spec"))
            csi, older = as_object(spec.get("csi")), driver_volume(spec, labels_of(volume))
            found = older or DriverVolume(
                as_text(csi.get("driver")), as_text(csi.get("volumeHandle"))
            )
            return (found, older is not None) if all(found) else None
        storage_class = object_of(self._known.classes(), class_of(raw)) or {}
        provisioner = as_text(storage_class.get("provisioner"))
        handle = f"of the claim {namespace}/{name}"
        if driver := DRIVER_BY_PLUGIN.get(provisioner):
            return DriverVolume(driver, handle), True
        if not provisioner or provisioner.startswith("kubernetes.io/"):
            return None
        return DriverVolume(provisioner, handle), False

    def _may_be_attached(self, raw: Object) -> bool:
        """Return whether a claim without a known volume may have one that a driver attaches."""
        name = as_text(as_object(raw.get("spec")).get("volumeName"))
        volumes, classes = self._known.volumes(), self._known.classes()
        if name and volumes is None:
            return True
        return object_of(volumes, name) is None and classes is None and bool(class_of(raw))


def _drivers_of(csi_node: Object | None) -> Mapping[str, Mapping[str, Any]]:
    spec = as_object((csi_node or {}).get("spec"))
    return {as_text(one.get("name")): one for _, one in as_objects(spec.get("drivers"))}


def _limit(driver: Mapping[str, Any] | None) -> int | None:
    count = as_object((driver or {}).get("allocatable")).get("count")
    return count if isinstance(count, int) else None

"""The number of volumes that a node can have: kube-scheduler's filter NodeVolumeLimits.

Source: Kubernetes, `pkg/scheduler/framework/plugins/nodevolumelimits/csi.go`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from cluster.source.objects import Object
from cluster.why.nodes import Node
from cluster.why.placed.disks import IN_TREE, drivers_of_disks
from cluster.why.placed.pods import PlacedPods, namespace_of
from cluster.why.volumes.known import (
    TRANSLATED_PROVISIONERS,
    Claim,
    KnownVolumes,
    VolumeObstacle,
    class_of,
    object_of,
)
from rules.base.json_values import as_object, as_objects, as_text

_PLUGIN = "NodeVolumeLimits"
_TOO_MANY = "node(s) exceed max volume count"


class _Volume(NamedTuple):
    """A volume that a driver attaches; `handle` tells it from its others.

    `is_translated`: its class names the driver by an older kind of volumes. kube-scheduler counts
    such a volume where there is a CSINode.
    """

    driver: str
    handle: str
    is_translated: bool = False


class _Attached(NamedTuple):
    """The volumes of a node; `unknown` is how many more of any driver it may have.

    `older` are those that its pods name by an older kind, by their driver: these may be the same.

    kube-scheduler counts a volume that is attached, and that no pod there has, once more for a pod
    that needs it.
    """

    of_pods: frozenset[_Volume]
    others: frozenset[_Volume]
    unknown: int
    older: Mapping[str, int]

    def without(self, released: frozenset[_Volume]) -> _Attached:
        """Return the others, once the pods with those that are `released` have ended."""
        return self._replace(of_pods=self.of_pods - released, others=self.others - released)

    def count(self, driver: str) -> int:
        """Return how many are of a driver."""
        return sum(one.driver == driver for one in self.of_pods | self.others)

    def more(self, driver: str) -> int:
        """Return how many more of a driver there may be."""
        return self.unknown + self.older.get(driver, 0)


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
        self._needed = frozenset(self._by_claim.values())
        spec = as_object(pod.get("spec"))
        counted = {*TRANSLATED_PROVISIONERS.values()}
        self._disks = [one for one in drivers_of_disks(spec) if one[1] in counted]

    @property
    def are_any(self) -> bool:
        """Return whether nodes have to be asked because of them."""
        return bool(self._needed or self._disks)

    def obstacles(self, node: Node, released: Iterable[str] = ()) -> Iterator[VolumeObstacle]:
        """Yield the drivers that `node` lacks, or that attach no more volumes to it.

        `released` are the claims whose pods have to end before.
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
            attached = attached.without(
                frozenset(self._by_claim[name] for name in released if name in self._by_claim)
            )
            new = len(self._new_volumes(driver, attached))
            there = attached.count(driver)
            # A volume that is not known may be one of those that the pod needs.
            more = attached.more(driver)
            if new > more and there + new - more > limit:
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
            yield from (_of_disk(name) for name, _ in self._disks)
            return
        csi_node = csi_nodes.get(node.name)
        drivers = _drivers_of(csi_node)
        for name, driver in self._disks if csi_node else ():
            if _limit(drivers.get(driver)) is not None or self._must_run(driver):
                yield _of_disk(name)
        for driver in self._wanted_at(csi_node):
            limit = _limit(drivers.get(driver))
            if limit is None or self._is_far_from(limit, node):
                continue
            attached = self._attached(node)
            if attached is None:
                yield f"how many volumes of {driver} are attached: VolumeAttachments say it"
                continue
            new = len(self._new_volumes(driver, attached))
            there = attached.count(driver)
            if new and there + new + attached.more(driver) > limit:
                yield f"how many volumes of {driver} the pods of {node.name} have"

    def _wanted_at(self, csi_node: Object | None) -> Counter[str]:
        """Return how many volumes of each driver kube-scheduler counts at a node."""
        has_one = csi_node is not None
        return Counter(v.driver for v in self._needed if has_one or not v.is_translated)

    def _must_run(self, driver: str) -> bool:
        """Return whether a driver keeps pods from nodes where it does not run."""
        found = object_of(self._known.drivers(), driver) or {}
        return as_object(found.get("spec")).get("preventPodSchedulingIfMissing") is True

    def _new_volumes(self, driver: str, attached: _Attached) -> set[_Volume]:
        return {one for one in self._needed - attached.of_pods if one.driver == driver}

    def _is_far_from(self, limit: int, node: Node) -> bool:
        """Return whether `node` has room whatever its volumes are, which are then not read."""
        listed = self._known.attachments(node.name)
        if listed is None:
            return False
        claims = len(self._placed.claims_at.get(node.name, ()))
        older = sum(self._placed.older_at.get(node.name, {}).values())
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
        of_pods, others, unknown = set(), set(), 0
        for namespace, name in self._placed.claims_at.get(node.name, ()):
            claims = self._known.claims(namespace)
            raw = object_of(claims, name)
            if raw is None:
                unknown += claims is None
                continue
            volume = self._volume(namespace, name, raw)
            if volume is not None:
                of_pods.add(volume)
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
                others.add(_Volume(driver, as_text(csi.get("volumeHandle"))))
        older: Mapping[str, int] = self._placed.older_at.get(node.name, {})
        return _Attached(frozenset(of_pods), frozenset(others), unknown, older)

    def _volume(self, namespace: str, name: str, raw: Object) -> _Volume | None:
        """Return the volume of a claim; None if no driver attaches it, or it is not known."""
        volumes, bound = (
            self._known.volumes(),
            as_text(as_object(raw.get("spec")).get("volumeName")),
        )
        if bound and volumes is None:
            return None
        volume = object_of(volumes, bound)
        if volume is not None:
            csi = as_object(as_object(volume.get("spec")).get("csi"))
            driver, handle = as_text(csi.get("driver")), as_text(csi.get("volumeHandle"))
            return _Volume(driver, handle) if driver and handle else None
        found = object_of(self._known.classes(), class_of(raw)) or {}
        provisioner, handle = as_text(found.get("provisioner")), f"of the claim {namespace}/{name}"
        if translated := TRANSLATED_PROVISIONERS.get(provisioner):
            return _Volume(translated, handle, is_translated=True)
        if not provisioner or provisioner.startswith("kubernetes.io/"):
            return None
        return _Volume(provisioner, handle)

    def _may_be_attached(self, raw: Object) -> bool:
        """Return whether a claim without a known volume may have one that a driver attaches."""
        name = as_text(as_object(raw.get("spec")).get("volumeName"))
        volumes, classes = self._known.volumes(), self._known.classes()
        if name and volumes is None:
            return True
        volume = object_of(volumes, name)
        if volume is not None:
            return any(field in as_object(volume.get("spec")) for field in IN_TREE)
        return classes is None and bool(class_of(raw))


def _of_disk(name: str) -> str:
    return f"how many volumes such as {name} a node can have"


def _drivers_of(csi_node: Object | None) -> Mapping[str, Mapping[str, Any]]:
    spec = as_object((csi_node or {}).get("spec"))
    return {as_text(one.get("name")): one for _, one in as_objects(spec.get("drivers"))}


def _limit(driver: Mapping[str, Any] | None) -> int | None:
    count = as_object((driver or {}).get("allocatable")).get("count")
    return count if isinstance(count, int) else None

"""The persistent volumes and disks of a pod, and the nodes that can use them.

It covers kube-scheduler's filters VolumeRestrictions, NodeVolumeLimits, VolumeBinding and
VolumeZone. Source: Kubernetes, `pkg/scheduler/framework/plugins`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cluster.source.objects import Object
from cluster.why.hurdles import Hurdle
from cluster.why.nodes import Node
from cluster.why.placed.disks import Disk, disks_of
from cluster.why.placed.label_selectors import labels_of
from cluster.why.placed.pods import Nominated, PlacedPods, namespace_of
from cluster.why.volumes.attached import AttachedVolumes
from cluster.why.volumes.binding import FreeClaims, unmet_affinity
from cluster.why.volumes.known import (
    Claim,
    KnownVolumes,
    VolumeObstacle,
    annotations_of,
    claims_of,
    object_of,
)
from cluster.why.volumes.older_volumes import (
    BETA_REGION,
    BETA_ZONE,
    REGION,
    ZONE,
    TranslatedVolume,
    driver_volume,
    translated,
)
from reports.formats import some
from rules.base.json_values import as_object, as_objects, as_text, as_texts

_BOUND = "pv.kubernetes.io/bind-completed"
_STABLE = {BETA_ZONE: ZONE, BETA_REGION: REGION}
_PLACES = (BETA_ZONE, ZONE, BETA_REGION, REGION)
_IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already "
    "in-use by another pod"
)
_CONFLICT = "node(s) had no available disk"
_FAR = "node(s) didn't match PersistentVolume's node affinity"
_NO_ZONE = "node(s) had no available volume zone"


class Volumes:
    """The claims and disks of a pod, and what they say about nodes.

    - `hurdles`: what keeps it from all nodes.
    - `unknown`: what would have to be known for all nodes.
    """

    def __init__(
        self, pod: Mapping[str, Any], known: KnownVolumes, placed: PlacedPods, *, exists: bool
    ) -> None:
        self._made_of = pod, known, exists
        self._known, self._placed = known, placed
        self.hurdles: list[Hurdle] = []
        self.unknown: list[str] = []
        self._exclusive: list[tuple[str, tuple[str, ...]]] = []
        self._bound: list[tuple[str, Object, TranslatedVolume | None]] = []
        self._in_zones: list[tuple[str, Object]] = []
        spec = as_object(pod.get("spec"))
        self._disks = [*disks_of(spec)]
        free: list[Claim] = []
        claims: list[Claim] = []
        namespace = namespace_of(pod)
        for name, template in claims_of(pod):
            raw = self._find_claim(namespace, name, template, exists=exists)
            if raw is None:
                continue
            claim = Claim(name, raw, is_ephemeral=template is not None)
            claims.append(claim)
            if claim.is_ephemeral and exists and not _is_made_for(raw, pod):
                self._refuse(
                    f"the claim {name} was not made for it, and its own needs this name",
                    "delete that claim, or give the pod, or its volume, another name",
                )
                continue
            if not claim.is_ephemeral and "ReadWriteOncePod" in as_texts(
                claim.spec.get("accessModes")
            ):
                self._exclusive.append((name, placed.users_of(namespace, name)))
            if self._is_free(claim):
                free.append(claim)
        self._free = FreeClaims(free, namespace, known)
        self._attached = AttachedVolumes(pod, claims, known, placed)
        self._are_any_free = bool(free)

    @property
    def are_any(self) -> bool:
        """Return whether nodes have to be asked because of them."""
        own = self._exclusive or self._bound or self._disks or self._are_any_free
        return bool(own) or self._attached.are_any

    @property
    def is_for_one_pod(self) -> bool:
        """Return whether only one pod at a time can have them."""
        return bool(self._exclusive)

    def beside(self, ahead: Iterable[Nominated], placed: PlacedPods) -> Volumes:
        """Return the volumes beside pods that are nominated, and counted in `placed`.

        kube-scheduler looks for their claims, by name alone, only if the pod names disks itself.
        """
        pod, known, exists = self._made_of
        made = Volumes(pod, known, placed, exists=exists)
        made._exclusive = self._exclusive
        if self._disks:
            names = [(one.name, [name for name, _ in claims_of(one.pod)]) for one in ahead]
            made._exclusive = [
                (claim, (*users, *(name for name, claims in names if claim in claims)))
                for claim, users in self._exclusive
            ]
        return made

    def obstacles(self, node: Node) -> Iterator[tuple[VolumeObstacle, ...]]:
        """Yield the obstacles of each filter that refuses `node`.

        kube-scheduler names the first, and those with it that it finds at once.
        """
        in_use_disks = [*self._disks_in_use(node)]
        if in_use_disks:
            yield tuple(_disk_in_use(disk, pod) for disk, pod in in_use_disks)
        in_use = [one for one in self._exclusive if one[1]]
        if in_use:
            yield tuple(map(_in_use, in_use))
        released = {disk.volume for disk, _ in in_use_disks}
        released |= {self._attached.of_claim(name) for name, _ in in_use}
        yield from ((one,) for one in self._attached.obstacles(node, released))
        unbound = [*self._free.obstacles(node)]
        if found := (*self._far(node), *unbound[:1]):
            yield found
        yield from ((one,) for one in unbound[1:])
        if found := tuple(self._in_other_zones(node)):
            yield found

    def doubts(self, node: Node) -> Iterator[str]:
        """Yield the unknown facts about a node that takes the pod."""
        for name, forms in self._forms_at(node):
            if any(unmet_affinity(form, node) for form in forms):
                yield f"where the volume {name} can be used: the CSINode of {node.name} says it"
        yield from self._attached.doubts(node)
        yield from self._free.doubts(node)

    def _find_claim(
        self, namespace: str, name: str, template: Object | None, *, exists: bool
    ) -> Object | None:
        known = self._known.claims(namespace)
        found = object_of(known, name)
        if found is None and template is not None and not exists:
            return {"spec": template}
        if found is None and (known is None or not exists):
            self.unknown.append(f"where the volume of its claim {name} is")
        elif found is None and template is not None:
            self._refuse(
                f"its claim {name} is not made from its template yet",
                "wait: a controller makes it, or an event at the pod says why it cannot",
            )
        elif found is None:
            self._refuse(
                f"the PersistentVolumeClaim {name} does not exist",
                "create it, or correct its name in the pod",
            )
        return found

    def _is_free(self, claim: Claim) -> bool:
        """Return whether a claim gets its volume where its pod runs.

        It says what is in the way of one that does not, and keeps the volume of one that has it.
        """
        name, raw = claim.name, claim.raw
        status, volume = as_object(raw.get("status")), as_text(claim.spec.get("volumeName"))
        if status.get("phase") == "Lost":
            self._refuse(f"the claim {name} has lost its volume {volume}", "make a new claim")
        elif as_object(raw.get("metadata")).get("deletionTimestamp"):
            self._refuse(f"the claim {name} is being deleted", "make a new claim")
        elif volume and _BOUND in annotations_of(raw):
            self._bind(claim, volume)
        elif volume or not self._waits_for_a_pod(claim):
            self._refuse(
                f"the claim {name} has no volume yet, and does not wait for a pod to get one",
                "look at the claim: what provisions volumes of its storage class says why",
            )
        else:
            return True
        return False

    def _bind(self, claim: Claim, volume: str) -> None:
        volumes = self._known.volumes()
        found = object_of(volumes, volume)
        if found is None and volumes is not None:
            what = f"the volume {volume} of the claim {claim.name} does not exist"
            self._refuse(what, "make a new claim")
        elif found is None:
            self.unknown.append(f"where the volume {volume} is")
        else:
            served = driver_volume(as_object(found.get("spec")), labels_of(found))
            if served and not served.handle:
                self.unknown.append(f"where the volume {volume} is: kube-scheduler cannot read it")
            self._bound.append((volume, found, translated(found)))
            if not claim.is_ephemeral:  # VolumeZone does not look at the others
                self._in_zones.append((volume, found))

    def _refuse(self, what: str, remedy: str) -> None:
        self.hurdles.append(Hurdle(what, remedy))

    def _waits_for_a_pod(self, claim: Claim) -> bool:
        """Return whether its volume is made where its pod is; also if that is not known."""
        if not claim.storage_class:
            return False
        classes = self._known.classes()
        found = object_of(classes, claim.storage_class)
        if found is None:
            return classes is None
        return found.get("volumeBindingMode") == "WaitForFirstConsumer"

    def _disks_in_use(self, node: Node) -> Iterator[tuple[Disk, str]]:
        """Yield the disks that are in use at `node`, each with a pod that uses it."""
        in_use = self._placed.disks.get(node.name)
        if in_use is not None:
            yield from ((disk, pod) for disk in self._disks if (pod := in_use.pod_beside(disk)))

    def _far(self, node: Node) -> Iterator[VolumeObstacle]:
        for name, forms in self._forms_at(node):
            unmet = [unmet_affinity(form, node) for form in forms]
            if all(unmet):
                yield _elsewhere("VolumeBinding", _FAR, name, unmet[0])

    def _forms_at(self, node: Node) -> Iterator[tuple[str, list[Object]]]:
        """Yield the bound volumes as kube-scheduler sees them: two forms if it is not known how."""
        for name, raw, older in self._bound:
            if older is None:
                yield name, [raw]
            elif (csi_nodes := self._known.csi_nodes()) is None:
                yield name, [raw, older.raw]
            else:
                yield name, [older.raw if older.is_seen_at(csi_nodes.get(node.name)) else raw]

    def _in_other_zones(self, node: Node) -> Iterator[VolumeObstacle]:
        for name, volume in self._in_zones:
            if wanted := _other_zone(volume, node):
                yield _elsewhere("VolumeZone", _NO_ZONE, name, wanted)


def _is_made_for(claim: Object, pod: Mapping[str, Any]) -> bool:
    """Return whether a claim for an ephemeral volume is that of `pod`, as far as UIDs are known."""
    own = as_text(as_object(pod.get("metadata")).get("uid"))
    owners = as_objects(as_object(claim.get("metadata")).get("ownerReferences"))
    return not own or any(o.get("controller") is True and o.get("uid") == own for _, o in owners)


def _disk_in_use(disk: Disk, pod: str) -> VolumeObstacle:
    return VolumeObstacle(
        "VolumeRestrictions",
        _CONFLICT,
        disk.name,
        f"the disk {disk.name} is in use there, as by {pod}",
        f"wait until the pods there that use the disk {disk.name} end",
        pod,
    )


def _in_use(exclusive: tuple[str, tuple[str, ...]]) -> VolumeObstacle:
    name, pods = exclusive
    return VolumeObstacle(
        "VolumeRestrictions",
        _IN_USE,
        name,
        f"only one pod at a time can have its claim {name}, and {some(pods)} has it",
        f"wait until {some(pods)} ends, or use a claim of its own",
        pods[0],
    )


def _elsewhere(plugin: str, message: str, name: str, wanted: str) -> VolumeObstacle:
    return VolumeObstacle(
        plugin,
        message,
        name,
        f"its volume {name} can only be used where {wanted}",
        "let it run where the volume is, or make a volume where it can run",
    )


def _other_zone(volume: Object, node: Node) -> str:
    """The label by which a volume is in another zone or region than `node`; empty if it is not."""
    if not any(key in node.labels for key in _PLACES):
        return ""
    labels = labels_of(volume)
    for key in _PLACES:
        if key in labels:
            own = node.labels.get(key, node.labels.get(_STABLE.get(key, key)))
            zones = labels[key].split("__")
            if "" not in zones and own not in zones:
                return f"{key}={labels[key]}"
    return ""

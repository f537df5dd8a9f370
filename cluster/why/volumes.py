"""The persistent volumes of a pod, and the nodes that can use them.

It covers kube-scheduler's filters VolumeRestrictions (of claims), VolumeBinding and VolumeZone; not
how many volumes a node can have. Source: Kubernetes, `pkg/scheduler/framework/plugins`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from cluster.source.objects import Object
from cluster.why.hurdles import Hurdle
from cluster.why.node_affinity import NodeAffinity
from cluster.why.nodes import Node
from cluster.why.placed.label_selectors import labels_of
from cluster.why.placed.pods import PlacedPods, namespace_of
from rules.base.json_values import as_object, as_objects, as_text

_BOUND = "pv.kubernetes.io/bind-completed"
_SELECTED = "volume.kubernetes.io/selected-node"
_CLASS = "volume.beta.kubernetes.io/storage-class"
_NO_PROVISIONER = "kubernetes.io/no-provisioner"
_ZONES = ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone")
_REGIONS = ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region")
_STABLE = {_ZONES[0]: _ZONES[1], _REGIONS[0]: _REGIONS[1]}
# Their volumes are those of CSI drivers by now, which name zones by other labels.
_IN_TREE = ("awsElasticBlockStore", "azureDisk", "cinder", "gcePersistentDisk", "vsphereVolume")

Known: TypeAlias = Mapping[str, Object] | None
"""Objects by name; None if it is not known which there are."""


def _unknown(_: str = "") -> Known:
    return None


class KnownVolumes(NamedTuple):
    """Functions that return what a cluster has; that for claims takes a namespace."""

    claims: Callable[[str], Known] = _unknown
    volumes: Callable[[], Known] = _unknown
    classes: Callable[[], Known] = _unknown
    drivers: Callable[[], Known] = _unknown


class VolumeObstacle(NamedTuple):
    """The reason against a node: the filter, its message, the volume or claim, and its pod.

    `wanted` is what the node lacks.
    """

    plugin: str
    message: str
    subject: str
    wanted: str = ""
    pod: str = ""


class _Claim(NamedTuple):
    name: str
    raw: Object

    @property
    def storage_class(self) -> str:
        spec = as_object(self.raw.get("spec"))
        return _annotations(self.raw).get(_CLASS) or as_text(spec.get("storageClassName"))


class Volumes:
    """The claims of a pod, and what they say about nodes.

    - `hurdles`: what keeps it from all nodes.
    - `unknown`: what would have to be known for all nodes.
    """

    def __init__(
        self, pod: Mapping[str, Any], known: KnownVolumes, placed: PlacedPods, *, exists: bool
    ) -> None:
        self._known = known
        self.hurdles: list[Hurdle] = []
        self.unknown: list[str] = []
        self._exclusive: list[tuple[str, str]] = []
        self._bound: list[tuple[str, Object]] = []
        self._free: list[_Claim] = []
        namespace = namespace_of(pod)
        for name, template in _claims_of(pod):
            raw = self._find_claim(namespace, name, template, exists=exists)
            if raw is None:
                continue
            modes = as_object(raw.get("spec")).get("accessModes")
            if "ReadWriteOncePod" in _texts(modes):
                self._exclusive.append((name, placed.claims.get((namespace, name), "")))
            self._sort(_Claim(name, raw))

    @property
    def are_any(self) -> bool:
        """Return whether nodes have to be asked because of them."""
        return bool(self._exclusive or self._bound or self._free)

    @property
    def is_for_one_pod(self) -> bool:
        """Return whether only one pod at a time can have them."""
        return bool(self._exclusive)

    def obstacles(self, node: Node) -> Iterator[tuple[VolumeObstacle, ...]]:
        """Yield the obstacle of each filter that refuses `node`."""
        for name, user in self._exclusive:
            if user:
                yield (VolumeObstacle("VolumeRestrictions", _IN_USE, name, pod=user),)
                break
        if found := (*self._far(node), *self._unbindable(node)):
            yield found
        for name, volume in self._bound:
            if wanted := _other_zone(volume, node):
                yield (VolumeObstacle("VolumeZone", _NO_ZONE, name, wanted),)
                return

    def doubts(self, node: Node) -> Iterator[str]:
        """Yield the unknown facts about a node that takes the pod."""
        for claim in self._free:
            found = _of(self._known.classes(), claim.storage_class)
            drivers = self._known.drivers()
            if found is None or drivers is None:
                yield f"where a volume for the claim {claim.name} can be"
            elif not _is_provisioned(found, node):
                yield f"whether a free volume of the class {claim.storage_class} suits {claim.name}"
            else:
                driver = as_object(drivers.get(as_text(found.get("provisioner")), {}).get("spec"))
                if driver.get("storageCapacity") is True:
                    yield f"whether there is space for a volume of the claim {claim.name}"

    def _find_claim(
        self, namespace: str, name: str, template: Object | None, *, exists: bool
    ) -> Object | None:
        known = self._known.claims(namespace)
        found = _of(known, name)
        if found is None and template is not None and not exists:
            return {"spec": template}
        if found is None and (known is None or not exists):
            self.unknown.append(f"where the volume of its claim {name} is")
        elif found is None:
            self.hurdles.append(
                Hurdle(
                    f"the PersistentVolumeClaim {name} does not exist",
                    "create it, or correct its name in the pod",
                )
            )
        return found

    def _sort(self, claim: _Claim) -> None:
        """Say what is in the way of a claim, or keep it for the nodes."""
        name, raw = claim
        spec, status = as_object(raw.get("spec")), as_object(raw.get("status"))
        volume = as_text(spec.get("volumeName"))
        if status.get("phase") == "Lost":
            self._refuse(f"the claim {name} has lost its volume {volume}", "make a new claim")
        elif as_object(raw.get("metadata")).get("deletionTimestamp"):
            self._refuse(f"the claim {name} is being deleted", "make a new claim")
        elif volume and _BOUND in _annotations(raw):
            found = _of(self._known.volumes(), volume)
            if found is None or any(field in as_object(found.get("spec")) for field in _IN_TREE):
                self.unknown.append(f"where the volume {volume} is")
            else:
                self._bound.append((volume, found))
        elif volume or not self._waits_for_a_pod(claim):
            self._refuse(
                f"the claim {name} has no volume yet, and does not wait for a pod to get one",
                "look at the claim: what provisions volumes of its storage class says why",
            )
        else:
            self._free.append(claim)

    def _refuse(self, what: str, remedy: str) -> None:
        self.hurdles.append(Hurdle(what, remedy))

    def _waits_for_a_pod(self, claim: _Claim) -> bool:
        """Return whether its volume is made where its pod is; also if that is not known."""
        if not claim.storage_class:
            return False
        found = _of(self._known.classes(), claim.storage_class)
        return found is None or found.get("volumeBindingMode") == "WaitForFirstConsumer"

    def _far(self, node: Node) -> Iterator[VolumeObstacle]:
        for name, volume in self._bound:
            required = as_object(as_object(volume.get("spec")).get("nodeAffinity")).get("required")
            terms = {"requiredDuringSchedulingIgnoredDuringExecution": required}
            unmet = NodeAffinity({"affinity": {"nodeAffinity": terms}}).unmet(node)
            if unmet:
                yield VolumeObstacle("VolumeBinding", _FAR, name, unmet)
                return

    def _unbindable(self, node: Node) -> Iterator[VolumeObstacle]:
        """Claims for which no volume is free, and none can be made at `node`."""
        for claim in self._free:
            selected = _annotations(claim.raw).get(_SELECTED)
            found = _of(self._known.classes(), claim.storage_class)
            is_elsewhere = bool(selected) and selected != node.name
            if is_elsewhere or (found is not None and self._has_no_volume(claim, found, node)):
                yield VolumeObstacle("VolumeBinding", _NONE_FREE, claim.name)
                return

    def _has_no_volume(self, claim: _Claim, found: Object, node: Node) -> bool:
        volumes = self._known.volumes()
        if volumes is None or _is_provisioned(found, node):
            return False
        return not any(map(partial(_is_free, claim), volumes.values()))


_IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already "
    "in-use by another pod"
)
_FAR = "node(s) didn't match PersistentVolume's node affinity"
_NONE_FREE = "node(s) didn't find available persistent volumes to bind"
_NO_ZONE = "node(s) had no available volume zone"


def _claims_of(pod: Mapping[str, Any]) -> Iterator[tuple[str, Object | None]]:
    """The claims of a pod by name, with the spec of those that are made for it."""
    metadata, spec = as_object(pod.get("metadata")), as_object(pod.get("spec"))
    for _, volume in as_objects(spec.get("volumes")):
        if claim := as_object(volume.get("persistentVolumeClaim")):
            yield as_text(claim.get("claimName")), None
        elif ephemeral := as_object(volume.get("ephemeral")):
            template = as_object(ephemeral.get("volumeClaimTemplate"))
            name = f"{as_text(metadata.get('name'))}-{as_text(volume.get('name'))}"
            yield name, dict(as_object(template.get("spec")))


def _of(known: Known, name: str) -> Object | None:
    return None if known is None else known.get(name)


def _annotations(raw: Object) -> Mapping[str, str]:
    return as_object(as_object(raw.get("metadata")).get("annotations"))


def _is_provisioned(storage_class: Object, node: Node) -> bool:
    """Return whether volumes of a class are made for nodes such as `node`."""
    if storage_class.get("provisioner") in {None, "", _NO_PROVISIONER}:
        return False
    terms = [term for _, term in as_objects(storage_class.get("allowedTopologies"))]
    return not terms or any(_allows(term, node) for term in terms)


def _allows(term: Mapping[str, Any], node: Node) -> bool:
    expressions = [one for _, one in as_objects(term.get("matchLabelExpressions"))]
    return bool(expressions) and all(
        node.labels.get(as_text(one.get("key"))) in _texts(one.get("values")) for one in expressions
    )


def _is_free(claim: _Claim, volume: Object) -> bool:
    """Return whether a volume has the class of a claim, and is bound to no other."""
    spec = as_object(volume.get("spec"))
    bound_to = as_text(as_object(spec.get("claimRef")).get("name"))
    name = _annotations(volume).get(_CLASS) or as_text(spec.get("storageClassName"))
    return name == claim.storage_class and bound_to in {"", claim.name}


def _other_zone(volume: Object, node: Node) -> str:
    """The label by which a volume is in another zone or region than `node`; empty if it is not."""
    if not any(key in node.labels for key in (*_ZONES, *_REGIONS)):
        return ""
    labels = labels_of(volume)
    for key in (*_ZONES, *_REGIONS):
        if key in labels:
            own = node.labels.get(key, node.labels.get(_STABLE.get(key, key)))
            if own not in labels[key].split("__"):
                return f"{key}={labels[key]}"
    return ""


def _texts(value: object) -> list[str]:
    return [*map(as_text, value)] if isinstance(value, list) else []

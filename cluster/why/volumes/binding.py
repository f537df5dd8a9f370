"""The volumes that claims without one can get on a node: kube-scheduler's filter VolumeBinding.

Source: Kubernetes, `pkg/scheduler/framework/plugins/volumebinding/binder.go` and
`staging/src/k8s.io/component-helpers/storage/volume/pv_helpers.go`, FindMatchingVolume.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cluster.accounting.pod_requests import amount_of
from cluster.source.objects import Object
from cluster.why.node_affinity import NodeAffinity
from cluster.why.nodes import Node
from cluster.why.placed.label_selectors import LabelSelector, labels_of
from cluster.why.volumes.known import (
    Claim,
    KnownVolumes,
    VolumeObstacle,
    annotations_of,
    class_of,
    object_of,
)
from rules.base.json_values import as_object, as_objects, as_text, as_texts

_SELECTED = "volume.kubernetes.io/selected-node"
_NO_PROVISIONER = "kubernetes.io/no-provisioner"
_NONE_FREE = "node(s) didn't find available persistent volumes to bind"
_NO_SPACE = "node(s) did not have enough free storage"
_PLUGIN = "VolumeBinding"


class FreeClaims:
    """The claims of a pod in `namespace` that get their volumes where the pod runs."""

    def __init__(self, claims: Sequence[Claim], namespace: str, known: KnownVolumes) -> None:
        # One that a pod names twice counts twice, as in kube-scheduler.
        self._claims = [*claims]
        self._namespace, self._known = namespace, known
        self._candidates: dict[str, list[tuple[str, Object, bool]]] = {}
        self._affinities: dict[str, NodeAffinity] = {}
        self._most: dict[tuple[str, str], int] = {}

    def obstacles(self, node: Node) -> Iterator[VolumeObstacle]:
        """Yield the claims for which no volume is free, and none can be made at `node`.

        kube-scheduler names the first.
        """
        elsewhere = [one for one in self._claims if _selected(one) not in {"", node.name}]
        if elsewhere:
            yield from (_chosen(claim, node) for claim in elsewhere)
            yield from self._choosing_again(elsewhere).obstacles(node)
            return
        stuck = []
        unmatched = self._without_volume(node)
        named = Counter(one.name for one in self._claims)
        named.subtract(one.name for one in unmatched)
        for claim in unmatched:
            found = object_of(self._known.classes(), claim.storage_class)
            if found is None:
                continue
            if _is_provisioned(found, node):
                if self._has_space(claim, found, node) is False:
                    yield _no_space(claim, as_text(found.get("provisioner")))
            elif _selected(claim):
                # No volume that is there already is looked at.
                stuck.append(claim)
                yield _chosen(claim, node)
            elif self._known.volumes() is not None:
                yield _named_again(claim) if named[claim.name] else _no_volume(claim)
                named[claim.name] += 1
        if stuck:
            names = {claim.name for claim in stuck}
            found_again = self._choosing_again(stuck).obstacles(node)
            yield from (one for one in found_again if one.subject in names)

    def _choosing_again(self, stuck: Sequence[Claim]) -> FreeClaims:
        """Return the claims as they are once no node is chosen for those that are stuck."""
        names = {claim.name for claim in stuck}
        again = [_not_selected(one) if one.name in names else one for one in self._claims]
        made = FreeClaims(again, self._namespace, self._known)
        # Which volumes suit a claim does not depend on the node that was chosen.
        made._candidates, made._affinities = self._candidates, self._affinities
        made._most = self._most
        return made

    def doubts(self, node: Node) -> Iterator[str]:
        """Yield the unknown facts about a node that is not refused."""
        for claim in self._without_volume(node):
            found = object_of(self._known.classes(), claim.storage_class)
            if found is None:
                yield f"where a volume for the claim {claim.name} can be"
            elif not _is_provisioned(found, node):
                yield f"whether a free volume of the class {claim.storage_class} suits {claim.name}"
            elif self._has_space(claim, found, node) is None:
                yield f"whether there is space for a volume of the claim {claim.name}"

    def _without_volume(self, node: Node) -> list[Claim]:
        """The claims for which no volume that is there suits `node`: one has to be made."""
        selected = [claim for claim in self._claims if _selected(claim)]
        others = (claim for claim in self._claims if not _selected(claim))
        unmatched = []
        given: set[str] = set()
        # The smallest first, so that it gets the smallest volume.
        for claim in sorted(others, key=lambda one: _size(one.raw)):
            found = self._matching(claim, given, node)
            given.add(found)
            if not found:
                unmatched.append(claim)
        return [*selected, *unmatched]

    def _matching(self, claim: Claim, given: set[str], node: Node) -> str:
        """Return the smallest volume that suits a claim at `node`; empty if there is none."""
        for name, volume, is_its_own in self._candidates_of(claim):
            if name in given:
                continue
            if name not in self._affinities:
                self._affinities[name] = _affinity_of(volume)
            is_here = not self._affinities[name].unmet(node)
            if is_here or is_its_own:
                return name if is_here else ""
        return ""

    def _candidates_of(self, claim: Claim) -> list[tuple[str, Object, bool]]:
        """Return the volumes that suit a claim, wherever they are, and whether they are its own.

        Its own come first, then the smallest.
        """
        if claim.name not in self._candidates:
            found = []
            for name, volume in (self._known.volumes() or {}).items():
                if class_of(volume) == claim.storage_class and _has_what_is_asked(volume, claim):
                    is_its_own = self._is_its_own(volume, claim)
                    if is_its_own or (is_its_own is False and _is_available(volume, claim)):
                        found.append((name, volume, is_its_own))
            own = [one for one in found if one[2]]
            others = [one for one in found if not one[2]]
            others.sort(key=lambda one: (_size_of_volume(one[1]), one[0]))
            found = [*own, *others]
            self._candidates[claim.name] = found
        return self._candidates[claim.name]

    def _is_its_own(self, volume: Object, claim: Claim) -> bool | None:
        """Return whether a volume is meant for the claim; None if it is meant for another."""
        of = as_object(as_object(volume.get("spec")).get("claimRef"))
        if not of:
            return False
        uid = as_text(of.get("uid"))
        own = as_text(as_object(claim.raw.get("metadata")).get("uid"))
        is_same = as_text(of.get("name")) == claim.name and uid in {"", own}
        return True if is_same and as_text(of.get("namespace")) == self._namespace else None

    def _has_space(self, claim: Claim, found: Object, node: Node) -> bool | None:
        """Return whether a driver has space for the volume of a claim; None if it is not known."""
        drivers, size = self._known.drivers(), _size(claim.raw)
        if not size:
            return True
        if drivers is None:
            return None
        driver = as_object(drivers.get(as_text(found.get("provisioner")), {}).get("spec"))
        if driver.get("storageCapacity") is not True:
            return True
        capacities = self._known.capacities()
        if capacities is None:
            return None
        key = claim.storage_class, node.name
        if key not in self._most:
            limits = (
                _limit(one)
                for one in capacities.values()
                if one.get("storageClassName") == claim.storage_class
                and LabelSelector(one.get("nodeTopology")).matches(node.labels)
            )
            self._most[key] = max(limits, default=0)
        return self._most[key] >= size


def unmet_affinity(volume: Object, node: Node) -> str:
    """Return the label that `node` lacks to use a volume, such as `zone=a`; empty if it can."""
    return _affinity_of(volume).unmet(node)


def _affinity_of(volume: Object) -> NodeAffinity:
    required = as_object(as_object(volume.get("spec")).get("nodeAffinity")).get("required")
    terms = {"requiredDuringSchedulingIgnoredDuringExecution": required}
    return NodeAffinity({"affinity": {"nodeAffinity": terms}})


def _selected(claim: Claim) -> str:
    return annotations_of(claim.raw).get(_SELECTED, "")


def _not_selected(claim: Claim) -> Claim:
    metadata = as_object(claim.raw.get("metadata"))
    annotations = {k: v for k, v in annotations_of(claim.raw).items() if k != _SELECTED}
    return claim._replace(raw={**claim.raw, "metadata": {**metadata, "annotations": annotations}})


def _chosen(claim: Claim, node: Node) -> VolumeObstacle:
    chosen = _selected(claim)
    missing = ", where none can be made" if chosen == node.name else ""
    return VolumeObstacle(
        _PLUGIN,
        _NONE_FREE,
        claim.name,
        f"kube-scheduler has chosen the node {chosen} for the volume of its claim {claim.name}"
        f"{missing}",
        f"wait for the volume, or choose again: kubectl annotate pvc {claim.name} {_SELECTED}-",
    )


def _no_volume(claim: Claim) -> VolumeObstacle:
    return VolumeObstacle(
        _PLUGIN,
        _NONE_FREE,
        claim.name,
        f"no volume is free for its claim {claim.name}, and none can be made there",
        f"make a volume of the class {claim.storage_class} for these nodes, or use another storage "
        "class",
    )


def _named_again(claim: Claim) -> VolumeObstacle:
    return VolumeObstacle(
        _PLUGIN,
        _NONE_FREE,
        claim.name,
        f"several volumes of it are of its claim {claim.name}, and kube-scheduler looks for one "
        "volume for each",
        f"let one volume of the pod be of the claim {claim.name}, and mount it several times",
    )


def _no_space(claim: Claim, driver: str) -> VolumeObstacle:
    return VolumeObstacle(
        _PLUGIN,
        _NO_SPACE,
        claim.name,
        f"{driver} has too little space there for the volume of its claim {claim.name}",
        f"make space for the claim {claim.name}, or let it ask for less",
    )


def _is_provisioned(storage_class: Object, node: Node) -> bool:
    """Return whether volumes of a class are made for nodes such as `node`."""
    if as_text(storage_class.get("provisioner")) in {"", _NO_PROVISIONER}:
        return False
    terms = [term for _, term in as_objects(storage_class.get("allowedTopologies"))]
    return not terms or any(_allows(term, node) for term in terms)


def _allows(term: Mapping[str, Any], node: Node) -> bool:
    expressions = [one for _, one in as_objects(term.get("matchLabelExpressions"))]
    return bool(expressions) and all(
        node.labels.get(as_text(one.get("key"))) in as_texts(one.get("values"))
        for one in expressions
    )


def _has_what_is_asked(volume: Object, claim: Claim) -> bool:
    """Return whether a volume is large enough for a claim, of its kind, and not being deleted."""
    spec, asked = as_object(volume.get("spec")), claim.spec
    return (
        _size_of_volume(volume) >= _size(claim.raw)
        and (spec.get("volumeMode") or "Filesystem") == (asked.get("volumeMode") or "Filesystem")
        and as_text(spec.get("volumeAttributesClassName"))
        == as_text(asked.get("volumeAttributesClassName"))
        and not as_object(volume.get("metadata")).get("deletionTimestamp")
    )


def _is_available(volume: Object, claim: Claim) -> bool:
    """Return whether a volume that is meant for no claim suits this one."""
    selector = claim.spec.get("selector")
    modes = as_texts(as_object(volume.get("spec")).get("accessModes"))
    return (
        as_object(volume.get("status")).get("phase") == "Available"
        and (selector is None or LabelSelector(selector).matches(labels_of(volume)))
        and all(mode in modes for mode in as_texts(claim.spec.get("accessModes")))
    )


def _size(claim: Object) -> int:
    asked = as_object(as_object(claim.get("spec")).get("resources")).get("requests")
    return amount_of(as_object(asked).get("storage"))


def _size_of_volume(volume: Object) -> int:
    return amount_of(as_object(as_object(volume.get("spec")).get("capacity")).get("storage"))


def _limit(capacity: Object) -> int:
    most = capacity.get("maximumVolumeSize")
    return amount_of(capacity.get("capacity") if most is None else most)

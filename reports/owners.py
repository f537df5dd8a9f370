"""Report the same fault of many pods once, under the object that they belong to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from reports.findings import LocatedFinding
from rules.base.json_values import as_object, as_objects, as_text
from rules.objects.object_ref import ObjectRef, group_of, object_ref

# As Kubernetes does by itself, Deployment to ReplicaSet to Pod; and as controllers on top of it do.
_MAX_OWNER_LEVELS = 10
_MAX_NAME_CHARACTERS = (
    253  # characters; API servers accept longer names of owners, but of no object
)
_POD_TEMPLATE_HASH_LABEL = "pod-template-hash"


class Owners:
    """The controllers of objects, by `metadata.ownerReferences` of the objects that were read."""

    def __init__(self) -> None:
        self._controllers: dict[ObjectRef, ObjectRef] = {}
        # Of ReplicaSets that are not in the input, by the label that Deployments give their pods
        self._presumed: dict[ObjectRef, ObjectRef] = {}

    def update(self, others: Owners) -> None:
        """Add what `others` knows, which was read later."""
        self._controllers.update(others._controllers)
        self._presumed.update(others._presumed)

    def add(self, raw: Mapping[str, Any], namespace: str | None) -> None:
        """Record the controller of an object; `namespace` is where it goes if it names none."""
        metadata = as_object(raw.get("metadata"))
        references = as_objects(metadata.get("ownerReferences"))
        if not references:
            return
        ref = object_ref(as_text(raw.get("kind")), group_of(raw), metadata, namespace)
        for _, reference in references:
            kind, name = as_text(reference.get("kind")), as_text(reference.get("name"))
            owner = ObjectRef(kind, group_of(reference), ref.namespace, name)
            can_exist = name and max(map(len, owner)) <= _MAX_NAME_CHARACTERS
            # The owner of a static pod is its Node.
            if reference.get("controller") is True and kind != "Node" and can_exist:
                self._controllers[ref] = owner
                self._presume_deployment(owner, metadata)

    def _presume_deployment(self, owner: ObjectRef, metadata: Mapping[str, Any]) -> None:
        revision = as_text(as_object(metadata.get("labels")).get(_POD_TEMPLATE_HASH_LABEL))
        if owner.kind == "ReplicaSet" and revision and owner.name.endswith(f"-{revision}"):
            name = owner.name.removesuffix(f"-{revision}")
            self._presumed[owner] = owner._replace(kind="Deployment", name=name)

    def top_owner(self, ref: ObjectRef) -> tuple[ObjectRef, int]:
        """The object at the end of the chain of controllers, and the length of the chain."""
        for length in range(_MAX_OWNER_LEVELS):
            owner = self._controllers.get(ref) or self._presumed.get(ref)
            if owner is None:
                return ref, length
            ref = owner
        return ref, _MAX_OWNER_LEVELS

    def merge(self, findings: Iterable[LocatedFinding]) -> list[LocatedFinding]:
        """`findings` with each fault once for each owner in a file, in the order of the first.

        Objects with the same owner have the same fault if rule, container and field are the same.
        Several places of one object stay apart, and so do several owners of the same name, or of
        none.
        The finding that stays is one of the highest level, and of these one in the object next to
        the owner. It says who the owner is, and how many objects have the fault. Merged findings
        can be merged again with others.
        """
        owned = [self._with_owner(located) for located in findings]
        # The objects next to the owner that have the fault: pods below them only repeat it.
        nearest: dict[tuple[Any, ...], tuple[int, tuple[Any, ...]]] = {}
        for located, distance in owned:
            fault = _key_of_fault(located)
            if fault not in nearest or distance < nearest[fault][0]:
                nearest[fault] = distance, _key_of_place(located, distance)
        groups: dict[tuple[Any, ...], list[tuple[LocatedFinding, int]]] = {}
        for located, distance in owned:
            fault = _key_of_fault(located)
            lowest, place = nearest[fault]
            place = _key_of_place(located, distance) if distance == lowest else place
            groups.setdefault((*fault, *place), []).append((located, distance))
        return [_merged_finding(group) for group in groups.values()]

    def _with_owner(self, located: LocatedFinding) -> tuple[LocatedFinding, int]:
        ref = located.finding.object
        if ref is None:
            return located, 0
        owner, distance = self.top_owner(ref)
        return located._replace(owner=owner), distance


def _key_of_fault(located: LocatedFinding) -> tuple[Any, ...]:
    finding = located.finding
    file = located.file
    return file, located.owner, finding.rule, finding.container_name, finding.key


def _key_of_place(located: LocatedFinding, distance: int) -> tuple[Any, ...]:
    finding = located.finding
    if distance == 0:
        return located.file, located.span.line, located.span.column, finding.path
    return finding.object and finding.object.kind, finding.stable_path


def _merged_finding(group: list[tuple[LocatedFinding, int]]) -> LocatedFinding:
    best, _ = max(group, key=lambda member: (member[0].finding.action, -member[1]))
    objects: dict[ObjectRef | None, int] = {}
    for located, _ in group:  # of which some may stand for several after an earlier merge
        ref = located.finding.object
        objects[ref] = max(objects.get(ref, 0), located.object_count)
    return best._replace(object_count=sum(objects.values()))

"""Find the pods: in built-in kinds, in known custom kinds, and in any other kind.

In a built-in kind a table says where the pod is. Every other kind is searched through maps and
lists for anything shaped like a pod, because a third of all GPU pods are in custom resources and
no table holds all their kinds. `kinds` has the tables, and the kinds that the search cannot know.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rules.base.json_access import as_object, as_objects, as_text
from rules.base.json_patch import Json, Path, find_value
from rules.base.patterns import matches_any
from rules.objects.device_claim import CLAIM_PATHS, DeviceClaim
from rules.objects.device_claim import GROUP as CLAIM_GROUP
from rules.objects.object_ref import BUILT_IN_GROUPS, ObjectRef, object_ref
from rules.objects.pod import Pod
from rules.objects.pod_layout import CONTAINER_LISTS, POD_SPEC, PodLayout
from rules.objects.quota import Quota
from rules.profile.profile import Profile
from rules.workloads import field_types as types
from rules.workloads.json_node import JsonNode, matches_path
from rules.workloads.kinds import (
    CUSTOM_POD_LAYOUTS,
    KINDS_WITHOUT_PODS,
    PATTERN_GROUPS,
    POD_TEMPLATE_PATHS,
    PodLayouts,
)
from rules.workloads.lists import flatten_lists
from rules.workloads.misplaced import misplaced_containers
from rules.workloads.subjects import MalformedField, Subject

_CONTAINER_FIELDS = frozenset(CONTAINER_LISTS)
# Fields of a pod spec in which there are no other pods.
_POD_FIELDS = _CONTAINER_FIELDS | {*types.POD, "resources", "securityContext"}
# Fields of an object that request no pod; `status` is what a controller saw.
_OBJECT_FIELDS = frozenset({"metadata", "status"})


def find_subjects(
    manifest: Json, profile: Profile, namespace: str | None = None, path: Path = ()
) -> Iterator[Subject]:
    """Everything in `manifest`, itself at `path`, that rules evaluate, in document order.

    Lists (`kind: List`, `PodList` …) are opened. `namespace` is where an object goes that names
    no namespace. A field with the wrong type comes as a MalformedField before its pod.
    """
    for raw, base in flatten_lists(as_object(manifest), path):
        kind = as_text(raw.get("kind"))
        group = as_text(raw.get("apiVersion")).rpartition("/")[0]
        is_built_in = kind in POD_TEMPLATE_PATHS and group in BUILT_IN_GROUPS
        if not is_built_in and _holds_no_subject(kind, group):
            continue
        owner = object_ref(kind, group, as_object(raw.get("metadata")), namespace)
        search = _SubjectSearch(owner, profile, base)
        if kind == "ResourceQuota" and not group:
            yield from search.quota(raw)
        elif group == CLAIM_GROUP and kind in CLAIM_PATHS:
            yield from search.claim(raw, CLAIM_PATHS[kind])
        elif is_built_in:
            yield from search.template(raw, POD_TEMPLATE_PATHS[kind])
        else:
            yield from search.custom_resource(raw, CUSTOM_POD_LAYOUTS.get((group, kind), ()))


def _holds_no_subject(kind: str, group: str) -> bool:
    if not group:
        return not kind or kind in KINDS_WITHOUT_PODS
    return not kind or matches_any(PATTERN_GROUPS, group)


class _SubjectSearch:
    """The search for subjects in one object, which is at `base` of the manifest."""

    def __init__(self, owner: ObjectRef, profile: Profile, base: Path) -> None:
        self._owner = owner
        self._profile = profile
        self._base = base
        self._reported: set[Path] = set()

    def quota(self, raw: Mapping[str, Any]) -> Iterator[Subject]:
        """The hard limits of a ResourceQuota."""
        spec = raw.get("spec")
        yield from self._malformed(spec, {"hard": {}}, ("spec",))
        hard = as_object(as_object(spec).get("hard"))
        yield Quota(self._owner, self._profile, hard, (*self._base, "spec", "hard"))

    def claim(self, raw: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[Subject]:
        """The spec of a claim for devices, which is at `path`."""
        wanted: Any = {"devices": {"requests": [{"exactly": {}}]}}
        for step in reversed(path[1:]):
            wanted = {step: wanted}
        yield from self._malformed(raw.get(path[0]), wanted, path[:1])
        spec: Any = raw
        for step in path:
            spec = as_object(spec.get(step))
        yield DeviceClaim(self._owner, self._profile, spec, (*self._base, *path))

    def template(self, raw: Mapping[str, Any], path: Path) -> Iterator[Subject]:
        """The pod whose template is at `path` of a built-in kind, if there is one."""
        holder: Any = raw
        spec, steps = holder, (*path, "spec")
        if not any(as_object(find_value(holder, steps)).get(name) for name in _CONTAINER_FIELDS):
            for place, why in misplaced_containers(raw, self._owner.kind, steps):
                yield MalformedField(self._owner, (*self._base, *place), why)
        for depth, step in enumerate(steps, start=1):
            holder, spec = spec, spec.get(step)
            if spec is None:
                return  # a partial object, such as a patch of the labels
            if not isinstance(spec, dict):
                yield from self._malformed(spec, {}, steps[:depth])
                return
        metadata = (holder.get("metadata"), (*path, "metadata"))
        for subject in self._read((spec, steps), metadata, ".".join(map(str, steps)), POD_SPEC):
            if isinstance(subject, Pod):
                subject.has_status = bool(raw.get("status"))
            yield subject

    def custom_resource(self, raw: Mapping[str, Any], layouts: PodLayouts) -> Iterator[Subject]:
        """The pods at the paths of `layouts`, then every object with a list of containers."""
        known = set()
        for pattern, layout in layouts:
            known |= {(*pattern, *path[:-1]) for path, _ in layout.container_lists}
            yield from self._pods_at(raw, pattern, layout)
        waiting = [JsonNode(raw)]
        while waiting:
            node = waiting.pop()
            skipped = _OBJECT_FIELDS if node.parent is None else frozenset[str]()
            if isinstance(node.value, dict) and not _CONTAINER_FIELDS.isdisjoint(node.value):
                skipped |= _POD_FIELDS
                if not known or not any(matches_path(node.path, pattern) for pattern in known):
                    yield from self._candidate(node)
            waiting += [child for child in node.children() if child.key not in skipped][::-1]

    def _pods_at(
        self, raw: Mapping[str, Any], pattern: Path, layout: PodLayout
    ) -> Iterator[Subject]:
        """The pods at every path that matches `pattern`."""
        nodes = [JsonNode(raw)]
        for depth, step in enumerate(pattern, start=1):
            if step == "*":
                nodes = [child for node in nodes for child in node.children()]
                continue
            objects = [node for node in nodes if isinstance(node.value, dict)]
            nodes = [node.child(step) for node in objects if step in node.value]
            # Of a list of lists only the outer type is checked.
            following = pattern[depth : depth + 2]
            wanted: Any = {} if following[:1] != ("*",) else [] if following[1:] == ("*",) else [{}]
            for node in nodes:
                yield from self._malformed(node.value, wanted, node.path)
            nodes = [node for node in nodes if isinstance(node.value, type(wanted))]
        for node in nodes:
            if isinstance(node.value, dict):
                yield from self._pod(node, layout)

    def _candidate(self, node: JsonNode) -> Iterator[Subject]:
        containers = node.value.get("containers")
        if any(as_objects(node.value.get(name)) for name in _CONTAINER_FIELDS):
            yield from self._pod(node, POD_SPEC)
        elif containers is not None and node.path[-2:] == ("template", "spec"):
            yield from self._malformed(containers, [{}], (*node.path, "containers"))

    def _pod(self, node: JsonNode, layout: PodLayout) -> Iterator[Subject]:
        """The pod at `node`, after its malformed fields."""
        # The metadata is beside a `spec`, even if there is none yet.
        holder = (node.parent if layout is POD_SPEC and node.key == "spec" else None) or node
        metadata = holder.value if layout.metadata_in_spec else holder.value.get("metadata")
        path = holder.path if layout.metadata_in_spec else (*holder.path, "metadata")
        yield from self._read((node.value, node.path), (metadata, path), node.stable_path, layout)

    def _read(
        self,
        spec: tuple[Any, Path],
        metadata: tuple[Any, Path],
        stable_path: str,
        layout: PodLayout,
    ) -> Iterator[Subject]:
        if not types.conforms(spec[0], types.compiled_field_types(layout)):
            yield from self._malformed(spec[0], types.field_types_of(layout), spec[1])
        if not types.conforms(metadata[0], types.COMPILED_METADATA):
            yield from self._malformed(metadata[0], types.METADATA, metadata[1])
        pod = Pod(
            self._owner,
            self._profile,
            spec=(spec[0], (*self._base, *spec[1])),
            metadata=(as_object(metadata[0]), (*self._base, *metadata[1])),
            stable_path=stable_path,
            layout=layout,
        )
        if layout is POD_SPEC or pod.containers:  # a step of a workflow may be no pod
            yield pod

    def _malformed(self, value: Any, wanted: Any, path: Path) -> Iterator[MalformedField]:
        for place, why in types.type_errors(value, wanted, path):
            if place not in self._reported:
                self._reported.add(place)
                yield MalformedField(self._owner, (*self._base, *place), why)

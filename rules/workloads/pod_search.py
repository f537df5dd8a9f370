"""Search one object for pods: at known paths of it, or in anything shaped like a pod."""

import json
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from rules.base.json_values import Path, as_object, as_objects, as_text, find_value, pointer
from rules.base.text_matching import nearest_word
from rules.objects.container import CONTAINER_LISTS, POD_SPEC, PodLayout
from rules.objects.kubernetes_objects import DeviceSpec, KubernetesObject, Quota
from rules.objects.object_ref import ObjectRef
from rules.objects.pod import Pod
from rules.profile.profile import Profile
from rules.workloads import field_types as types
from rules.workloads.dynamo import POD_FIELD, pod_of_service
from rules.workloads.kinds import PodLayouts


class JsonNode:
    """A value inside an object.

    The path is built only on demand, because a search visits many nodes and few are pods.
    """

    __slots__ = ("key", "parent", "value")

    def __init__(self, value: Any, key: str | int = "", parent: "JsonNode | None" = None) -> None:
        self.value = value
        self.key = key
        self.parent = parent

    @property
    def lineage(self) -> "list[JsonNode]":
        """The nodes from below the root down to this one."""
        found: list[JsonNode] = []
        node = self
        while node.parent is not None:
            found.append(node)
            node = node.parent
        return found[::-1]

    @property
    def path(self) -> Path:
        """The keys and indices that lead here."""
        return tuple(node.key for node in self.lineage)

    @property
    def stable_path(self) -> str:
        """The path with names in place of indices: it stays when elements change places."""
        return ".".join(node.name for node in self.lineage)

    @property
    def name(self) -> str:
        """The key; for an element of a list, its own name or `*`."""
        if isinstance(self.key, str):
            return self.key
        own = as_object(self.value)
        return as_text(own.get("name")) or as_text(own.get("groupName")) or "*"

    def child(self, key: str | int) -> "JsonNode":
        """The member or element at `key`, which must exist."""
        return JsonNode(self.value[key], key, self)

    def children(self) -> "list[JsonNode]":
        """The members or elements that are themselves objects or lists."""
        pairs = self.value.items() if isinstance(self.value, dict) else enumerate(self.value)
        return [JsonNode(v, key, self) for key, v in pairs if isinstance(v, (dict, list))]


def matches_path(path: Path, pattern: Path) -> bool:
    """Return whether `path` matches `pattern`, in which `*` stands for any one step."""
    pairs = zip(path, pattern, strict=False)
    return len(path) == len(pattern) and all(p in ("*", step) for step, p in pairs)


class MalformedField(NamedTuple):
    """A field of what looks like a pod that has the wrong type; rules read it as empty."""

    object: ObjectRef
    path: Path
    why: str


Subject: TypeAlias = Pod | Quota | DeviceSpec | KubernetesObject
SearchResult: TypeAlias = Subject | MalformedField


_UNSEARCHED_FIELDS = frozenset({"status"})


def misplaced_containers(
    raw: Mapping[str, Any], kind: str, right: Path
) -> Iterator[tuple[Path, str]]:
    """The path of each list of containers in `raw`, and what to write instead.

    `raw` is an object of the built-in `kind`, and has no containers at `right`, where they belong.
    Those whose name is misspelt count too. The API server ignores or refuses all of them, so they
    are a mistake, and a patch has none.
    """
    waiting = [JsonNode(raw)]
    while waiting:
        node = waiting.pop()
        skipped = _UNSEARCHED_FIELDS if node.parent is None else frozenset[str]()
        if isinstance(node.value, dict):
            skipped |= _CONTAINER_FIELDS
            for name, meant in _container_lists_of(node.value):
                place = (*node.path, name)
                where = f"write them as {pointer((*right, meant))}"
                yield place, f"{pointer(place)} is not where a {kind} has containers: {where}"
        waiting += [child for child in node.children() if child.key not in skipped][::-1]


def _container_lists_of(raw: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The keys of `raw` with containers below them, misspelt ones too, and the keys meant."""
    for key, value in raw.items():
        if key in _CONTAINER_FIELDS:
            if as_objects(value):
                yield key, key
        elif MIN_NAME <= len(key) <= MAX_NAME and _has_containers(value):
            meant = nearest_word(key, CONTAINER_LISTS)
            if meant is not None:
                yield key, meant


MIN_NAME, MAX_NAME = 8, 24
"""Characters of a key that may be a misspelt name of a list of containers."""


def _has_containers(value: Any) -> bool:
    """Return whether `value` is a container or a list with one."""
    candidates = [value] if isinstance(value, dict) else [item for _, item in as_objects(value)]
    return any("image" in candidate or "name" in candidate for candidate in candidates)


def _pod_node_of_service(node: JsonNode) -> JsonNode:
    """The pod of a service of Dynamo, in the place of the field with most of it."""
    return JsonNode(pod_of_service(node.value), POD_FIELD, node)


_CONTAINER_FIELDS = frozenset(CONTAINER_LISTS)
# Fields of a pod spec in which there are no other pods.
_POD_FIELDS = _CONTAINER_FIELDS | {*types.POD, "resources", "securityContext"}
MAX_JSON_CHARACTERS = 32_768
"""Characters of a text with a pod in it that is read."""
# Fields of an object that request no pod; `status` is what a controller saw.
_FIELDS_OF_OBJECTS = frozenset({"metadata", "status"})


class PodSearch:
    """The search for pods in one object, which is at `base` of the manifest."""

    def __init__(self, owner: ObjectRef, profile: Profile, base: Path) -> None:
        self._owner = owner
        self._profile = profile
        self._base = base
        self._reported: set[Path] = set()

    def pod_in_template(self, raw: Mapping[str, Any], path: Path) -> Iterator[SearchResult]:
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
                yield from self._new_malformed_fields(spec, {}, steps[:depth])
                return
        metadata = (holder.get("metadata"), (*path, "metadata"))
        for subject in self._checked_pod(
            (spec, steps), metadata, ".".join(map(str, steps)), POD_SPEC
        ):
            if isinstance(subject, Pod):
                subject.set_status(as_object(raw.get("status")))
            yield subject
            if isinstance(subject, Pod) and path:
                yield KubernetesObject(self._owner, self._profile, raw, self._base, pods=(subject,))

    def pods_in_custom_resource(
        self, raw: Mapping[str, Any], layouts: PodLayouts
    ) -> Iterator[SearchResult]:
        """The pods at the paths of `layouts`, then every object with a list of containers."""
        known = set()
        for pattern, layout in layouts:
            known |= {(*pattern, *path[:-1]) for path, _ in layout.container_lists}
            yield from self._pods_at(raw, pattern, layout)
        waiting = [JsonNode(raw)]
        while waiting:
            node = waiting.pop()
            skipped = _FIELDS_OF_OBJECTS if node.parent is None else frozenset[str]()
            if isinstance(node.value, dict) and not _CONTAINER_FIELDS.isdisjoint(node.value):
                skipped |= _POD_FIELDS
                if not known or not any(matches_path(node.path, pattern) for pattern in known):
                    yield from self._pod_at_candidate(node)
            waiting += [child for child in node.children() if child.key not in skipped][::-1]

    def _pods_at(
        self, raw: Mapping[str, Any], pattern: Path, layout: PodLayout
    ) -> Iterator[SearchResult]:
        """The pods at every path that matches `pattern`."""
        nodes = [JsonNode(raw)]
        for depth, step in enumerate(pattern, start=1):
            if step == "*":
                nodes = [child for node in nodes for child in node.children()]
                continue
            objects = [node for node in nodes if isinstance(node.value, dict)]
            nodes = [node.child(step) for node in objects if step in node.value]
            if layout.is_text and depth == len(pattern):
                yield from self._pods_in_texts(nodes, layout)
                return
            # Of a list of lists only the outer type is checked.
            following = pattern[depth : depth + 2]
            wanted: Any = {} if following[:1] != ("*",) else [] if following[1:] == ("*",) else [{}]
            if layout.is_service:
                wanted = {}  # services have names
            for node in nodes:
                yield from self._new_malformed_fields(node.value, wanted, node.path)
            nodes = [node for node in nodes if isinstance(node.value, type(wanted))]
        for node in nodes:
            if isinstance(node.value, dict):
                made = _pod_node_of_service(node) if layout.is_service else node
                yield from self._pod_at(made, layout)

    def _pods_in_texts(self, nodes: list[JsonNode], layout: PodLayout) -> Iterator[SearchResult]:
        """The pods in fields with JSON in a text; what is no JSON may be a placeholder."""
        for node in nodes:
            text = as_text(node.value)
            if len(text) > MAX_JSON_CHARACTERS:
                why = f"{pointer(node.path)} has more than {MAX_JSON_CHARACTERS:,} characters"
                yield MalformedField(self._owner, (*self._base, *node.path), why)
                continue
            try:
                value = json.loads(text)
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict):
                yield from self._pod_at(JsonNode(value, node.key, node.parent), layout)

    def _pod_at_candidate(self, node: JsonNode) -> Iterator[SearchResult]:
        containers = node.value.get("containers")
        if any(as_objects(node.value.get(name)) for name in _CONTAINER_FIELDS):
            yield from self._pod_at(node, POD_SPEC)
        elif containers is not None and node.path[-2:] == ("template", "spec"):
            yield from self._new_malformed_fields(containers, [{}], (*node.path, "containers"))

    def _pod_at(self, node: JsonNode, layout: PodLayout) -> Iterator[SearchResult]:
        """The pod at `node`, after its malformed fields."""
        # The metadata is beside a `spec`, even if there is none yet.
        holder = (node.parent if layout is POD_SPEC and node.key == "spec" else None) or node
        metadata = holder.value if layout.metadata_in_spec else holder.value.get("metadata")
        path = holder.path if layout.metadata_in_spec else (*holder.path, "metadata")
        outer = as_object(holder.parent.value) if holder.parent is not None else {}
        spec = (node.value, node.path)
        yield from self._checked_pod(spec, (metadata, path), node.stable_path, layout, outer)

    def _checked_pod(
        self,
        spec: tuple[Any, Path],
        metadata: tuple[Any, Path],
        stable_path: str,
        layout: PodLayout,
        holder: Mapping[str, Any] = MappingProxyType({}),
    ) -> Iterator[SearchResult]:
        if not types.conforms_to_types(spec[0], types.compiled_field_types(layout)):
            yield from self._new_malformed_fields(spec[0], types.field_types_of(layout), spec[1])
        if not types.conforms_to_types(metadata[0], types.COMPILED_METADATA):
            yield from self._new_malformed_fields(metadata[0], types.METADATA, metadata[1])
        pod = Pod(
            self._owner,
            self._profile,
            spec=(spec[0], (*self._base, *spec[1])),
            metadata=(as_object(metadata[0]), (*self._base, *metadata[1])),
            stable_path=stable_path,
            layout=layout,
        )
        pod.holder = holder
        # A step of a workflow may be no pod.
        if layout is POD_SPEC or pod.containers or (layout.metadata_in_spec and pod.annotations):
            yield pod

    def _new_malformed_fields(
        self, value: Any, wanted: Any, path: Path
    ) -> Iterator[MalformedField]:
        for place, why in types.type_errors(value, wanted, path):
            if place not in self._reported:
                self._reported.add(place)
                yield MalformedField(self._owner, (*self._base, *place), why)

"""Where the pods are: in the built-in kinds, in known custom kinds, and in any other.

Built-in kinds are looked up. Every other kind is searched for what is shaped like a pod,
through maps and lists, because a third of all GPU pods sit in custom resources and there
are more kinds of those than a table holds. `kinds` has the tables, exceptions included.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from rules.document import Json, Path
from rules.kinds import BUILT_IN, ODD, PATTERNS, PLAIN, OddPods
from rules.layout import POD_SPEC, Layout
from rules.nodes import Node, fits
from rules.patterns import matches_any
from rules.pod import BUILT_IN_GROUPS, ObjectRef, Pod
from rules.profile import Profile
from rules.quota import Quota
from rules.reading import items, mapping, text
from rules.shapes import METADATA, METADATA_FIELDS, POD, conforms, differences, fields_of, shape_of


class Unreadable(NamedTuple):
    """Something that looks like a pod and cannot be read as one."""

    object: ObjectRef
    path: Path
    why: str


Subject: TypeAlias = Pod | Quota | Unreadable

_CONTAINERS = frozenset({"containers", "initContainers", "ephemeralContainers"})
# Fields of a pod spec in which no other pod is to be found.
_OF_A_POD = _CONTAINERS | {*POD, "resources", "securityContext", "topologySpreadConstraints"}
# Fields of an object in which nobody asks for a pod: the second is what a controller saw.
_OF_AN_OBJECT = frozenset({"metadata", "status"})


def subjects_in(
    manifest: Json, profile: Profile, namespace: str | None = None, path: Path = ()
) -> Iterator[Subject]:
    """Everything in `manifest` that rules judge, in document order, with its path.

    Lists (`kind: List`, `PodList` …) are opened. `namespace` is where an object goes that
    names none. What looks like a pod and cannot be read comes out as Unreadable.
    """
    for raw, base in _objects(mapping(manifest), path):
        kind, group = _kind_and_group(raw)
        built_in = kind in BUILT_IN and group in BUILT_IN_GROUPS
        if not built_in and (not kind or (kind in PLAIN and not group) or _is_pattern(group)):
            continue
        owner = owner_of(kind, group, mapping(raw.get("metadata")), namespace)
        search = _Search(owner, profile, base)
        if kind == "ResourceQuota" and not group:
            yield from search.quota(raw)
        elif built_in:
            yield from search.template(raw, BUILT_IN[kind])
        else:
            yield from search.everywhere(raw, ODD.get((group, kind), ()))


def owner_of(
    kind: str, group: str, metadata: Mapping[str, Any], namespace: str | None
) -> ObjectRef:
    """Which object it is, `namespace` being where one goes that names none."""
    home = text(metadata.get("namespace")) or namespace or ""
    # An object that is yet to get its name is told by what the name will begin with.
    name = text(metadata.get("name")) or text(metadata.get("generateName"))
    return ObjectRef(kind, group, home, name)


def _is_pattern(group: str) -> bool:
    return bool(group) and matches_any(PATTERNS, group)


def _kind_and_group(raw: Mapping[str, Any]) -> tuple[str, str]:
    return text(raw.get("kind")), text(raw.get("apiVersion")).rpartition("/")[0]


def _objects(raw: Mapping[str, Any], path: Path) -> Iterator[tuple[Mapping[str, Any], Path]]:
    """The object `raw` and, if it has items, the objects in them, each with its path.

    To kubectl whatever has items is a list, of whatever kind it says it is.
    """
    waiting = [(raw, path)]
    while waiting:
        raw, path = waiting.pop()
        kind, held = text(raw.get("kind")), raw.get("items")
        if not kind.endswith("List") or not isinstance(held, list):
            yield raw, path
        # Elements of a PodList need not say that they are Pods.
        common = {"apiVersion": raw.get("apiVersion"), "kind": kind.removesuffix("List")}
        for index, item in reversed(items(held)):
            own = item if text(item.get("kind")) else {**item, **common}
            waiting.append((own, (*path, "items", index)))


class _Search:
    """The search for pods in one object, which stands at `base` of the manifest."""

    def __init__(self, owner: ObjectRef, profile: Profile, base: Path) -> None:
        self.owner = owner
        self.profile = profile
        self.base = base
        self.told: set[Path] = set()

    def quota(self, raw: Mapping[str, Any]) -> Iterator[Subject]:
        """The hard limits of a ResourceQuota."""
        spec = raw.get("spec")
        yield from self._misshapen(spec, {"hard": {}}, ("spec",))
        hard = mapping(mapping(spec).get("hard"))
        yield Quota(self.owner, self.profile, hard, (*self.base, "spec", "hard"))

    def template(self, raw: Mapping[str, Any], path: Path) -> Iterator[Subject]:
        """The pod whose template is at `path` of a built-in kind, if there is one."""
        holder: Any = raw
        spec: Any = raw
        steps = (*path, "spec")
        for depth, step in enumerate(steps, start=1):
            holder, spec = spec, spec.get(step)
            if spec is None:
                return  # a partial object, such as a patch of the labels
            if not isinstance(spec, dict):
                yield from self._misshapen(spec, {}, steps[:depth])
                return
        metadata = (holder.get("metadata"), (*path, "metadata"))
        yield from self._read((spec, steps), metadata, ".".join(map(str, steps)), POD_SPEC)

    def everywhere(self, raw: Mapping[str, Any], odd: OddPods) -> Iterator[Subject]:
        """The pods at the places of `odd`, then every object with a list of containers."""
        known = set()
        for pattern, layout in odd:
            known |= {(*pattern, *path[:-1]) for path, _ in layout.lists}
            yield from self._odd(raw, pattern, layout)
        waiting = [Node(raw)]
        while waiting:
            node = waiting.pop()
            passed = _OF_AN_OBJECT if node.above is None else frozenset[str]()
            if isinstance(node.value, dict) and not _CONTAINERS.isdisjoint(node.value):
                passed |= _OF_A_POD
                if not known or not any(fits(node.path, pattern) for pattern in known):
                    yield from self._candidate(node)
            waiting += [child for child in node.children() if child.key not in passed][::-1]

    def _odd(self, raw: Mapping[str, Any], pattern: Path, layout: Layout) -> Iterator[Subject]:
        """The pods at every place that `pattern` leads to."""
        nodes = [Node(raw)]
        for depth, step in enumerate(pattern, start=1):
            if step == "*":
                nodes = [child for node in nodes for child in node.children()]
                continue
            objects = [node for node in nodes if isinstance(node.value, dict)]
            nodes = [node.child(step) for node in objects if step in node.value]
            # Of a list of lists it is enough to know that it is a list.
            following = pattern[depth : depth + 2]
            shape: Any = {} if following[:1] != ("*",) else [] if following[1:] == ("*",) else [{}]
            for node in nodes:
                yield from self._misshapen(node.value, shape, node.path)
            nodes = [node for node in nodes if isinstance(node.value, type(shape))]
        for node in nodes:
            if isinstance(node.value, dict):
                yield from self._pod(node, layout)

    def _candidate(self, node: Node) -> Iterator[Subject]:
        held = node.value.get("containers")
        if any(items(node.value.get(name)) for name in _CONTAINERS):
            yield from self._pod(node, POD_SPEC)
        elif held is not None and node.path[-2:] == ("template", "spec"):
            yield from self._misshapen(held, [{}], (*node.path, "containers"))

    def _pod(self, node: Node, layout: Layout) -> Iterator[Subject]:
        """The pod at `node`; before it what is wrong with it."""
        # The metadata stand beside a `spec`, even if there are none yet.
        holder = (node.above if layout is POD_SPEC and node.key == "spec" else None) or node
        metadata = holder.value if layout.bare else holder.value.get("metadata")
        path = holder.path if layout.bare else (*holder.path, "metadata")
        yield from self._read((node.value, node.path), (metadata, path), node.place, layout)

    def _read(
        self, spec: tuple[Any, Path], metadata: tuple[Any, Path], place: str, layout: Layout
    ) -> Iterator[Subject]:
        if not conforms(spec[0], fields_of(layout)):
            yield from self._misshapen(spec[0], shape_of(layout), spec[1])
        if not conforms(metadata[0], METADATA_FIELDS):
            yield from self._misshapen(metadata[0], METADATA, metadata[1])
        at_spec = (spec[0], (*self.base, *spec[1]))
        at_metadata = (mapping(metadata[0]), (*self.base, *metadata[1]))
        pod = Pod(self.owner, self.profile, at_spec, at_metadata, place, layout)
        if layout is POD_SPEC or pod.containers:  # a step of a workflow may be no pod
            yield pod

    def _misshapen(self, value: Any, shape: Any, path: Path) -> Iterator[Unreadable]:
        for place, why in differences(value, shape, path):
            if place not in self.told:
                self.told.add(place)
                yield Unreadable(self.owner, (*self.base, *place), why)

"""A read-only view of a pod wherever it sits.

It never fails on a field of the wrong type: such a field reads as empty here and is
reported by `workloads.subjects_in`, once, with its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from weakref import ref

from rules.container import Container, Role
from rules.document import Json, Path, found
from rules.layout import CONTAINER_LISTS, POD_SPEC, Layout
from rules.lazy import kept
from rules.profile import Profile
from rules.reading import items, mapping, text

DEFAULT_SCHEDULER = "default-scheduler"
BUILT_IN_GROUPS = frozenset({"", "apps", "batch", "extensions"})
MIRROR = "kubernetes.io/config.mirror"


class ObjectRef(NamedTuple):
    """Which Kubernetes object: its kind and group, namespace and name (empty if unknown)."""

    kind: str
    group: str
    namespace: str
    name: str

    def __str__(self) -> str:
        name = "/".join(part for part in (self.namespace, self.name) if part)
        return f"{self.kind} {name}" if name else self.kind


class Pod:
    """A pod or a template of pods: its spec at `path`, its metadata at `metadata_path`."""

    def __init__(
        self,
        owner: ObjectRef,
        profile: Profile,
        spec: tuple[Mapping[str, Any], Path],
        metadata: tuple[Mapping[str, Any], Path],
        place: str,
        layout: Layout = POD_SPEC,
    ) -> None:
        self.object = owner
        self.profile = profile
        self.spec, self.path = spec
        self.metadata, self.metadata_path = metadata
        self.place = place
        self.layout = layout
        # Kept by `devices`, `placement` and `traits`, which many rules ask about one pod.
        self.holds: bool | None = None
        self.targets: bool | None = None
        self.traits: int | None = None
        self.key_traits: int | None = None
        self.held: tuple[str, ...] | None = None
        self.fraction: tuple[Container | None] | None = None
        # What each rule has said about this view, kept by `asking`.
        self.answers: dict[str, Any] = {}
        # By this the containers know their pod.
        self.reference = ref(self)
        # The containers of an earlier state of the pod, to be used again.
        self._before: tuple[Container, ...] = ()

    def renewed(self, manifest: Json) -> Pod:
        """This pod as it is in `manifest`, which edits have made of the one it was read from.

        Whatever the edits have not touched is still the same object, and so is its view.
        """
        spec = mapping(found(manifest, self.path))
        metadata = mapping(found(manifest, self.metadata_path))
        same = metadata is self.metadata or not (metadata or self.metadata)
        if spec is self.spec and same:
            return self
        where = (spec, self.path), (metadata, self.metadata_path)
        pod = Pod(self.object, self.profile, *where, self.place, self.layout)
        if same:
            pod._take_over(self)
        return pod

    def _take_over(self, old: Pod) -> None:
        """Take over what was read from the same metadata, and from the same lists of containers."""
        self.key_traits = old.key_traits
        mine, before = self.spec.get, old.spec.get
        if self.layout is POD_SPEC and all(mine(f) is before(f) for f in CONTAINER_LISTS):
            self.containers = old.containers
            self.holds, self.held = old.holds, old.held
            for container in self.containers:
                container.belongs_to(self)
        else:
            self._before = old.containers

    @kept
    def containers(self) -> tuple[Container, ...]:
        """Every container in order: init, app, ephemeral. No rule should look at fewer unasked."""
        before, self._before = self._before, ()
        containers = []
        for number, (raw, path, role) in enumerate(self._places()):
            old = before[number] if number < len(before) else None
            if old is None or old.path != path:
                container = Container(self, raw, path, role)
            elif old.raw is raw:
                container = old
                container.belongs_to(self)
            else:
                container = Container(self, raw, path, role)
                if self.layout is POD_SPEC and old.name == container.name:
                    container.inherit(old)
            containers.append(container)
        return tuple(containers)

    def _places(self) -> Iterator[tuple[Mapping[str, Any], Path, Role]]:
        if self.layout.itself:
            yield self.spec, self.path, "app"
        for path, role in self.layout.lists:
            held: Any = self.spec
            for step in path:
                held = mapping(held).get(step)
            for index, raw in items(held):
                yield raw, (*self.path, *path, index), role
        for name in self.layout.singles:
            if isinstance(self.spec.get(name), dict):
                yield self.spec[name], (*self.path, name), "app"

    @kept
    def annotations(self) -> Mapping[str, Any]:
        """The pod's annotations."""
        return mapping(self.metadata.get("annotations"))

    @kept
    def labels(self) -> Mapping[str, Any]:
        """The pod's labels."""
        return mapping(self.metadata.get("labels"))

    @kept
    def volumes(self) -> list[tuple[int, Mapping[str, Any]]]:
        """`volumes` with their indices."""
        return items(self.spec.get("volumes"))

    @kept
    def tolerations(self) -> list[tuple[int, Mapping[str, Any]]]:
        """`tolerations` with their indices."""
        return items(self.spec.get("tolerations"))

    @kept
    def node_selector(self) -> Mapping[str, Any]:
        """`nodeSelector`."""
        return mapping(self.spec.get("nodeSelector"))

    @property
    def scheduler(self) -> str:
        """`schedulerName`, the default one if unset: admission cannot tell these apart."""
        return text(self.spec.get("schedulerName")) or DEFAULT_SCHEDULER

    @property
    def service_account(self) -> str:
        """The account that the pod runs as."""
        return (
            text(self.spec.get("serviceAccountName"))
            or text(self.spec.get("serviceAccount"))
            or "default"
        )

    @property
    def is_mirror(self) -> bool:
        """Whether the pod mirrors a static pod: the kubelet's, never to be touched."""
        return self.object.kind == "Pod" and MIRROR in self.annotations

    @property
    def is_whole(self) -> bool:
        """Whether the pod will be made as it stands here.

        A controller of a custom resource, or a user of a PodTemplate, may add to it what is
        not to be seen, such as the GPU itself.
        """
        return self.object.group in BUILT_IN_GROUPS and self.object.kind != "PodTemplate"

    @kept
    def is_daemon(self) -> bool:
        """Whether a DaemonSet chooses the node."""
        if self.object.kind == "DaemonSet":
            return True
        owners = items(self.metadata.get("ownerReferences"))
        return any(o.get("kind") == "DaemonSet" and o.get("controller") is True for _, o in owners)

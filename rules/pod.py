"""Read-only views of a pod wherever it sits, and of its containers.

The views never fail on a field of the wrong type: such a field reads as empty here and is
reported by `workloads.subjects_in`, once, with its place.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Literal, NamedTuple

from rules.document import Path
from rules.profile import Context, Profile, matches_any

Role = Literal["init", "app", "ephemeral"]
DAEMON_SET_CONTROLLER = "system:serviceaccount:kube-system:daemon-set-controller"
DEFAULT_SCHEDULER = "default-scheduler"
MIRROR = "kubernetes.io/config.mirror"


def mapping(value: Any) -> Mapping[str, Any]:
    """`value` if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def items(value: Any) -> list[tuple[int, Mapping[str, Any]]]:
    """The objects in the list `value` with their indices; nothing if it is no list."""
    if not isinstance(value, list):
        return []
    return [(index, item) for index, item in enumerate(value) if isinstance(item, dict)]


def text(value: Any) -> str:
    """`value` if it is a string, else the empty string."""
    return value if isinstance(value, str) else ""


class ObjectRef(NamedTuple):
    """Which Kubernetes object: its kind and group, namespace and name (empty if unknown)."""

    kind: str
    group: str
    namespace: str
    name: str

    def __str__(self) -> str:
        name = "/".join(part for part in (self.namespace, self.name) if part)
        return f"{self.kind} {name}" if name else self.kind


class Container:
    """One container of a pod: init, app or ephemeral."""

    def __init__(self, pod: Pod, raw: Mapping[str, Any], path: Path, role: Role) -> None:
        self.pod = pod
        self.raw = raw
        self.path = path
        self.role = role
        self.name = text(raw.get("name")) or str(path[-1])
        # Kept by `devices`, which every rule asks and which only that module may fill.
        self.devices: dict[str, Any] | None = None
        self.holds: bool | None = None

    def __str__(self) -> str:
        kind = "container" if self.role == "app" else f"{self.role} container"
        # In a file the name may be any text, and a line break would spoil the message.
        return f"{kind} {json.dumps(self.name[:63])}"

    @cached_property
    def image(self) -> str:
        """The image reference, empty if none is given."""
        return text(self.raw.get("image"))

    @cached_property
    def env(self) -> Mapping[str, list[tuple[int, Mapping[str, Any]]]]:
        """Every entry of `env` with its index, by the name of the variable, in order."""
        entries: dict[str, list[tuple[int, Mapping[str, Any]]]] = {}
        for index, entry in items(self.raw.get("env")):
            entries.setdefault(text(entry.get("name")), []).append((index, entry))
        return entries

    def value_of(self, variable: str) -> str | None:
        """The literal that `variable` is set to, the last entry winning; None for any other."""
        if variable not in self.env:
            return None
        entry = self.env[variable][-1][1]
        if entry.get("valueFrom") is not None:
            return None
        value = entry.get("value")
        return "" if value is None else str(value)

    @cached_property
    def resources(self) -> Mapping[str, Any]:
        """The `resources` object, wherever this kind of workload keeps it."""
        if self._gpu_field:
            return {}
        return mapping(self.raw.get(self.pod.layout.resources))

    @property
    def _gpu_field(self) -> str:
        return self.pod.layout.gpu_field if self.raw is self.pod.spec else ""

    @property
    def resources_path(self) -> Path:
        """Where `resources` stands, or would stand."""
        return (*self.path, self.pod.layout.resources)

    @cached_property
    def limits(self) -> Mapping[str, Any]:
        """`resources.limits` as written."""
        if self._gpu_field:
            gpu = mapping(self.raw.get(self._gpu_field))
            return {text(gpu.get("name")): gpu.get("quantity")} if gpu else {}
        return mapping(self.resources.get("limits"))

    @cached_property
    def requests(self) -> Mapping[str, Any]:
        """`resources.requests` as written."""
        return mapping(self.resources.get("requests"))

    @cached_property
    def claims(self) -> list[tuple[int, Mapping[str, Any]]]:
        """The DRA claims that the container uses, with their indices."""
        return items(self.resources.get("claims"))

    @cached_property
    def security_context(self) -> Mapping[str, Any]:
        """The container's own `securityContext`."""
        return mapping(self.raw.get("securityContext"))

    @property
    def privileged(self) -> bool:
        """Whether `securityContext.privileged` is true."""
        return self.security_context.get("privileged") is True

    @cached_property
    def added_capabilities(self) -> list[tuple[int, str]]:
        """`capabilities.add` with indices, in upper case and without the `CAP_` prefix."""
        added = mapping(self.security_context.get("capabilities")).get("add")
        if not isinstance(added, list):
            return []
        return [(i, text(name).upper().removeprefix("CAP_")) for i, name in enumerate(added)]

    @property
    def administers(self) -> bool:
        """Whether the container toolkit takes it for privileged: CAP_SYS_ADMIN is in its set."""
        return self.privileged or any(n in {"SYS_ADMIN", "ALL"} for _, n in self.added_capabilities)

    @cached_property
    def mounts(self) -> list[tuple[int, Mapping[str, Any]]]:
        """`volumeMounts` with their indices."""
        return items(self.raw.get("volumeMounts"))


class Layout(NamedTuple):
    """Where a kind of workload keeps what a pod spec has.

    `lists` are the paths of the lists of containers and their roles; `singles` are fields
    that hold one container. With `itself` the spec is at once the pod and its main
    container. `resources` is the container's field of limits and requests; `gpu_field`, if
    there is one, holds a resource's name and quantity instead. With `bare` annotations and
    labels stand in the spec.
    """

    lists: tuple[tuple[tuple[str, ...], Role], ...] = (
        (("initContainers",), "init"),
        (("containers",), "app"),
        (("ephemeralContainers",), "ephemeral"),
    )
    singles: tuple[str, ...] = ()
    itself: bool = False
    bare: bool = False
    resources: str = "resources"
    gpu_field: str = ""


POD_SPEC = Layout()


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
        # Kept by `devices` and by `placement`, which many rules ask about one pod.
        self.holds: bool | None = None
        self.targets: bool | None = None

    @cached_property
    def containers(self) -> tuple[Container, ...]:
        """Every container in order: init, app, ephemeral. No rule should look at fewer unasked."""
        return tuple(self._containers())

    def _containers(self) -> Iterator[Container]:
        if self.layout.itself:
            yield Container(self, self.spec, self.path, "app")
        for path, role in self.layout.lists:
            held: Any = self.spec
            for step in path:
                held = mapping(held).get(step)
            for index, raw in items(held):
                yield Container(self, raw, (*self.path, *path, index), role)
        for name in self.layout.singles:
            if isinstance(self.spec.get(name), dict):
                yield Container(self, self.spec[name], (*self.path, name), "app")

    @cached_property
    def annotations(self) -> Mapping[str, Any]:
        """The pod's annotations."""
        return mapping(self.metadata.get("annotations"))

    @cached_property
    def labels(self) -> Mapping[str, Any]:
        """The pod's labels."""
        return mapping(self.metadata.get("labels"))

    @cached_property
    def volumes(self) -> list[tuple[int, Mapping[str, Any]]]:
        """`volumes` with their indices."""
        return items(self.spec.get("volumes"))

    @cached_property
    def tolerations(self) -> list[tuple[int, Mapping[str, Any]]]:
        """`tolerations` with their indices."""
        return items(self.spec.get("tolerations"))

    @cached_property
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

    @cached_property
    def is_daemon(self) -> bool:
        """Whether a DaemonSet chooses the node."""
        if self.object.kind == "DaemonSet":
            return True
        owners = items(self.metadata.get("ownerReferences"))
        return any(o.get("kind") == "DaemonSet" and o.get("controller") is True for _, o in owners)

    def is_component(self, context: Context) -> bool:
        """Whether the pod is the estate's own, which every rule leaves alone."""
        return any(
            matches_any(c.namespaces, self.object.namespace)
            and matches_any(c.service_accounts, self.service_account)
            and (context.user is None or context.user in (DAEMON_SET_CONTROLLER, *c.creators))
            for c in self.profile.components
        )


class Quota(NamedTuple):
    """A ResourceQuota."""

    object: ObjectRef
    profile: Profile
    hard: Mapping[str, Any]
    path: Path = ("spec", "hard")
    place: str = "spec.hard"

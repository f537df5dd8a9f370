"""A read-only view of a pod, wherever an object keeps it.

A field of the wrong type reads as empty. `workloads.discovery` reports it once, with its path.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Self

from rules.base.caching import cached_property
from rules.base.json_values import Json, Path, as_object, as_objects, as_text, find_value
from rules.objects.container import POD_SPEC, Container, PodLayout, Role, name_of_container
from rules.objects.object_ref import BUILT_IN_GROUPS, ObjectRef
from rules.objects.view import SubjectView, View
from rules.profile.context import Context
from rules.profile.profile import Profile

DEFAULT_SCHEDULER = "default-scheduler"
MIRROR_ANNOTATION = "kubernetes.io/config.mirror"


class PodMetadata(View):
    """The metadata `raw` of a pod, which is at `path` of the manifest."""

    def __init__(self, raw: Mapping[str, Any], path: Path, profile: Profile) -> None:
        self.raw = raw
        self.path = path
        self.profile = profile

    def in_manifest(self, manifest: Json) -> Self:
        """Return the metadata in an edited `manifest`; this view if no edit has touched it."""
        raw = as_object(find_value(manifest, self.path))
        if raw is self.raw or not (raw or self.raw):
            return self
        return type(self)(raw, self.path, self.profile)

    @cached_property
    def annotations(self) -> Mapping[str, Any]:
        """The annotations."""
        return as_object(self.raw.get("annotations"))

    @cached_property
    def labels(self) -> Mapping[str, Any]:
        """The labels."""
        return as_object(self.raw.get("labels"))

    @cached_property
    def is_made_by_daemon_set(self) -> bool:
        """Return whether the controller of the pod is a DaemonSet."""
        owners = as_objects(self.raw.get("ownerReferences"))
        return any(o.get("kind") == "DaemonSet" and o.get("controller") is True for _, o in owners)


class Pod(SubjectView):
    """A pod or a template of pods.

    - `owner`: the Kubernetes object that the pod is, or is in.
    - `spec`: the pod spec and its path in the manifest; `metadata`: the same of the metadata.
    - `stable_path`: the spec's path with names in place of list indices, for identities.
    """

    # The metadata of the object that makes the pod, or that it is; set by `workloads.discovery`.
    owner_metadata: PodMetadata | None = None
    # The object whose field the pod, or its template, is in a custom resource; set by `pod_search`.
    holder: Mapping[str, Any] = MappingProxyType({})
    # The `spec` of the object that the pod is, or is in, and its path; set by
    # `workloads.discovery`.
    owner_spec: Mapping[str, Any] = MappingProxyType({})
    owner_spec_path: Path = ()
    # The owners of the object that the pod is, or is in; set by `workloads.discovery`.
    owners: Sequence[Mapping[str, Any]] = ()
    # The pods that the spec is merged of: what a rule finds in one of them is reported there; set
    # by `workloads.train_jobs`.
    parts: "Sequence[Pod]" = ()
    # The containers of the version before an edit.
    earlier_containers: Sequence[Container] = ()

    def __init__(
        self,
        owner: ObjectRef,
        profile: Profile,
        *,
        spec: tuple[Mapping[str, Any], Path],
        metadata: tuple[Mapping[str, Any], Path],
        stable_path: str,
        layout: PodLayout = POD_SPEC,
    ) -> None:
        self.object = owner
        self.profile = profile
        self.spec, self.path = spec
        raw_metadata, metadata_path = metadata
        self.metadata_view = PodMetadata(raw_metadata, metadata_path, profile)
        self.stable_path = stable_path
        self.layout = layout
        # Whether the pod was created before, so that its node is no wish; whether the rest of it is
        # elsewhere, so that nothing can be said to be missing. `circumstances` sets both.
        self.exists = self.is_partial = False
        # Whether the object has a status, and whether it says that the pod has terminated.
        self.has_status = self.has_terminated = False
        # Whether the pod is one of the GPU platform itself, and the rules that are therefore not
        # run; set by `engine.evaluation`.
        self.is_component, self.excused_rules = False, frozenset[str]()

    def _in_manifest(self, manifest: Json) -> Self:
        if self.layout.is_text or self.layout.is_service or self.layout.is_merged:
            return self  # no edit is in a text, nor in what was made of several fields
        spec = as_object(find_value(manifest, self.path))
        metadata = self.metadata_view.in_manifest(manifest)
        of_owner = self.owner_metadata and self.owner_metadata.in_manifest(manifest)
        same_metadata = metadata is self.metadata_view and of_owner is self.owner_metadata
        if spec is self.spec and same_metadata:
            return self
        pod = self._copy()
        pod.spec, pod.earlier_containers = spec, self.containers
        pod.metadata_view, pod.owner_metadata = metadata, of_owner
        return pod

    def set_status(self, status: Mapping[str, Any]) -> None:
        """Read the `status` of the pod."""
        self.has_status = bool(status)
        self.has_terminated = status.get("phase") in ("Succeeded", "Failed")

    @property
    def owner_labels(self) -> Mapping[str, Any]:
        """The labels of the object that makes the pod, or that it is."""
        return self.owner_metadata.labels if self.owner_metadata else {}

    @property
    def whole_path(self) -> Path:
        """The path of the object that has all of the pod: of a service of Dynamo, the service."""
        is_made = self.layout.is_service or self.layout.is_merged
        return self.path[:-1] if is_made else self.path

    @property
    def is_complete(self) -> bool:
        """Return whether nothing else adds to the pod.

        Only then can a rule say that something is missing.
        """
        return self.layout.is_whole and not self.is_partial

    @cached_property
    def containers(self) -> tuple[Container, ...]:
        """All containers in order: init, app, ephemeral. A rule that skips some must say why."""
        raw_containers = self._raw_containers()
        target = self._fraction_target(raw_containers) if self.profile.fractions else None
        earlier = {container.path: container for container in self.earlier_containers}
        containers = []
        for raw, path, role in raw_containers:
            is_target, known = path == target, earlier.get(path)
            if known and known.source is raw and known.is_fraction_target == is_target:
                containers.append(known)
            else:
                containers.append(self._container(raw, path, role, is_target=is_target))
        return tuple(containers)

    def _gpus_of_settings(self) -> Iterator[tuple[str, Any]]:
        """The GPU resources, with their amounts, that Spark's settings ask for.

        Spark writes them into the pods of the role that a key names, as which the spec is called
        (`buildResourcesQuantities`, `buildExecutorResourcesQuantities`).
        """
        field = self.layout.settings_field
        settings = as_object(self.holder.get(field)) if field else {}
        start, end = f"spark.{self.path[-1]}.resource.", ".amount"
        for key, amount in settings.items():
            if key.startswith(start) and key.endswith(end):
                vendor = as_text(settings.get(f"{key.removesuffix(end)}.vendor"))
                name = key.removeprefix(start).removesuffix(end)
                yield f"{vendor}/{name}" if vendor else name, amount

    def _container(
        self, raw: Mapping[str, Any], path: Path, role: Role, *, is_target: bool
    ) -> Container:
        return Container(
            raw,
            path,
            role,
            profile=self.profile,
            layout=self.layout,
            is_pod_spec=raw is self.spec,
            gpus_of_settings=dict(self._gpus_of_settings()) if raw is self.spec else {},
            is_fraction_target=is_target,
        )

    def _raw_containers(self) -> list[tuple[Mapping[str, Any], Path, Role]]:
        found: list[tuple[Mapping[str, Any], Path, Role]] = []
        if self.layout.is_container:
            found.append((self.spec, self.path, "app"))
        for path, role in self.layout.container_lists:
            listed: Any = self.spec
            for step in path:
                listed = as_object(listed).get(step)
            if listed:
                place = (*self.path, *path)
                found += [(raw, (*place, index), role) for index, raw in as_objects(listed)]
        for name in self.layout.single_containers:
            if isinstance(self.spec.get(name), dict):
                found.append((self.spec[name], (*self.path, name), "app"))
        return found

    def _fraction_target(
        self, containers: Sequence[tuple[Mapping[str, Any], Path, Role]]
    ) -> Path | None:
        """Return the place of the container for which annotations ask for a part of a GPU."""
        for fraction in self.profile.fractions:
            if self.profile.grants_fraction(fraction, self.annotations, self.scheduler):
                name = self.annotations.get(fraction.target or "")
                named = [
                    path
                    for raw, path, role in containers
                    if role != "ephemeral" and name_of_container(raw, path) == name
                ]
                others = (path for _, path, role in containers if role == "app")
                return next(iter((*named, *others)), None)
        return None

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The metadata as written."""
        return self.metadata_view.raw

    @property
    def metadata_path(self) -> Path:
        """Return the path where the metadata stands, or would stand."""
        return self.metadata_view.path

    @property
    def annotations(self) -> Mapping[str, Any]:
        """The pod's annotations."""
        return self.metadata_view.annotations

    @property
    def labels(self) -> Mapping[str, Any]:
        """The pod's labels."""
        return self.metadata_view.labels

    @cached_property
    def volumes(self) -> list[tuple[int, Mapping[str, Any]]]:
        """`volumes` with their indices."""
        return as_objects(self.spec.get("volumes"))

    @cached_property
    def tolerations(self) -> list[tuple[int, Mapping[str, Any]]]:
        """`tolerations` with their indices."""
        return as_objects(self.spec.get("tolerations"))

    @cached_property
    def node_selector(self) -> Mapping[str, Any]:
        """`nodeSelector`."""
        return as_object(self.spec.get("nodeSelector"))

    @property
    def scheduler(self) -> str:
        """`schedulerName`, the default one if unset: admission cannot tell these apart."""
        return as_text(self.spec.get("schedulerName")) or DEFAULT_SCHEDULER

    @property
    def service_account(self) -> str:
        """The account that the pod runs as."""
        fields = ("serviceAccountName", "serviceAccount")
        return next(filter(None, (as_text(self.spec.get(f)) for f in fields)), "default")

    @property
    def is_placed(self) -> bool:
        """Return whether the pod has got a node, so that some node fits it."""
        return self.exists and self.object.kind == "Pod" and bool(self.spec.get("nodeName"))

    @property
    def is_final(self) -> bool:
        """Return whether pods are created exactly as written here.

        The controller of a custom resource, or a user of a PodTemplate, may add to the pod,
        for example the GPU itself.
        """
        return self.object.group in BUILT_IN_GROUPS and self.object.kind != "PodTemplate"

    @cached_property
    def is_daemon(self) -> bool:
        """Return whether a DaemonSet chooses the node."""
        return self.object.kind == "DaemonSet" or self.metadata_view.is_made_by_daemon_set


EVERY_CONTAINER = "*"


def set_circumstances(pod: Pod, context: Context) -> None:
    """Set `exists` and `is_partial` of `pod`.

    In a file, the fields that only an API server and its controllers write show that the pod was
    read from a cluster. A tenant can write them into a new pod, so at admission they mean nothing.
    """
    if context.operation is not None:
        pod.exists = context.operation == "UPDATE"
        pod.is_partial = pod.layout.is_part
        return
    pod.exists = _was_read_from_a_cluster(pod)
    pod.is_partial = context.is_patch or pod.layout.is_part or _is_patch_of_pod(pod)


def _was_read_from_a_cluster(pod: Pod) -> bool:
    is_bound = bool(pod.spec.get("nodeName"))
    return (
        pod.object.kind == "Pod" and bool(pod.metadata.get("uid")) and (is_bound or pod.has_status)
    )


def _is_patch_of_pod(pod: Pod) -> bool:
    """Return whether a container has no image, or stands for every container of another pod."""
    return pod.layout is POD_SPEC and any(
        not container.image or container.name == EVERY_CONTAINER for container in pod.containers
    )


def is_pod_spec(pod: Pod) -> bool:
    """Return whether the fields of `pod` beside its containers are those of a pod spec for certain.

    In a custom resource they may have another meaning.
    """
    return pod.path[-2:] == ("template", "spec") or pod.object.kind == "Pod"

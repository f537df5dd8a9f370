"""Read-only views of objects for rules that are not about their pods."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Self

from rules.base.json_values import Json, Path, as_object, as_objects, as_text, find_value
from rules.objects.object_ref import ObjectRef
from rules.objects.pod import Pod
from rules.objects.view import SubjectView, Views
from rules.profile.profile import Profile

CLAIM_GROUP = "resource.k8s.io"
# Kind -> the path of the claim's spec.
CLAIM_SPEC_PATHS: Mapping[str, tuple[str, ...]] = {
    "ResourceClaim": ("spec",),
    "ResourceClaimTemplate": ("spec", "spec"),
}

_MAX_NAME_CHARACTERS = 63  # characters: the name is a label of DNS


class DeviceRequest(NamedTuple):
    """A request of a claim: its `fields`, which are at `path` of the manifest, and its name.

    An alternative has the name of the request, a slash, and its own. Where the API server accepts
    no name, as one that is missing or there twice, it is the index: `#1`.
    """

    path: Path
    fields: Mapping[str, Any]
    name: str


class DeviceSelector(NamedTuple):
    """A selector: its `expression` at `path`, and the request and the class that it narrows.

    `name` is the same as long as no author reorders the selectors of a request.
    """

    path: Path
    expression: str
    name: str
    class_name: str


class DeviceSpec(SubjectView):
    """A selection of devices: a DeviceClass, or a claim. `spec` is at `path` of the manifest.

    `raw` is the whole object, which is at `base`.
    """

    def __init__(
        self, owner: ObjectRef, profile: Profile, raw: Mapping[str, Any], base: Path
    ) -> None:
        steps = CLAIM_SPEC_PATHS.get(owner.kind, ("spec",))
        self.object = owner
        self.profile = profile
        self.raw = raw
        self.base = base
        self.path: Path = (*base, *steps)
        self.spec = raw
        for step in steps:
            self.spec = as_object(self.spec.get(step))
        self.stable_path = ".".join(steps)

    def _in_manifest(self, manifest: Json) -> Self:
        raw = as_object(find_value(manifest, self.base))
        if raw is self.raw:
            return self
        view = self._copy()
        view.raw, view.spec = raw, as_object(find_value(manifest, self.path))
        return view

    def selectors(self) -> Iterator[DeviceSelector]:
        """Every selector in CEL."""
        yield from _selectors(self.spec, self.path, "", "")


class DeviceClaim(DeviceSpec):
    """A claim for devices, or a template of claims."""

    @property
    def version(self) -> str:
        """The version of the API in which it is written, such as `v1`."""
        return as_text(self.raw.get("apiVersion")).rpartition("/")[2]

    def selectors(self) -> Iterator[DeviceSelector]:
        """Every selector in CEL, with the class of the request that it is in."""
        for request in self.requests():
            class_name = as_text(request.fields.get("deviceClassName"))
            yield from _selectors(request.fields, request.path, request.name, class_name)

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The metadata of the claim, or of every claim that is made from the template."""
        holder = self.raw
        for step in CLAIM_SPEC_PATHS[self.object.kind][:-1]:
            holder = as_object(holder.get(step))
        return as_object(holder.get("metadata"))

    @property
    def metadata_path(self) -> Path:
        """Return the path of `metadata`: beside the spec."""
        return (*self.path[:-1], "metadata")

    @property
    def annotations(self) -> Mapping[str, Any]:
        """The annotations of the claim, or of every claim that is made from the template."""
        return as_object(self.metadata.get("annotations"))

    def requests(self) -> Iterator[DeviceRequest]:
        """Every request, and every alternative of one.

        Until v1beta1 a request has the fields itself, and since v1beta2 in `exactly`.
        """
        listed = as_object(self.spec.get("devices")).get("requests")
        for index, name, request in _with_unique_names(listed):
            path = (*self.path, "devices", "requests", index)
            yield DeviceRequest(path, request, name)
            yield DeviceRequest((*path, "exactly"), as_object(request.get("exactly")), name)
            for number, own_name, alternative in _with_unique_names(request.get("firstAvailable")):
                place = (*path, "firstAvailable", number)
                yield DeviceRequest(place, alternative, f"{name}/{own_name}")


def _selectors(
    fields: Mapping[str, Any], path: Path, name: str, class_name: str
) -> Iterator[DeviceSelector]:
    for index, selector in as_objects(fields.get("selectors")):
        expression = as_object(selector.get("cel")).get("expression")
        if isinstance(expression, str):
            place = (*path, "selectors", index, "cel", "expression")
            own_name = f"{name}.{index}" if name else str(index)
            yield DeviceSelector(place, expression, own_name, class_name)


def _with_unique_names(listed: Any) -> Iterator[tuple[int, str, Mapping[str, Any]]]:
    """The index, a name of its own, and the fields of each entry of a list."""
    names: set[str] = set()
    for index, entry in as_objects(listed):
        name = as_text(entry.get("name"))[:_MAX_NAME_CHARACTERS]
        if not name or name in names:
            name = f"#{index}"
        names.add(name)
        yield index, name, entry


_JOB_SPEC_PATHS: Mapping[str, Path] = {"Job": ("spec",), "CronJob": ("spec", "jobTemplate", "spec")}


class KubernetesObject(SubjectView):
    """The object `raw`, which is at `path` of the manifest.

    - `kind_trait`: the trait of its kind, 0 for a workload.
    - `pods`: those of a workload; they are subjects of their own as well.
    """

    stable_path = ""

    def __init__(
        self,
        owner: ObjectRef,
        profile: Profile,
        raw: Mapping[str, Any],
        path: Path = (),
        *,
        kind_trait: int = 0,
        pods: tuple[Pod, ...] = (),
    ) -> None:
        self.object = owner
        self.profile = profile
        self.raw = raw
        self.path = path
        self.kind_trait = kind_trait
        self.pods = pods

    def _in_manifest(self, manifest: Json) -> Self:
        raw = as_object(find_value(manifest, self.path))
        if raw is self.raw:
            return self
        view = self._copy()
        view.raw = raw
        return view

    def in_manifest(self, manifest: Json, views: Views) -> Self:
        """Return the view of this object in `manifest`, with those of its pods."""
        view = super().in_manifest(manifest, views)
        if view is not self:
            view.pods = tuple(pod.in_manifest(manifest, views) for pod in self.pods)
        return view

    @property
    def job_spec(self) -> tuple[Path, Mapping[str, Any]] | None:
        """The path and the spec of the Job; None for other kinds, and for a part of an object."""
        steps = _JOB_SPEC_PATHS.get(self.object.kind)
        if steps is None or any(pod.is_partial for pod in self.pods):
            return None
        spec = self.raw
        for step in steps:
            spec = as_object(spec.get(str(step)))
        return (*self.path, *steps), spec

    def pods_at_a_time(self) -> Mapping[str, int]:
        """Return how many pods each field of the workload's spec makes run together."""
        spec = as_object(self.raw.get("spec"))
        completions = spec.get("completions")
        counts = {f: spec[f] for f in ("replicas", "parallelism") if type(spec.get(f)) is int}
        if "parallelism" in counts and type(completions) is int:
            counts["parallelism"] = min(counts["parallelism"], completions)
        return counts


# How the keys of a quota begin that limit a resource of pods.
LIMITS_PREFIX, REQUESTS_PREFIX = "limits.", "requests."


class Quota(SubjectView):
    """A ResourceQuota, or what a controller makes one of.

    It has its `hard` limits, and says whether it `has_scopes`.
    """

    def __init__(
        self,
        owner: ObjectRef,
        profile: Profile,
        hard: Mapping[str, Any],
        path: Path = ("spec", "hard"),
        *,
        stable_path: str = "spec.hard",
        has_scopes: bool = False,
    ) -> None:
        self.object = owner
        self.profile = profile
        self.hard = hard
        self.path = path
        self.stable_path = stable_path
        self.has_scopes = has_scopes

    @property
    def is_resource_quota(self) -> bool:
        """Return whether the object itself is a ResourceQuota, which the API server validates."""
        return self.object.kind == "ResourceQuota"

    def _in_manifest(self, manifest: Json) -> Self:
        hard = as_object(find_value(manifest, self.path))
        if hard is self.hard:
            return self
        view = self._copy()
        view.hard = hard
        return view

"""A read-only view of one container of a pod."""

from collections.abc import Mapping
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from rules.base.caching import cached_property
from rules.base.json_values import Path, as_object, as_objects, as_text, quote
from rules.objects.view import View
from rules.profile.profile import Profile

Role = Literal["init", "app", "ephemeral"]
"""The purpose of a container."""


class PodLayout(NamedTuple):
    """The places of a pod spec's fields in a kind of workload. The defaults are a pod spec's.

    - `container_lists`: the paths of the lists of containers, from the spec, with the role of the
      containers in each.
    - `single_containers`: fields that hold one container.
    - `is_container`: the spec is both the pod and its main container.
    - `metadata_in_spec`: annotations and labels are fields of the spec.
    - `resources_field`: the container's field of limits and requests.
    - `resources_overlay`: the resources are laid over those of another object, such as a training
      runtime, so a limit that is missing here may be there.
    - `is_whole`: nothing else adds to the pod. It is not, if a runtime or an operator does: what is
      missing here may be there.
    - `is_part`: the rest of the pod is elsewhere in the object, such as what asks for the GPU, so
      nothing in it is fixed.
    - `gpu_field`: the field, if any, that holds a GPU resource's name and quantity instead.
    - `settings_field`: the field beside the spec, if any, of whose settings some ask for GPUs, too.
    - `variables_field`: the field of the main container, if any, that maps variables to values.
    - `is_text`: the spec is JSON in a text.
    - `is_service`: the object at its place is a service of Dynamo, of which the spec is made.
    - `is_merged`: the spec is made of another object's template, to which the last step but one of
      its path refers, and of the fields of this one.
    """

    container_lists: tuple[tuple[tuple[str, ...], Role], ...] = (
        (("initContainers",), "init"),
        (("containers",), "app"),
        (("ephemeralContainers",), "ephemeral"),
    )
    single_containers: tuple[str, ...] = ()
    is_container: bool = False
    metadata_in_spec: bool = False
    resources_field: str = "resources"
    resources_overlay: bool = False
    is_whole: bool = True
    is_part: bool = False
    gpu_field: str = ""
    settings_field: str = ""
    variables_field: str = ""
    is_text: bool = False
    is_service: bool = False
    is_merged: bool = False


POD_SPEC = PodLayout()
CONTAINER_LISTS = tuple(path[0] for path, _ in POD_SPEC.container_lists)
"""The fields of an ordinary pod spec that hold containers."""

_get_name = itemgetter("name")
_TEXT_TYPES = frozenset({str})


def is_host_process(raw: Mapping[str, Any]) -> bool:
    """Return whether the security context of a container or pod spec asks for HostProcess."""
    security = raw.get("securityContext")
    if not security:
        return False
    return as_object(as_object(security).get("windowsOptions")).get("hostProcess") is True


def _variables(entries: Any) -> Mapping[str, int]:
    try:
        names = list(map(_get_name, entries or ()))
    except (LookupError, TypeError):
        names = [None]  # not all are entries with a name
    if _TEXT_TYPES.issuperset(map(type, names)):
        return dict(zip(names, range(len(names)), strict=True))
    return {as_text(entry.get("name")): index for index, entry in as_objects(entries)}


def name_of_container(raw: Mapping[str, Any], path: Path) -> str:
    """The name of the container `raw`, which is at `path`; its index or field without one."""
    return as_text(raw.get("name")) or str(path[-1])


class Container(View):
    """One container of a pod: init, app or ephemeral.

    - `source`: the container as written, at `path` of the manifest; `raw`: the same, with the
      variables of its map, if any.
    - `is_pod_spec`: the pod spec itself is the container, as some custom resources have it.
    - `gpus_of_settings`: the GPU resources that settings beside the pod spec ask for.
    - `is_fraction_target`: annotations of the pod ask for a part of a GPU for this container.
    """

    def __init__(
        self,
        source: Mapping[str, Any],
        path: Path,
        role: Role,
        *,
        profile: Profile,
        layout: PodLayout,
        is_pod_spec: bool,
        gpus_of_settings: Mapping[str, Any] = MappingProxyType({}),
        is_fraction_target: bool = False,
    ) -> None:
        self._variables_field = layout.variables_field if is_pod_spec else ""
        self.source = source
        self.raw = self._with_variables(source) if self._variables_field else source
        self.path = path
        self.role = role
        self.profile = profile
        self._gpu_field = layout.gpu_field if is_pod_spec else ""
        self._gpus_of_settings = gpus_of_settings
        self._own_resources_field = layout.resources_field
        self.name = name_of_container(source, path)
        self.is_fraction_target = is_fraction_target

    def _with_variables(self, raw: Mapping[str, Any]) -> Mapping[str, Any]:
        """The container with the entries of its map of variables, if any, after its `env`."""
        variables = as_object(raw.get(self._variables_field))
        if not variables:
            return raw
        own = [entry for _, entry in as_objects(raw.get("env"))]
        mapped = ({"name": name, "value": value} for name, value in variables.items())
        return {**raw, "env": [*own, *mapped]}

    def __str__(self) -> str:
        kind = "container" if self.role == "app" else f"{self.role} container"
        # In a file the name may be any text, and a line break would spoil the message.
        return f"{kind} {quote(self.name[:63])}"

    @cached_property
    def image(self) -> str:
        """The image reference, empty if none is given."""
        return as_text(self.raw.get("image"))

    @cached_property
    def env(self) -> Mapping[str, int]:
        """The variables in `env`, each with the index of its last entry, which decides."""
        return _variables(self.raw.get("env"))

    def env_entries(self, variable: str) -> list[tuple[int, Mapping[str, Any]]]:
        """Every entry of `variable` in `env` with its index, in order."""
        if variable not in self.env:
            return []
        entries, last = self.raw["env"], self.env[variable]
        is_unique = len(self.env) == len(entries)
        return [(last, entries[last])] if is_unique else self._entries_by_name[variable]

    @cached_property
    def _entries_by_name(self) -> Mapping[str, list[tuple[int, Mapping[str, Any]]]]:
        entries: dict[str, list[tuple[int, Mapping[str, Any]]]] = {}
        for index, entry in as_objects(self.raw.get("env")):
            entries.setdefault(as_text(entry.get("name")), []).append((index, entry))
        return entries

    @cached_property
    def env_from_by_prefix(self) -> Mapping[str, tuple[int, Mapping[str, Any]]]:
        """The last entry of `envFrom` with its index, by the prefix; those without are left out."""
        entries = as_objects(self.raw.get("envFrom"))
        return {prefix: e for e in entries if (prefix := as_text(e[1].get("prefix")))}

    def env_path(self, variable: str) -> Path:
        """Return the path of the last entry of `variable`, which must be in `env`."""
        return self.env_entry_path(self.env[variable])

    def env_entry_path(self, index: int) -> Path:
        """Return the path of the entry `index` of `env`."""
        if self.is_in_variable_map(index):
            return (*self.path, self._variables_field, self.raw["env"][index]["name"])
        return (*self.path, "env", index)

    def is_in_variable_map(self, index: int) -> bool:
        """Return whether the entry `index` of `env` stands in the map of variables."""
        return bool(self._variables_field) and index >= self.env_list_length

    @property
    def env_list_length(self) -> int:
        """Return how many entries of `env` are in the list; the others are in the map."""
        variables = as_object(self.raw.get(self._variables_field)) if self._variables_field else {}
        return len(self.raw.get("env") or ()) - len(variables)

    def env_value_path(self, variable: str) -> Path:
        """Return the path of the literal in the last entry of `variable`, which `env` must have."""
        path = self.env_path(variable)
        return path if self.is_in_variable_map(self.env[variable]) else (*path, "value")

    def env_value(self, variable: str) -> str | None:
        """The literal that `variable` is set to, the last entry winning; None for any other."""
        if variable not in self.env:
            return None
        entry = self.raw["env"][self.env[variable]]
        if entry.get("valueFrom") is not None:
            return None
        value = entry.get("value")
        return "" if value is None else str(value)

    @cached_property
    def resources(self) -> Mapping[str, Any]:
        """The `resources` object, wherever this kind of workload keeps it."""
        if not self._gpu_field:
            return as_object(self.raw.get(self._resources_field))
        gpu = as_object(self.raw.get(self._gpu_field))
        own = {as_text(gpu.get("name")): gpu.get("quantity")} if gpu else {}
        limits = {**self._gpus_of_settings, **own}
        return {"limits": limits} if limits else {}

    @property
    def resources_path(self) -> Path:
        """Return the path where `resources` stands, or would stand."""
        return (*self.path, self._resources_field)

    def amount_path(self, name: str) -> Path:
        """Return the path of the amount of the resource `name`: in limits, or else in requests."""
        return (*self.resources_path, "limits" if name in self.limits else "requests", name)

    @property
    def _resources_field(self) -> str:
        own = self._own_resources_field
        # An older version of the kind may have the field under its common name.
        return own if own in self.raw or "resources" not in self.raw else "resources"

    @cached_property
    def limits(self) -> Mapping[str, Any]:
        """`resources.limits` as written."""
        return as_object(self.resources.get("limits"))

    @cached_property
    def requests(self) -> Mapping[str, Any]:
        """`resources.requests` as written."""
        return as_object(self.resources.get("requests"))

    @cached_property
    def claims(self) -> list[tuple[int, Mapping[str, Any]]]:
        """The DRA claims that the container uses, with their indices."""
        return as_objects(self.resources.get("claims"))

    @cached_property
    def security_context(self) -> Mapping[str, Any]:
        """The container's own `securityContext`."""
        return as_object(self.raw.get("securityContext"))

    @property
    def is_privileged(self) -> bool:
        """Return whether `securityContext.privileged` is true."""
        return self.security_context.get("privileged") is True

    @cached_property
    def added_capabilities(self) -> list[tuple[int, str]]:
        """`capabilities.add` with indices, in upper case and without the `CAP_` prefix."""
        added = as_object(self.security_context.get("capabilities")).get("add")
        if not isinstance(added, list):
            return []
        return [(i, as_text(name).upper().removeprefix("CAP_")) for i, name in enumerate(added)]

    @property
    def has_sys_admin(self) -> bool:
        """Return whether CAP_SYS_ADMIN is set, so that the toolkit takes it for privileged."""
        return self.is_privileged or any(
            n in {"SYS_ADMIN", "ALL"} for _, n in self.added_capabilities
        )

    @cached_property
    def mounts(self) -> list[tuple[int, Mapping[str, Any]]]:
        """`volumeMounts` with their indices."""
        return as_objects(self.raw.get("volumeMounts"))

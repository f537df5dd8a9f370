"""A read-only view of one container of a pod."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Any

from rules.base.caching import cached_property
from rules.base.json_access import as_object, as_objects, as_text, quote
from rules.base.json_values import Json, Path, find_value
from rules.objects.facts import forget_facts, kept_by_container
from rules.objects.pod_layout import PodLayout, Role
from rules.profile.profile import Profile
from rules.profile.records import VisibleDevices

_NAME = itemgetter("name")
_TEXT = frozenset({str})


def is_host_process(raw: Mapping[str, Any]) -> bool:
    """Whether the security context of a container, or of a pod spec, asks for HostProcess."""
    security = raw.get("securityContext")
    if not security:
        return False
    return as_object(as_object(security).get("windowsOptions")).get("hostProcess") is True


class Container:
    """One container of a pod: init, app or ephemeral.

    `raw` is the container as written, at `path` of the manifest. `is_pod_spec` says that the pod
    spec itself is the container, as some custom resources have it.
    """

    # Filled by `gpu.devices`, `gpu.visibility` and `traits.extraction`, and by nothing else.
    devices: dict[str, Any] | None = None
    request: Any = None
    requests_gpu: bool | None = None
    resource_traits: int | None = None
    variable_traits: int | None = None
    other_traits: int | None = None
    visible_variables: dict[str, VisibleDevices] | None = None

    def __init__(
        self,
        raw: Mapping[str, Any],
        path: Path,
        role: Role,
        *,
        profile: Profile,
        layout: PodLayout,
        is_pod_spec: bool,
    ) -> None:
        self.raw = raw
        self.path = path
        self.role = role
        self.profile = profile
        self._gpu_field = layout.gpu_field if is_pod_spec else ""
        self._own_resources_field = layout.resources_field
        self.name = as_text(raw.get("name")) or str(path[-1])
        self.is_fraction_target = False
        """Whether annotations of the pod ask for a part of a GPU for this container."""

    def refresh(self, manifest: Json, field: str | int) -> None:
        """Show this container as it is in `manifest`, where edits have changed its `field`."""
        self.raw = as_object(find_value(manifest, self.path))
        forget_facts(self, kept_by_container(field))

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
        entries = self.raw.get("env")
        try:
            names = list(map(_NAME, entries or ()))
        except (LookupError, TypeError):
            names = [None]  # not all are entries with a name
        if _TEXT.issuperset(map(type, names)):
            return dict(zip(names, range(len(names)), strict=True))
        return {as_text(entry.get("name")): index for index, entry in as_objects(entries)}

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
    def prefixes(self) -> Mapping[str, tuple[int, Mapping[str, Any]]]:
        """The last entry of `envFrom` with its index, by the prefix; those without are left out."""
        entries = as_objects(self.raw.get("envFrom"))
        return {prefix: e for e in entries if (prefix := as_text(e[1].get("prefix")))}

    def value_of(self, variable: str) -> str | None:
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
        if self._gpu_field:
            return {}
        return as_object(self.raw.get(self._resources_field))

    @property
    def resources_path(self) -> Path:
        """Where `resources` stands, or would stand."""
        return (*self.path, self._resources_field)

    @property
    def _resources_field(self) -> str:
        own = self._own_resources_field
        # An older version of the kind may have the field under its common name.
        return own if own in self.raw or "resources" not in self.raw else "resources"

    @cached_property
    def limits(self) -> Mapping[str, Any]:
        """`resources.limits` as written."""
        if self._gpu_field:
            gpu = as_object(self.raw.get(self._gpu_field))
            return {as_text(gpu.get("name")): gpu.get("quantity")} if gpu else {}
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
    def privileged(self) -> bool:
        """Whether `securityContext.privileged` is true."""
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
        """Whether the container toolkit takes it for privileged: CAP_SYS_ADMIN is in its set."""
        return self.privileged or any(n in {"SYS_ADMIN", "ALL"} for _, n in self.added_capabilities)

    @cached_property
    def mounts(self) -> list[tuple[int, Mapping[str, Any]]]:
        """`volumeMounts` with their indices."""
        return as_objects(self.raw.get("volumeMounts"))

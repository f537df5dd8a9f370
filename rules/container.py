"""A read-only view of one container of a pod."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from rules.document import Path
from rules.reading import items, mapping, text

if TYPE_CHECKING:
    from rules.pod import Pod

Role = Literal["init", "app", "ephemeral"]


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
        return mapping(self.raw.get(self._resources_field))

    @property
    def _gpu_field(self) -> str:
        return self.pod.layout.gpu_field if self.raw is self.pod.spec else ""

    @property
    def resources_path(self) -> Path:
        """Where `resources` stands, or would stand."""
        return (*self.path, self._resources_field)

    @property
    def _resources_field(self) -> str:
        own = self.pod.layout.resources
        # An older version of the kind may have the field under its common name.
        return own if own in self.raw or "resources" not in self.raw else "resources"

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

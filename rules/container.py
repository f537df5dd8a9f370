"""A read-only view of one container of a pod."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from rules.document import Path
from rules.lazy import kept
from rules.reading import items, mapping, quoted, text

if TYPE_CHECKING:
    from rules.pod import Pod

Role = Literal["init", "app", "ephemeral"]
# What is read from one field alone, and costs more than taking it over.
_FACTS = {
    "env": ("env", "variable_traits"),
    "resources": ("resources", "limits", "requests", "claims", "devices", "resource_traits"),
}


class Container:
    """One container of a pod: init, app or ephemeral."""

    def __init__(self, pod: Pod, raw: Mapping[str, Any], path: Path, role: Role) -> None:
        # Only a weak reference: what refers to itself waits for the garbage collector.
        self._pod = pod.reference
        self.profile = pod.profile
        self._layout = pod.layout
        self._is_pod = raw is pod.spec
        self.raw = raw
        self.path = path
        self.role = role
        self.name = text(raw.get("name")) or str(path[-1])
        # Kept by `devices` and `traits`, which alone may fill them.
        self.devices: dict[str, Any] | None = None
        self.holds: bool | None = None
        self.traits: int | None = None
        self.resource_traits: int | None = None
        self.variable_traits: int | None = None

    @property
    def pod(self) -> Pod:
        """The pod, which somebody must keep for as long as it is asked for."""
        pod = self._pod()
        if pod is None:
            raise ReferenceError("the pod of this container is no longer kept")
        return pod

    def belongs_to(self, pod: Pod) -> None:
        """Take `pod`, a later state, for the one that the container, itself unchanged, is in."""
        self._pod = pod.reference

    def inherit(self, old: Container) -> None:
        """Take over the facts about fields that are the same objects as in the `old` state."""
        for field, facts in _FACTS.items():
            if self.raw.get(field) is old.raw.get(field):
                known = old.__dict__
                self.__dict__.update({fact: known[fact] for fact in facts if fact in known})

    def __str__(self) -> str:
        kind = "container" if self.role == "app" else f"{self.role} container"
        # In a file the name may be any text, and a line break would spoil the message.
        return f"{kind} {quoted(self.name[:63])}"

    @kept
    def image(self) -> str:
        """The image reference, empty if none is given."""
        return text(self.raw.get("image"))

    @kept
    def env(self) -> Mapping[str, list[tuple[int, Mapping[str, Any]]]]:
        """Every entry of `env` with its index, by the name of the variable, in order."""
        entries: dict[str, list[tuple[int, Mapping[str, Any]]]] = {}
        for listed in items(self.raw.get("env")):
            name = listed[1].get("name")
            if type(name) is not str:
                name = text(name)
            if name in entries:
                entries[name].append(listed)
            else:
                entries[name] = [listed]
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

    @kept
    def resources(self) -> Mapping[str, Any]:
        """The `resources` object, wherever this kind of workload keeps it."""
        if self._gpu_field:
            return {}
        return mapping(self.raw.get(self._resources_field))

    @property
    def _gpu_field(self) -> str:
        return self._layout.gpu_field if self._is_pod else ""

    @property
    def resources_path(self) -> Path:
        """Where `resources` stands, or would stand."""
        return (*self.path, self._resources_field)

    @property
    def _resources_field(self) -> str:
        own = self._layout.resources
        # An older version of the kind may have the field under its common name.
        return own if own in self.raw or "resources" not in self.raw else "resources"

    @kept
    def limits(self) -> Mapping[str, Any]:
        """`resources.limits` as written."""
        if self._gpu_field:
            gpu = mapping(self.raw.get(self._gpu_field))
            return {text(gpu.get("name")): gpu.get("quantity")} if gpu else {}
        return mapping(self.resources.get("limits"))

    @kept
    def requests(self) -> Mapping[str, Any]:
        """`resources.requests` as written."""
        return mapping(self.resources.get("requests"))

    @kept
    def claims(self) -> list[tuple[int, Mapping[str, Any]]]:
        """The DRA claims that the container uses, with their indices."""
        return items(self.resources.get("claims"))

    @kept
    def security_context(self) -> Mapping[str, Any]:
        """The container's own `securityContext`."""
        return mapping(self.raw.get("securityContext"))

    @property
    def privileged(self) -> bool:
        """Whether `securityContext.privileged` is true."""
        return self.security_context.get("privileged") is True

    @kept
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

    @kept
    def mounts(self) -> list[tuple[int, Mapping[str, Any]]]:
        """`volumeMounts` with their indices."""
        return items(self.raw.get("volumeMounts"))

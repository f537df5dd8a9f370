"""Which paths of the node a pod mounts into its containers."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from rules.base.json_access import as_object, as_text
from rules.base.json_patch import Path
from rules.gpu.expansion import expand
from rules.objects.container import Container
from rules.objects.pod import Pod

_PROCESS_ROOT = re.compile(r"/proc/[^/]+/(?:task/[^/]+/)?(?:root|cwd)(?=/|$)")


class HostMount(NamedTuple):
    """A container sees `path` of the node through `volume`; `field` is the volume's path field."""

    container: Container
    volume: str
    path: str
    field: Path
    read_only: bool

    @property
    def key(self) -> str:
        """The `key` of findings about the volume."""
        return f"volume.{self.volume}"


def host_mounts(pod: Pod) -> Iterator[HostMount]:
    """Every mount of a hostPath volume in a container. The path includes `subPath`.

    A volume that no container mounts yields nothing.
    """
    volumes = {as_text(v.get("name")): (i, p) for i, v in pod.volumes if (p := host_path(v))}
    if not volumes:
        return
    for container in pod.containers:
        for _, mount in container.mounts:
            name = as_text(mount.get("name"))
            if name in volumes:
                index, path = volumes[name]
                node_path = clean_path(f"{path}/{_sub_path(container, mount)}")
                field = (*pod.path, "volumes", index, "hostPath", "path")
                yield HostMount(container, name, node_path, field, mount.get("readOnly") is True)


def by_volume(mounts: Iterable[HostMount]) -> Iterator[tuple[HostMount, ...]]:
    """`mounts` in one group for each volume."""
    groups: dict[str, list[HostMount]] = {}
    for mount in mounts:
        groups.setdefault(mount.volume, []).append(mount)
    return map(tuple, groups.values())


def containers_of(mounts: Iterable[HostMount]) -> tuple[Container, ...]:
    """The containers that have `mounts`."""
    return tuple(mount.container for mount in mounts)


def _sub_path(container: Container, mount: Mapping[str, Any]) -> str:
    """The mounted part of the volume; empty, which means all of it, if the pod does not show it."""
    sub_path = as_text(mount.get("subPath"))
    return sub_path or expand(container, as_text(mount.get("subPathExpr"))) or ""


def host_path(volume: Mapping[str, Any]) -> str | None:
    """The path on the node that `volume` shows, as `clean_path` writes it; None if no hostPath."""
    path = as_object(volume.get("hostPath")).get("path")
    return clean_path(path) if isinstance(path, str) and path else None


def clean_path(path: str) -> str:
    """`path` without `.`, `..`, doubled or trailing slashes, always absolute.

    The root and the working directory of a process in `/proc` count as the root of the node.
    """
    path = posixpath.normpath("/" + path.lstrip("/"))
    while root := _PROCESS_ROOT.match(path):
        path = "/" + path[root.end() :].lstrip("/")
    return path

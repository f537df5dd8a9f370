"""Which paths of its node a pod shows to its containers."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rules.base.json_access import as_object, as_text
from rules.base.json_patch import Path
from rules.objects.container import Container
from rules.objects.pod import Pod

_PROCESS_ROOT = re.compile(r"/proc/[^/]+/(?:task/[^/]+/)?(?:root|cwd)(?=/|$)")


class HostMount(NamedTuple):
    """A container sees `path` of the node through the volume `volume`, declared at `field`."""

    container: Container
    volume: str
    path: str
    field: Path
    read_only: bool

    @property
    def key(self) -> str:
        """What findings about the volume are known by."""
        return f"volume.{self.volume}"


def host_mounts(pod: Pod) -> Iterator[HostMount]:
    """Every mount of a hostPath volume, `subPath` included; a volume that nobody mounts is none."""
    volumes = {as_text(v.get("name")): (i, p) for i, v in pod.volumes if (p := host_path(v))}
    if not volumes:
        return
    for container in pod.containers:
        for _, mount in container.mounts:
            name = as_text(mount.get("name"))
            if name in volumes:
                index, path = volumes[name]
                seen = clean_path(f"{path}/{_sub_path(mount)}")
                field = (*pod.path, "volumes", index, "hostPath", "path")
                yield HostMount(container, name, seen, field, mount.get("readOnly") is True)


def _sub_path(mount: Mapping[str, Any]) -> str:
    """The part of the volume that is mounted; all of it may be, where the kubelet fills it in."""
    below = as_text(mount.get("subPath")) or as_text(mount.get("subPathExpr"))
    return "" if "$(" in below else below


def host_path(volume: Mapping[str, Any]) -> str | None:
    """The host's path that `volume` shows, cleaned; None if it is no hostPath."""
    path = as_object(volume.get("hostPath")).get("path")
    return clean_path(path) if isinstance(path, str) and path else None


def clean_path(path: str) -> str:
    """`path` without `.`, `..`, doubled or trailing slashes, always absolute.

    What a process of the node sees as its root, or works in, counts as the node's root.
    """
    path = posixpath.normpath("/" + path.lstrip("/"))
    while root := _PROCESS_ROOT.match(path):
        path = "/" + path[root.end() :].lstrip("/")
    return path

"""The shared memory of a pod: volumes in memory, and what its containers have at /dev/shm."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rules.base.json_access import as_object, as_text
from rules.objects.container import Container
from rules.objects.pod import Pod

SHARED_MEMORY = "/dev/shm"  # noqa: S108  # a path in a container, not a file that we make
# Characters of the longest path that a kernel accepts (limits.h, PATH_MAX).
_LONGEST_PATH = 4096


class MemoryVolume(NamedTuple):
    """An `emptyDir` in memory: its position in `volumes`, its name, the `emptyDir` as written."""

    position: int
    name: str
    source: Mapping[str, Any]


def memory_volumes(pod: Pod) -> Iterator[MemoryVolume]:
    """The volumes of `pod` that are in memory. Those of huge pages are not counted."""
    for index, volume in pod.volumes:
        source = as_object(volume.get("emptyDir"))
        if source.get("medium") == "Memory":
            yield MemoryVolume(index, as_text(volume.get("name")), source)


def shared_memory_mount(container: Container) -> Mapping[str, Any] | None:
    """The mount at /dev/shm, or at the directory above it; None if there is none."""
    for _, mount in container.mounts:
        path = as_text(mount.get("mountPath"))
        if len(path) <= _LONGEST_PATH and _clean(path) in {SHARED_MEMORY, "/dev"}:
            return mount
    return None


def _clean(path: str) -> str:
    return posixpath.normpath("/" + path.lstrip("/"))

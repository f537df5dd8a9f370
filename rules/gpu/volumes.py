"""Which paths of the node a pod mounts into its containers."""

import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rules.base.json_access import as_object, as_text
from rules.base.json_values import Path
from rules.gpu.expansion import expand
from rules.objects.container import Container
from rules.objects.pod import Pod

# Characters of the longest path that a kernel accepts (limits.h, PATH_MAX).
LONGEST_PATH = 4096
_LONGEST = 5
_PROCESS_FOLDERS = (["root"], ["cwd"])


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


def host_mounts(pod: Pod) -> Sequence[HostMount]:
    """Every mount of a hostPath volume in a container. The path includes `subPath`.

    A volume that no container mounts is left out, and so is a path that no kernel accepts.
    """
    if pod.host_mounts is None:
        pod.host_mounts = tuple(_host_mounts(pod))
    mounts: tuple[HostMount, ...] = pod.host_mounts
    return mounts


def _host_mounts(pod: Pod) -> Iterator[HostMount]:
    volumes = {as_text(v.get("name")): (i, p) for i, v in pod.volumes if (p := host_path(v))}
    if not volumes:
        return
    for container in pod.containers:
        for _, mount in container.mounts:
            name = as_text(mount.get("name"))
            if name in volumes:
                index, path = volumes[name]
                node_path = _join(path, _sub_path(container, mount))
                if len(node_path) > LONGEST_PATH:
                    continue
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


def _join(path: str, sub_path: str) -> str:
    """The cleaned path of `sub_path` in `path`, which is clean.

    Many mounts may show parts of one long path, so it is not cleaned for each of them.
    """
    if not sub_path:
        return path
    if path == "/" or path.startswith("/proc") or ".." in sub_path:
        return clean_path(f"{path}/{sub_path}")
    below = posixpath.normpath("/" + sub_path.lstrip("/"))
    return path if below == "/" else path + below


def host_path(volume: Mapping[str, Any]) -> str | None:
    """The path on the node that `volume` shows, as `clean_path` writes it; None if none."""
    path = as_object(volume.get("hostPath")).get("path")
    cleaned = clean_path(path) if isinstance(path, str) and path else ""
    return cleaned if 0 < len(cleaned) <= LONGEST_PATH else None


def clean_path(path: str) -> str:
    """`path` without `.`, `..`, doubled or trailing slashes, always absolute.

    The root and the working directory of a process in `/proc` count as the root of the node.
    """
    path = posixpath.normpath("/" + path.lstrip("/"))
    if not path.startswith("/proc/"):
        return path
    # A path can lead through many processes, so their parts are skipped and not cut off.
    parts = path.split("/")
    start = 1
    while length := _length_of_process_root(parts[start : start + _LONGEST]):
        start += length
    return "/" + "/".join(parts[start:])


def _length_of_process_root(parts: list[str]) -> int:
    """How many of `parts` lead to the root or working directory of a process; 0 if none do.

    They are `proc`, a process, perhaps `task` and a thread, then `root` or `cwd`.
    """
    if parts[0:1] != ["proc"]:
        return 0
    length = 5 if parts[2:3] == ["task"] else 3
    return length if parts[length - 1 : length] in _PROCESS_FOLDERS else 0

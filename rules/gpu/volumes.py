"""The mounts of a pod: paths of the node, device files, and memory; and devices in annotations."""

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from rules.base.json_values import Path, as_object, as_text
from rules.base.text_matching import has_placeholder
from rules.base.traits import DEVICE_LIST_FOLDER
from rules.gpu.commands.of_containers import expand_variables
from rules.objects.container import Container
from rules.objects.pod import Pod
from rules.objects.view import once_per_view
from rules.profile.platforms.makers import DEVICE_FILE_PATTERN, NVIDIA_DEVICE
from rules.profile.platforms.node_paths import in_run
from rules.profile.profile import Profile

# Characters of the longest path that a kernel accepts (limits.h, PATH_MAX).
MAX_PATH_CHARACTERS = 4096
_MAX_STEPS_TO_PROCESS_ROOT = 5
_PROCESS_FOLDERS = (["root"], ["cwd"])


class HostMount(NamedTuple):
    """A container sees `path` of the node through `volume`; `field` is the volume's path field.

    With `is_recursive`, a mount that is read-only is so with all that is mounted below.
    """

    container: Container
    volume: str
    path: str
    field: Path
    is_read_only: bool
    is_recursive: bool

    @property
    def key(self) -> str:
        """The `key` of findings about the volume."""
        return f"volume.{self.volume}"


@once_per_view
def host_mounts(pod: Pod) -> Sequence[HostMount]:
    """Every mount of a hostPath volume in a container. The path includes `subPath`.

    A volume that no container mounts is left out, and so is a path that no kernel accepts.
    """
    return tuple(_host_mounts(pod))


def _host_mounts(pod: Pod) -> Iterator[HostMount]:
    volumes = {as_text(v.get("name")): (i, p) for i, v in pod.volumes if (p := host_path(v))}
    if not volumes:
        return
    for container in pod.containers:
        for _, mount in container.mounts:
            name = as_text(mount.get("name"))
            if name in volumes:
                index, path = volumes[name]
                node_path = _join_sub_path(path, _sub_path(container, mount))
                if len(node_path) > MAX_PATH_CHARACTERS:
                    continue
                field = (*pod.path, "volumes", index, "hostPath", "path")
                yield HostMount(
                    container,
                    name,
                    node_path,
                    field,
                    is_read_only=mount.get("readOnly") is True,
                    is_recursive=mount.get("recursiveReadOnly") == "Enabled",
                )


def group_by_volume(mounts: Iterable[HostMount]) -> Iterator[tuple[HostMount, ...]]:
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
    return sub_path or expand_variables(container, as_text(mount.get("subPathExpr"))) or ""


def _join_sub_path(path: str, sub_path: str) -> str:
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
    return cleaned if 0 < len(cleaned) <= MAX_PATH_CHARACTERS else None


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
    while length := _length_of_process_root(parts[start : start + _MAX_STEPS_TO_PROCESS_ROOT]):
        start += length
    return "/" + "/".join(parts[start:])


def _length_of_process_root(parts: list[str]) -> int:
    """Return how many of `parts` lead to the root or working directory of a process; 0 if none do.

    They are `proc`, a process, perhaps `task` and a thread, then `root` or `cwd`.
    """
    if parts[0:1] != ["proc"]:
        return 0
    length = 5 if parts[2:3] == ["task"] else 3
    return length if parts[length - 1 : length] in _PROCESS_FOLDERS else 0


# The directories that contain them, and much else.
FOLDERS_ABOVE_DEVICES = ("/dev", "/")
# The files by which programs, such as virtual machines, drive devices of any kind themselves.
PASSED_THROUGH = r"/dev/vfio(/.+)?"
# NVIDIA's container toolkit takes mounts of /dev/null at such paths for requests
# (internal/config/image/cuda_image.go).
DEVICE_LIST_PATH = f"/var/run/{DEVICE_LIST_FOLDER}"
NULL_DEVICE = "/dev/null"
# Where NVIDIA's operator keeps the files of the driver, those of the devices among them
# (NVIDIA/gpu-operator assets/state-driver/0500_daemonset.yaml).
DRIVER_ROOTS = frozenset(
    in_run("nvidia", "nvidia/driver", "nvidia/driver/dev", "nvidia/driver/dev/dri")
)
NVIDIA_FILE = f"/dev/{NVIDIA_DEVICE}"
# Without the file of a card these give no access to one.
HELPER_FILE = r"/dev/nvidia(ctl|-uvm.*|-modeset|-caps(/.*)?)"
GPU_MAJOR_NUMBERS = (195, 226, 261)
"""The kernel's numbers of NVIDIA's driver, of DRM and of accelerators (drm/drm_accel.h)."""


def is_device_request(source: str, target: str) -> bool:
    """Return whether a mount of `source` at `target` requests a device from NVIDIA's toolkit.

    The device `void` is none: `device-list-mount` says what becomes of it. A source that is not
    known, such as `$DEVICE`, counts as the null device: no other file is of use at such a target.
    """
    path = clean_path(target)
    name = path.removeprefix(DEVICE_LIST_PATH).lstrip("/")
    is_named = path.startswith(DEVICE_LIST_PATH) and name not in {"", "void"}
    return is_named and (has_placeholder(source) or clean_path(source) == NULL_DEVICE)


def is_gpu_file(path: str) -> bool:
    """Return whether the cleaned `path` is a device file of a GPU, or a directory of GPU drivers.

    NVIDIA's files count below any directory: a driver may have its own root.
    """
    return (
        path in DRIVER_ROOTS
        or re.fullmatch(DEVICE_FILE_PATTERN, path) is not None
        or re.fullmatch(NVIDIA_FILE, path[max(path.rfind("/dev/nvidia"), 0) :]) is not None
    )


def is_passthrough_file(path: str) -> bool:
    """Return whether the cleaned `path` is a file of passed-through devices, perhaps GPUs."""
    return re.fullmatch(PASSED_THROUGH, path) is not None


def is_helper_device_file(path: str) -> bool:
    """Return whether the cleaned `path` is a file that NVIDIA's driver needs beside a card's."""
    return re.fullmatch(HELPER_FILE, path) is not None


SHARED_MEMORY_PATH = "/dev/shm"  # noqa: S108  # a path in a container, not a file that we make


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
        if len(path) <= MAX_PATH_CHARACTERS and _normalized(path) in {SHARED_MEMORY_PATH, "/dev"}:
            return mount
    return None


def _normalized(path: str) -> str:
    return posixpath.normpath("/" + path.lstrip("/"))


# Annotations by which plugins of the container runtime give devices to containers.
# `/` or `.` and a container's name may follow.
INJECTOR_DOMAINS = (
    *("devices.gke.io", "devices.nri.io", "cdi-devices.nri.io", "mounts.nri.io"),
    *("devices.noderesource.dev", "cdi-devices.noderesource.dev", "mounts.noderesource.dev"),
    *("io.kubernetes.cri-o.Devices", "devices.crio.io"),
)
_MAX_CHARACTERS = 4096
# Without these characters, every path and number of a YAML text stands in it as it is.
_UNREADABLE_PATTERN = r"[\\&*!|>%]"
_SEPARATORS_PATTERN = r"[\s\"'\[\]{},]+"
_DECIMAL_PATTERN = r"0|[1-9][0-9]{0,8}"


def is_plain_list(value: str) -> bool:
    """Return whether `names_of_gpus` can read the value of an annotation."""
    return len(value) <= _MAX_CHARACTERS and not re.search(_UNREADABLE_PATTERN, value)


def names_of_gpus(value: str, profile: Profile, *, with_helpers: bool) -> Iterator[str]:
    """Yield what the value of an annotation of INJECTOR_DOMAINS names that gives access to a GPU.

    `with_helpers`: also the files that belong to all cards.
    """
    words = [word.lstrip(":-?") for word in re.split(_SEPARATORS_PATTERN, value)]
    words = [word for word in words if word]
    for word, following in pairwise((*words, "")):
        if word.lower().rstrip(":") == "major" and _is_gpu_number(following):
            yield f"major: {following}"
        elif "=" in word and _is_gpu_kind(word.partition("=")[0], profile):
            yield word
        elif "/" in word:
            # CRI-O's form is source:destination:permissions.
            paths = (clean_path(word), clean_path(word.partition(":")[0]))
            if any(_shows_gpus(path, with_helpers=with_helpers) for path in paths):
                yield word


def _shows_gpus(path: str, *, with_helpers: bool) -> bool:
    if path in FOLDERS_ABOVE_DEVICES or path.startswith(DEVICE_LIST_PATH):
        return True
    return is_gpu_file(path) and (with_helpers or not is_helper_device_file(path))


def _is_gpu_number(number: str) -> bool:
    return re.fullmatch(_DECIMAL_PATTERN, number) is None or int(number) in GPU_MAJOR_NUMBERS


def _is_gpu_kind(kind: str, profile: Profile) -> bool:
    return is_accelerator_kind(kind) or profile.resource(kind) is not None


# Words in the classes of CDI devices, and in the names of makers' resources, which plugins use for
# classes: intel.com/gpu and intel.com/gaudi (intel/intel-resource-drivers-for-kubernetes
# pkg/*/device/device.go), intel.cdi.k8s.io/gpu (intel/intel-device-plugins-for-kubernetes
# pkg/deviceplugin/server.go), rebellions.ai/npu (https://docs.rbln.ai, "Container Toolkit"). Makers
# have other devices, too.
_CLASS_PATTERN = (
    r"gpu|(?:^|[_.-])(?:gaudi|hpu|xpu|npu|tpu|dcu|hcu|mlu|gcu|neuron|ascend|davinci|rngd|accel)"
    r"[0-9a-z]*(?:[_.-]|$)"
)
_NVIDIA_VENDOR = "nvidia.com"


def is_accelerator_kind(kind: str) -> bool:
    """Return whether CDI devices of `kind`, such as `intel.com/gpu`, are GPUs or the like."""
    vendor, _, device_class = kind.lower().partition("/")
    is_known = re.search(_CLASS_PATTERN, device_class) is not None
    return is_known or vendor == _NVIDIA_VENDOR or vendor.endswith(f".{_NVIDIA_VENDOR}")

"""Annotations by which plugins of the container runtime give devices to containers."""

import re
from collections.abc import Iterator
from itertools import pairwise

from rules.gpu.volumes import (
    DEVICE_LIST_PATH,
    FOLDERS_ABOVE_DEVICES,
    GPU_MAJOR_NUMBERS,
    clean_path,
    is_gpu_file,
    is_helper_device_file,
)
from rules.profile.profile import Profile

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
        elif "=" in word and _is_gpu_class(word.partition("=")[0], profile):
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


def _is_gpu_class(device_class: str, profile: Profile) -> bool:
    vendor = device_class.partition("/")[0]
    return vendor.endswith("nvidia.com") or profile.resource(device_class) is not None

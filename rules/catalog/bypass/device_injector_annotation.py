"""A pod annotation asks a device injector for the device files of GPUs.

What it does
------------
Finds annotations by which plugins of the container runtime give devices to containers, and whose
value names a GPU: a device file such as `/dev/nvidia0`, the number of a GPU's driver, or a CDI
device such as `nvidia.com/gpu=0`. The annotations are

- `devices.gke.io` of GKE's device injector, and `devices`, `cdi-devices` and `mounts` of
  containerd's, with `.noderesource.dev` or the older `.nri.io`; for the pod, or followed by `/pod`
  or by `/container.` and the container's name,
- `io.kubernetes.cri-o.Devices` and `devices.crio.io` of CRI-O.

A pod that requests all GPUs of a node may name all their files: the programs for GKE's fast
networks do. A pod that requests a GPU may name the files that belong to all cards, such as
`/dev/nvidiactl` and those in `/dev/nvidia-caps`, as Google tells users of a part of a card.

A value that is longer than 4,096 characters, or that uses tags, anchors, escapes or blocks of
YAML, is refused, because the rule does not read those.

Why it matters
--------------
The runtime creates the files in the container and allows access to them, although the scheduler
has not counted these GPUs and may have given them to other pods.

Fix safety
----------
The fix removes the annotation only if the policy says `fix: true`: the program may need the
devices.

Options
-------
`node_devices`: how many GPUs a node has (default 8). A pod that requests as many holds all of them.

References
----------
- GoogleCloudPlatform/container-engine-accelerators, `nri_device_injector/nri_device_injector.go`
- https://github.com/containerd/nri/tree/main/plugins/device-injector
- cri-o/cri-o, `pkg/annotations/v2`
"""

import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from rules.base.json_values import as_text, display, remove
from rules.base.quantity import Quantity
from rules.base.traits import GPU_METADATA_KEY
from rules.gpu.devices import Device, devices, pod_requests_gpu, requests_share
from rules.gpu.visibility import REQUEST_IN_LIMITS_ADVICE
from rules.gpu.volumes import (
    DEVICE_LIST_PATH,
    FOLDERS_ABOVE_DEVICES,
    GPU_MAJOR_NUMBERS,
    clean_path,
    is_gpu_file,
    is_helper_device_file,
)
from rules.rule import Action, Container, Context, Finding, Findings, Fix, Pod, define_rule

# `/` or `.` and a container's name may follow.
DOMAINS = (
    *("devices.gke.io", "devices.nri.io", "cdi-devices.nri.io", "mounts.nri.io"),
    *("devices.noderesource.dev", "cdi-devices.noderesource.dev", "mounts.noderesource.dev"),
    *("io.kubernetes.cri-o.Devices", "devices.crio.io"),
)
MAX_CHARACTERS = 4096
# Without these characters, every path and number of a YAML text stands in it as it is.
UNREADABLE_PATTERN = r"[\\&*!|>%]"
SEPARATORS_PATTERN = r"[\s\"'\[\]{},]+"
DECIMAL_PATTERN = r"0|[1-9][0-9]{0,8}"


def check(pod: Pod, context: Context) -> Findings:
    """Yield each annotation that names a GPU which the pod may not hold."""
    keys = [key for key in pod.annotations if key.startswith(DOMAINS)]
    if not keys or _least_whole_gpus(pod) >= context.options["node_devices"]:
        return
    for key in keys:
        value = as_text(pod.annotations[key])
        if len(value) > MAX_CHARACTERS or re.search(UNREADABLE_PATTERN, value):
            yield _finding(
                pod, key, "for devices in a way that gpuward does not read", _PLAIN_LIST_ADVICE
            )
        elif name := next(_names_of_gpus(value, pod), None):
            what = f"for {display(name)}, and with it for a GPU that the scheduler has not counted"
            yield _finding(pod, key, what, _REMOVE_ADVICE)


_PLAIN_LIST_ADVICE = "write the value as a list with one `- path: /dev/…` for each device"
_REMOVE_ADVICE = (
    f"remove the annotation and {REQUEST_IN_LIMITS_ADVICE}; "
    "a pod that requests all GPUs of a node may name their files (option `node_devices`)"
)


def _least_whole_gpus(pod: Pod) -> int:
    """Return how many whole GPUs of one kind the pod holds at least while its containers run."""
    most = 0
    together: Counter[str] = Counter()
    for container in pod.containers:
        for name, device in devices(container).items():
            if isinstance(device.limit, Quantity) and _is_whole(device, container):
                most = max(most, device.limit.value)
                together[name] += device.limit.value if container.role == "app" else 0
    return max(most, *together.values(), 0)


def _is_whole(device: Device, container: Container) -> bool:
    whole = device.resource.sharing == "whole" and device.resource.unit == "device"
    return whole and device.is_plain_count and not requests_share(container)


def _names_of_gpus(value: str, pod: Pod) -> Iterator[str]:
    """Yield what `value` names that gives access to a GPU."""
    words = [word.lstrip(":-?") for word in re.split(SEPARATORS_PATTERN, value)]
    words = [word for word in words if word]
    for word, following in pairwise((*words, "")):
        if word.lower().rstrip(":") == "major" and _is_gpu_number(following):
            yield f"major: {following}"
        elif "=" in word and _is_gpu_class(word.partition("=")[0], pod):
            yield word
        elif "/" in word:
            # CRI-O's form is source:destination:permissions.
            paths = (clean_path(word), clean_path(word.partition(":")[0]))
            if any(_shows_all_gpus(path) or _is_gpu_of_others(path, pod) for path in paths):
                yield word


def _shows_all_gpus(path: str) -> bool:
    return path in FOLDERS_ABOVE_DEVICES or path.startswith(DEVICE_LIST_PATH)


def _is_gpu_of_others(path: str, pod: Pod) -> bool:
    return is_gpu_file(path) and not (is_helper_device_file(path) and pod_requests_gpu(pod))


def _is_gpu_number(number: str) -> bool:
    return re.fullmatch(DECIMAL_PATTERN, number) is None or int(number) in GPU_MAJOR_NUMBERS


def _is_gpu_class(device_class: str, pod: Pod) -> bool:
    vendor = device_class.partition("/")[0]
    return vendor.endswith("nvidia.com") or pod.profile.resource(device_class) is not None


def _finding(pod: Pod, key: str, what: str, advice: str) -> Finding:
    path = (*pod.metadata_path, "annotations", key)
    return Finding(
        path=path,
        key=f"annotations.{key}",
        message=f"the pod's annotation {display(key)} asks a device injector {what}",
        help=advice,
        fix=Fix("remove the annotation", (remove(path),)),
    )


in_process = "it reads lists of devices in YAML"


RULE = define_rule(
    check, action=Action.DENY, since="0.1", needs=(GPU_METADATA_KEY,), options={"node_devices": 8}
)

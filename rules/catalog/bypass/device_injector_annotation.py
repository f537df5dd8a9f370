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

from collections import Counter

from rules.base.json_values import as_text, display, remove
from rules.base.quantity import Quantity
from rules.base.traits import GPU_METADATA_KEY
from rules.gpu.devices import Device, devices, pod_requests_gpu, requests_share
from rules.gpu.visibility import REQUEST_IN_LIMITS_ADVICE
from rules.gpu.volumes import INJECTOR_DOMAINS, is_plain_list, names_of_gpus
from rules.rule import Action, Container, Context, Finding, Findings, Fix, Pod, define_rule


def check(pod: Pod, context: Context) -> Findings:
    """Yield each annotation that names a GPU which the pod may not hold."""
    keys = [key for key in pod.annotations if key.startswith(INJECTOR_DOMAINS)]
    if not keys or _least_whole_gpus(pod) >= context.options["node_devices"]:
        return
    with_helpers = not pod_requests_gpu(pod)
    for key in keys:
        value = as_text(pod.annotations[key])
        if not is_plain_list(value):
            yield _finding(
                pod, key, "for devices in a way that gpuward does not read", _PLAIN_LIST_ADVICE
            )
        elif name := next(names_of_gpus(value, pod.profile, with_helpers=with_helpers), None):
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

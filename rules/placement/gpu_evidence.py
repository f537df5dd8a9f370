"""What shows that a pod has to do with GPUs, or that its node has some."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rules.base.json_access import display
from rules.gpu.components import is_made_by_daemon_set, shows_gpus
from rules.gpu.devices import (
    pod_requests_gpu,
    pod_uses_only_claims,
    requested_resources,
    uses_gpu_runtime,
)
from rules.gpu.images import is_cuda_image
from rules.gpu.visibility import NVIDIA, Visibility, display_variable, visibility
from rules.objects.container import Container
from rules.objects.pod import Pod
from rules.placement.gpu_nodes import gpu_node_label, hint_of_gpu_nodes
from rules.profile.context import Context

GPU, ACCELERATOR = "GPU", "accelerator"
GPU_MAKERS = ("nvidia", "amd")
DRIVER_VARIABLES = (
    *("NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_REQUIRE_", "NVIDIA_DISABLE_REQUIRE", "NVIDIA_MIG_"),
    *("NVIDIA_IMEX_CHANNELS", NVIDIA, "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_", "CUDA_MPS_"),
    *("CUDA_LAUNCH_BLOCKING", "CUDA_MODULE_LOADING", "CUDA_CACHE_"),
)
OTHER_VARIABLES = ("NVIDIA_", "CUDA_")
# The values of CUDA_VISIBLE_DEVICES by which programs hide all GPUs.
NO_DEVICES = ("", "-1", "NoDevFiles")


class Evidence(NamedTuple):
    """What a pod has to do with GPUs, for a message.

    - `pod`: completes "in …".
    - `devices`: what its node has: GPUs or other accelerators.
    - `is_certain`: false if the pod may also run on a node that has none.
    """

    pod: str
    devices: str = GPU
    is_certain: bool = True


def gpu_evidence(pod: Pod, context: Context) -> Iterator[Evidence]:
    """Yield what the pod has to do with GPUs, the strongest first."""
    if pod_requests_gpu(pod):
        yield _request(pod)
    if label := gpu_node_label(pod):
        yield Evidence(f"a pod for nodes with the label {display(label)}", _devices(label))
    yield from (
        _signs_of_agents(pod, context) if is_made_by_daemon_set(pod, context) else _signs(pod)
    )


def _request(pod: Pod) -> Evidence:
    if pod_uses_only_claims(pod):
        return Evidence("a pod with a resource claim, which may be for a GPU")
    name = next(iter(requested_resources(pod)), "")
    if not name:
        return Evidence("a pod that asks for a part of a GPU")
    resource = pod.profile.resource(name)
    is_gpu = "gpu" in name or (resource is not None and resource.vendor in GPU_MAKERS)
    return Evidence(f"a pod that asks for {display(name)}", GPU if is_gpu else ACCELERATOR)


def _signs(pod: Pod) -> Iterator[Evidence]:
    if uses_gpu_runtime(pod):
        name = pod.spec["runtimeClassName"]
        yield Evidence(f"a pod with the runtime class {display(name)}", _devices(name))
    for container in pod.containers:
        if is_cuda_image(container.image):
            yield Evidence(f"a pod with the image {display(container.image)}, which uses CUDA")
    if variable := _variable(pod, DRIVER_VARIABLES):
        yield Evidence(f"a pod with the variable {variable}")
    if key := hint_of_gpu_nodes(pod):
        where = f"a pod that prefers or tolerates nodes with {display(key)}"
        yield Evidence(where, _devices(key), is_certain=False)
    if variable := _variable(pod, OTHER_VARIABLES):
        yield Evidence(f"a pod with the variable {variable}", is_certain=False)


def _signs_of_agents(pod: Pod, context: Context) -> Iterator[Evidence]:
    """What else shows it in the pod of a DaemonSet, which may be an agent of its node."""
    for container in pod.containers:
        if shows_gpus(container, pod, context):
            image = display(container.image)
            yield Evidence(f"a pod with the image {image}, which uses CUDA", is_certain=False)


def _devices(name: str) -> str:
    """What nodes have of which `name` is a label, a taint or a runtime class."""
    return GPU if any(word in name.lower() for word in ("gpu", *GPU_MAKERS)) else ACCELERATOR


def _variable(pod: Pod, prefixes: tuple[str, ...]) -> str:
    """The first variable that begins with one of `prefixes` and does not hide the GPUs."""
    for container in pod.containers:
        for name in container.env:
            if name.startswith(prefixes) and not _hides(container, name):
                return display_variable(name)
    return ""


def _hides(container: Container, variable: str) -> bool:
    if variable == NVIDIA:
        return visibility(container) in (Visibility.HIDDEN, Visibility.DRIVER_ONLY)
    return variable == "CUDA_VISIBLE_DEVICES" and container.value_of(variable) in NO_DEVICES

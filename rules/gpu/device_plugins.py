"""Which workloads are device plugins of GPUs."""

from __future__ import annotations

from rules.gpu.host_paths import host_mounts
from rules.objects.kubernetes_object import KubernetesObject

# Where the sockets of device plugins are (k8s.io/kubelet pkg/apis/deviceplugin/v1beta1).
PLUGIN_FOLDER = "/var/lib/kubelet/device-plugins"
_MAKERS = (
    *("gpu", "nvidia", "cuda", "hami", "amd", "rocm", "intel", "habana", "gaudi"),
    *("ascend", "npu", "neuron", "mlu", "dcu", "metax"),
)


def device_plugin_words(workload: KubernetesObject) -> str:
    """The name and the images of a DaemonSet that is a device plugin of GPUs; empty for others.

    Such a DaemonSet mounts the folder of the kubelet in which plugins register, and its name or an
    image names a maker of accelerators. Network and storage plugins mount the same folder.
    """
    for pod in workload.pods:
        plugins = [m.container for m in host_mounts(pod) if m.path == PLUGIN_FOLDER]
        text = " ".join((workload.object.name, *(c.image for c in plugins))).lower()
        if plugins and any(maker in text for maker in _MAKERS):
            return text
    return ""

"""Which workloads are device plugins of GPUs, or exporters of their metrics."""

from __future__ import annotations

from rules.gpu.host_paths import host_mounts
from rules.objects.kubernetes_object import KubernetesObject

# Where the sockets of device plugins are (k8s.io/kubelet pkg/apis/deviceplugin/v1beta1).
PLUGIN_FOLDER = "/var/lib/kubelet/device-plugins"
_MAKERS = (
    *("gpu", "nvidia", "cuda", "hami", "amd", "rocm", "intel", "habana", "gaudi"),
    *("ascend", "npu", "neuron", "mlu", "dcu", "metax"),
)
# NVIDIA's Data Center GPU Manager; copies of its images have names without NVIDIA's.
_DCGM = "dcgm"


def device_plugin_words(workload: KubernetesObject) -> str:
    """The name and the images of a DaemonSet that is a device plugin of GPUs; empty for others.

    Such a DaemonSet mounts the folder of the kubelet in which plugins register, and its name or an
    image names a maker of accelerators. Network and storage plugins mount the same folder.
    """
    for pod in workload.pods:
        plugins = [m.container for m in host_mounts(pod) if m.path == PLUGIN_FOLDER]
        text = _words(workload, *(c.image for c in plugins))
        if plugins and any(maker in text for maker in _MAKERS):
            return text
    return ""


def exporter_words(workload: KubernetesObject) -> str:
    """The name and the images of a DaemonSet that exports metrics of GPUs; empty for others.

    It mounts a path of the node, its name or an image has the word `exporter`, and one of them
    names a maker of accelerators, as in `dcgm-exporter` and `amd-device-metrics-exporter`.
    """
    for pod in workload.pods if workload.object.kind == "DaemonSet" else ():
        text, mounts = _words(workload, *(c.image for c in pod.containers)), host_mounts(pod)
        if "exporter" not in text or not mounts or any(m.path == PLUGIN_FOLDER for m in mounts):
            continue
        if _DCGM in text:
            return f"{text} nvidia"
        if any(maker in text for maker in _MAKERS):
            return text
    return ""


def _words(workload: KubernetesObject, *images: str) -> str:
    # The architecture is not a maker.
    return " ".join((workload.object.name, *images)).lower().replace("amd64", "")

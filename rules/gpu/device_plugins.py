"""Which workloads are device plugins of GPUs, or exporters of their metrics."""

from __future__ import annotations

import re

from rules.gpu.images import full_repository
from rules.gpu.volumes import host_mounts
from rules.objects.kubernetes_object import KubernetesObject

# Where the sockets of device plugins are (k8s.io/kubelet pkg/apis/deviceplugin/v1beta1).
PLUGIN_FOLDER = "/var/lib/kubelet/device-plugins"
# The first part of a maker's domain in names of resources -> the words that name its accelerators.
# DCGM is NVIDIA's Data Center GPU Manager; copies of its images have names without NVIDIA's. The
# word `aws` names no accelerator: NVIDIA's run there too.
_WORDS = {
    "nvidia": frozenset({"nvidia", "cuda", "dcgm"}),
    "amd": frozenset({"amd", "amdgpu", "rocm"}),
    "intel": frozenset({"intel"}),
    "habana": frozenset({"habana", "gaudi"}),
    "huawei": frozenset({"huawei", "ascend"}),
    "aws": frozenset({"neuron"}),
}
_ACCELERATORS = frozenset({"hami", "npu", "mlu", "dcu", "metax"}).union(*_WORDS.values())
_NONE: frozenset[str] = frozenset()


def device_plugin_words(workload: KubernetesObject) -> frozenset[str]:
    """The words in the name and the images of a device plugin of GPUs; empty for others.

    Such a DaemonSet mounts the folder of the kubelet in which plugins register, and its name or an
    image names a maker of accelerators. Network and storage plugins mount the same folder.
    """
    for pod in workload.pods:
        images = [m.container.image for m in host_mounts(pod) if m.path == PLUGIN_FOLDER]
        words = _words(workload.object.name).union(*map(_image_words, images))
        if images and _names_accelerator(words):
            return words
    return _NONE


def exporter_words(workload: KubernetesObject) -> frozenset[str]:
    """The words in the name or an image that show an exporter of GPU metrics; empty if none do.

    Such a DaemonSet mounts a path of the node. Its name, or one image, has the word `exporter` and
    also names a maker of accelerators, as `dcgm-exporter` and `amd-device-metrics-exporter` do.
    """
    for pod in workload.pods if workload.object.kind == "DaemonSet" else ():
        mounts = host_mounts(pod)
        if not mounts or any(m.path == PLUGIN_FOLDER for m in mounts):
            continue
        images = (_image_words(container.image) for container in pod.containers)
        for words in (_words(workload.object.name), *images):
            if any("exporter" in word for word in words) and _names_accelerator(words):
                return words
    return _NONE


def words_of_maker(resource: str) -> frozenset[str]:
    """The words that name the maker of `resource`, such as `nvidia.com/gpu`."""
    maker = resource.partition("/")[0].partition(".")[0]
    return _WORDS.get(maker, frozenset({maker}))


def _image_words(image: str) -> frozenset[str]:
    """Those of the owner and the name: the registry and the folders of a mirror mean nothing."""
    return _words(" ".join(full_repository(image).split("/")[1:][-2:]))


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z0-9]+", text.lower()))


def _names_accelerator(words: frozenset[str]) -> bool:
    return any(word in _ACCELERATORS or "gpu" in word for word in words)

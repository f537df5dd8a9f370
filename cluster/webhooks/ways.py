"""The ways to a GPU that no scheduler counts, each as a pod that a user could create.

docs/coverage.md has all that are known. These are one of each kind; a test compares them with its
rows of the same names.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from rules.base.json_values import as_object, as_objects

GPU = {"nvidia.com/gpu": 1}
CONTAINER = "main"
VOID, TOOLKIT = "void", "toolkit"
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_VARIABLE = "NVIDIA_VISIBLE_DEVICES"


class Way(NamedTuple):
    """A way to a GPU: what it adds to a container, to the spec and to the annotations of a pod.

    - `name` is that of its row in tests/data/coverage.yaml; `title` says what the pod does.
    - `image`: one that matters to the way; else any will do.
    - `ended_by`: what ends the way although all of it stays in the pod. VOID: a webhook or a policy
      writes NVIDIA_VISIBLE_DEVICES=void into the container. TOOLKIT: NVIDIA's container toolkit is
      set so that it ignores the variable in unprivileged containers.
    """

    name: str
    title: str
    container: Mapping[str, Any] = _NOTHING
    spec: Mapping[str, Any] = _NOTHING
    annotations: Mapping[str, str] = _NOTHING
    image: str = ""
    asks_for_gpu: bool = False
    ended_by: tuple[str, ...] = ()

    def pod(self, image: str) -> dict[str, Any]:
        """A pod that goes this way, and otherwise meets the strictest level of Pod Security."""
        limits = GPU if self.asks_for_gpu else {}
        made = harmless_pod(self.image or image, limits)
        made["metadata"]["annotations"] = {**self.annotations}
        (container,) = made["spec"]["containers"]
        container.update(copy.deepcopy({**self.container}))
        made["spec"].update(copy.deepcopy({**self.spec}))
        for own in made["spec"].get("initContainers", ()):
            own.update({**_container(own["name"], image, {}), **own})
        return made

    def is_open(self, pod: Mapping[str, Any]) -> bool:
        """Return whether an admitted `pod` still goes this way, after all changes to it."""
        spec = as_object(pod.get("spec"))
        container = next(
            (c for _, c in as_objects(spec.get("containers")) if c.get("name") == CONTAINER), {}
        )
        if VOID in self.ended_by and _is_void(container):
            return False
        annotations = as_object(as_object(pod.get("metadata")).get("annotations"))
        return (
            contains(container, self.container)
            and contains(spec, self.spec)
            and contains(annotations, self.annotations)
        )


def harmless_pod(image: str, limits: Mapping[str, Any]) -> dict[str, Any]:
    """Return the pod without a way to a GPU, but with what it asks for in its `limits`."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "gpuward-conformance-"},
        "spec": {
            "automountServiceAccountToken": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [_container(CONTAINER, image, limits)],
        },
    }


def _container(name: str, image: str, limits: Mapping[str, Any]) -> dict[str, Any]:
    """A container with what quotas and LimitRanges often demand."""
    amounts = {"cpu": "10m", "memory": "16Mi"}
    return {
        "name": name,
        "image": image,
        "resources": {"requests": amounts, "limits": {**amounts, **limits}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }


def _is_void(container: Mapping[str, Any]) -> bool:
    values = [
        v.get("value") for _, v in as_objects(container.get("env")) if v.get("name") == _VARIABLE
    ]
    return values[-1:] == ["void"]


def contains(whole: Any, part: Any) -> bool:
    """Return whether `whole` has all that `part` has; of a list, in any order."""
    if isinstance(part, Mapping):
        return isinstance(whole, Mapping) and all(
            key in whole and contains(whole[key], value) for key, value in part.items()
        )
    if isinstance(part, list):
        return isinstance(whole, list) and all(
            any(contains(each, wanted) for each in whole) for wanted in part
        )
    return bool(whole == part)


def _variable(name: str, value: str) -> dict[str, Any]:
    return {"env": [{"name": name, "value": value}]}


def _mount(
    name: str,
    title: str,
    path: str,
    at: str = "/host",
    container: Mapping[str, Any] = _NOTHING,
    *,
    asks_for_gpu: bool = True,
) -> Way:
    """A way that mounts a path of the node."""
    mounts = [{"name": "way", "mountPath": at}]
    volumes = [{"name": "way", "hostPath": {"path": path}}]
    return Way(
        name,
        title,
        {"volumeMounts": mounts, **container},
        {"volumes": volumes},
        asks_for_gpu=asks_for_gpu,
    )


_PRIVILEGED = {"securityContext": {"privileged": True}}
_GPU_NODES = {"nodeSelector": {"nvidia.com/gpu.present": "true"}}
_FROM = {"configMapKeyRef": {"name": "mine", "key": "devices"}}
_BOTH = (VOID, TOOLKIT)
_DEVICE_LIST = "/var/run/nvidia-container-devices/all"
_CUDA = "nvcr.io/nvidia/cuda:13.0.0-base-ubuntu24.04"

WAYS: tuple[Way, ...] = (
    Way(
        "variable",
        "NVIDIA_VISIBLE_DEVICES=all without a GPU",
        _variable(_VARIABLE, "all"),
        ended_by=_BOTH,
    ),
    Way(
        "variable-beside-gpu",
        "NVIDIA_VISIBLE_DEVICES=all beside one GPU",
        _variable(_VARIABLE, "all"),
        asks_for_gpu=True,
        ended_by=_BOTH,
    ),
    Way(
        "variable-init",
        "the variable in an init container",
        spec={"initContainers": [{"name": "init", **_variable(_VARIABLE, "0")}]},
        ended_by=(TOOLKIT,),
    ),
    Way(
        "variable-from",
        "the variable from a ConfigMap",
        {"env": [{"name": _VARIABLE, "valueFrom": _FROM}]},
        ended_by=_BOTH,
    ),
    Way(
        "prefix",
        "the variable by a prefix of envFrom",
        {"envFrom": [{"prefix": "NVIDIA_VISIBLE_", "configMapRef": {"name": "mine"}}]},
        ended_by=_BOTH,
    ),
    Way(
        "no-prefix",
        "the variable by envFrom, from a ConfigMap that has it",
        {"envFrom": [{"configMapRef": {"name": "mine"}}]},
        ended_by=_BOTH,
    ),
    Way("known-image", "an image of NVIDIA that sets the variable", image=_CUDA, ended_by=_BOTH),
    Way("image", "an unknown image that sets the variable", ended_by=_BOTH),
    Way(
        "swarm",
        "DOCKER_RESOURCE_GPU=all, which runtimes may be set to read",
        _variable("DOCKER_RESOURCE_GPU", "all"),
        ended_by=(TOOLKIT,),
    ),
    Way(
        "mig-admin", "NVIDIA_MIG_CONFIG_DEVICES=all", _variable("NVIDIA_MIG_CONFIG_DEVICES", "all")
    ),
    Way("imex", "NVIDIA_IMEX_CHANNELS=0", _variable("NVIDIA_IMEX_CHANNELS", "0")),
    Way(
        "gated",
        "NVIDIA_MOFED=enabled with an empty list of GPUs",
        {
            "env": [
                {"name": _VARIABLE, "value": "none"},
                {"name": "NVIDIA_MOFED", "value": "enabled"},
            ]
        },
        ended_by=_BOTH,
    ),
    Way("amd", "AMD_VISIBLE_DEVICES=all", _variable("AMD_VISIBLE_DEVICES", "all")),
    Way("ascend", "ASCEND_VISIBLE_DEVICES=0-7", _variable("ASCEND_VISIBLE_DEVICES", "0-7")),
    Way("habana", "HABANA_VISIBLE_DEVICES=all", _variable("HABANA_VISIBLE_DEVICES", "all")),
    _mount(
        "device-list",
        "the list of devices as a mount of /dev/null",
        "/dev/null",
        _DEVICE_LIST,
        asks_for_gpu=False,
    ),
    Way(
        "device-list-claim",
        "the list of devices as a mount of a PersistentVolume",
        {"volumeMounts": [{"name": "way", "mountPath": _DEVICE_LIST}]},
        {"volumes": [{"name": "way", "persistentVolumeClaim": {"claimName": "nothing"}}]},
    ),
    Way(
        "injector-gke",
        "the annotation devices.gke.io of Google's device injector",
        annotations={"devices.gke.io/container.main": "- path: /dev/nvidia0"},
    ),
    Way(
        "injector-nri",
        "the annotation devices.nri.io of containerd's device injector",
        annotations={
            "devices.nri.io/pod": "- {path: /dev/harmless, type: c, major: 195, minor: 0}"
        },
    ),
    Way(
        "injector-cdi",
        "the annotation cdi-devices.nri.io of the same injector",
        annotations={"cdi-devices.nri.io/pod": "- nvidia.com/gpu=all"},
    ),
    Way(
        "nri",
        "the annotation nvidia.cdi.k8s.io of NVIDIA's NRI plugin",
        annotations={"nvidia.cdi.k8s.io/pod": "nvidia.com/gpu=all"},
    ),
    _mount(
        "device-file-privileged",
        "/dev/nvidia0 in a privileged container",
        "/dev/nvidia0",
        "/dev/nvidia0",
        _PRIVILEGED,
        asks_for_gpu=False,
    ),
    _mount("device-tree", "/dev of the node beside one GPU", "/dev"),
    _mount("root", "the root of the node beside one GPU", "/"),
    Way("privileged", "a privileged container beside one GPU", _PRIVILEGED, asks_for_gpu=True),
    Way("privileged-on-gpu-nodes", "a privileged container on GPU nodes", _PRIVILEGED, _GPU_NODES),
    Way(
        "sys-admin",
        "SYS_ADMIN beside one GPU",
        {"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}},
        asks_for_gpu=True,
    ),
    _mount(
        "runtime-socket",
        "the socket of the container runtime beside one GPU",
        "/run/containerd/containerd.sock",
        "/run/containerd",
    ),
    _mount(
        "plugin-directory",
        "the folder of the device plugins beside one GPU",
        "/var/lib/kubelet/device-plugins",
        "/plugins",
    ),
    _mount(
        "static-pods",
        "the manifests of static pods beside one GPU",
        "/etc/kubernetes/manifests",
        "/manifests",
    ),
    Way("host-ipc", "the IPC namespace of the node", spec={"hostIPC": True}, asks_for_gpu=True),
    Way(
        "preload",
        "LD_PRELOAD beside one GPU, which hooks of the runtime may load",
        _variable("LD_PRELOAD", "/proc/self/cwd/x.so"),
        asks_for_gpu=True,
    ),
)

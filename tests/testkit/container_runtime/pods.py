"""The containers of a pod as the runtime sees them, made as the kubelet and containerd do it.

This part of a node is not executed here. It follows the kubelet: the variables of the device plugin
come first, then `envFrom`, then `env`. containerd puts those of the image before all of them.

Whatever a pod refers to is as bad as it can be: a reference has the value `all`, a prefix is
completed to NVIDIA_VISIBLE_DEVICES, and a claimed volume leads to /dev/null. An `envFrom` without a
prefix has only what the test says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rules.base.json_values import as_object, as_objects, as_text
from rules.gpu.devices import devices, is_device_class
from rules.gpu.volumes import clean_path
from rules.objects.container import Container as View
from rules.objects.pod import Pod
from tests.testkit.container_runtime.node import GPUS, NVIDIA, SYS_ADMIN, Container

ALLOCATED = "2"
"""The index of the GPU that the device plugin gives to a container that requests any."""
ALL = "all"
# Resources of shares with which no card comes.
_NO_CARD = re.compile(
    r"(gpucores|gpumem(-percentage)?|vgpu-(cores|memory)(-percentage)?|vcuda-memory)$"
)
_REFERENCE = re.compile(r"\$\$|\$\(([^)]*)\)")


class Asked(NamedTuple):
    """A container of a pod, for the runtime, and what the scheduler has counted for it."""

    view: View
    container: Container
    counted: frozenset[str]
    """The indices of its GPUs."""


def containers(
    pod: Pod, image: Mapping[str, str], config: Mapping[str, Mapping[str, str]]
) -> Iterator[Asked]:
    """Yield the containers of a pod.

    `image` are the variables of its images, `config` the content of ConfigMaps and Secrets by name.
    """
    for view in pod.containers:
        counted = _counted(view)
        env = {**image}
        if counted:
            env[NVIDIA] = GPUS[ALLOCATED]
        env |= _env_from(view.raw, config)
        _add_env(env, view.raw, pod, config)
        security = as_object(view.raw.get("securityContext"))
        added = as_object(security.get("capabilities")).get("add") or ()
        has_sys_admin = bool({"SYS_ADMIN", SYS_ADMIN, "ALL"}.intersection(added))
        container = Container(
            env=tuple(env.items()),
            mounts=tuple(_mounts(view.raw, pod)),
            capabilities=(SYS_ADMIN,) if has_sys_admin else (),
            is_privileged=security.get("privileged") is True,
        )
        yield Asked(view, container, counted)


def _counted(view: View) -> frozenset[str]:
    found = [device for device in devices(view).values() if device.is_requested]
    has_card = any(
        device.resource.vendor == "nvidia"
        and not is_device_class(device.name)
        and not _NO_CARD.search(device.name)
        for device in found
    )
    return frozenset({ALLOCATED} if has_card or view.is_fraction_target else ())


def _env_from(
    container: Mapping[str, Any], config: Mapping[str, Mapping[str, str]]
) -> dict[str, str]:
    env: dict[str, str] = {}
    for _, entry in as_objects(container.get("envFrom")):
        prefix = as_text(entry.get("prefix"))
        source = as_object(entry.get("configMapRef") or entry.get("secretRef"))
        name = as_text(source.get("name"))
        known = config.get(name)
        if known is None and prefix and prefix != NVIDIA and NVIDIA.startswith(prefix):
            known = {NVIDIA.removeprefix(prefix): ALL}
        env |= {f"{prefix}{key}": value for key, value in (known or {}).items()}
    return env


def _add_env(
    env: dict[str, str],
    container: Mapping[str, Any],
    pod: Pod,
    config: Mapping[str, Mapping[str, str]],
) -> None:
    def expanded(reference: re.Match[str]) -> str:
        return "$" if reference[0] == "$$" else env.get(reference[1], reference[0])

    for _, entry in as_objects(container.get("env")):
        source = as_object(entry.get("valueFrom"))
        name = as_text(entry.get("name"))
        if not source:
            env[name] = _REFERENCE.sub(expanded, as_text(entry.get("value")))
            continue
        field = as_text(as_object(source.get("fieldRef")).get("fieldPath"))
        if annotation := re.fullmatch(r"metadata\.annotations\['(.*)'\]", field):
            env[name] = as_text(pod.annotations.get(annotation[1], ALL))
            continue
        key = as_object(source.get("configMapKeyRef") or source.get("secretKeyRef"))
        known = config.get(as_text(key.get("name")))
        if known is None:
            env[name] = ALL
        elif as_text(key.get("key")) in known:
            env[name] = known[as_text(key.get("key"))]


def _mounts(container: Mapping[str, Any], pod: Pod) -> Iterator[tuple[str, str]]:
    """Yield the mounts of devices: those of other paths decide about no device."""
    volumes = {as_text(volume.get("name")): volume for _, volume in pod.volumes}
    for _, mount in as_objects(container.get("volumeMounts")):
        volume = volumes.get(as_text(mount.get("name")), {})
        if "persistentVolumeClaim" in volume:
            source = "/dev/null"
        else:
            source = as_text(as_object(volume.get("hostPath")).get("path"))
        if f"{clean_path(source)}/".startswith("/dev/"):
            yield source, as_text(mount.get("mountPath"))

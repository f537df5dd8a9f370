"""What can give a container a device, as a table: the model of docs/proof.md.

A `Feature` is one value of one dimension, such as the variable NVIDIA_VISIBLE_DEVICES with the
value `all`. A pod of the model is a set of features, of each dimension at most one. `ROWS` are the
bypasses of docs/coverage.md that gpuward is known not to stop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.testkit.container_runtime.node import NVIDIA

APP = "registry.example.com/app:1"
FOLDER = "/var/run/nvidia-container-devices"
DAEMON_SET = "system:serviceaccount:kube-system:daemon-set-controller"
_GATED = ("NVIDIA_MOFED", "NVIDIA_NVSWITCH", "NVIDIA_GDS", "NVIDIA_GDRCOPY")
GPUS = "GPUs"
"""The kind of device that a bypass is about; the others are named as the runtime names them."""


@dataclass(frozen=True, eq=False)
class Feature:
    """A value of a dimension, and what it puts into a pod and into what the pod refers to."""

    dimension: str
    value: str
    container: Mapping[str, Any] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    image: Mapping[str, str] = field(default_factory=dict)
    """The variables that the image sets."""
    config: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The content of ConfigMaps and Secrets."""
    user: str = "jane"
    """Who creates the pod."""
    place: str = ""
    """The list of containers that has the container; empty for `containers`."""

    def __str__(self) -> str:
        return f"{self.dimension}={self.value}"


class Row(NamedTuple):
    """A bypass of docs/coverage.md that is not stopped, and by which features a pod uses it."""

    name: str
    has: Mapping[str, str]
    """The values that a pod has, by dimension: one of several with `|` between them, or `*`."""
    gives: frozenset[str] = frozenset({GPUS})
    """The kinds of devices that it explains, on nodes on which a pod of these features alone gets
    them."""
    unless: Mapping[str, str] = {}
    """The values with which the row does not hold, by dimension: there gpuward stops it."""
    is_beside: bool = False
    """Whether these features give their devices only beside others, such as a GPU. They explain
    them on nodes on which the pod without these features is admitted and has one."""
    is_strict: bool = False
    """Whether the strict policy does not stop it either."""

    def used(self, chosen: Iterable[Feature], policy: str) -> tuple[Feature, ...] | None:
        """Return the features of a pod that make up this row; None if it has others."""
        if policy == "strict" and not self.is_strict:
            return None
        found = tuple(each for each in chosen if _is_in(self.has, each))
        if len(found) < len(self.has) or any(_is_in(self.unless, each) for each in chosen):
            return None
        return found


def _is_in(values: Mapping[str, str], feature: Feature) -> bool:
    known = values.get(feature.dimension)
    return known is not None and (known == "*" or feature.value in known.split("|"))


def _env(*variables: tuple[str, str]) -> dict[str, Any]:
    return {"env": [{"name": name, "value": value} for name, value in variables]}


def _variables(dimension: str, name: str, *values: str) -> Iterator[Feature]:
    for value in values:
        yield Feature(dimension, value or "empty", _env((name, value)))


def _indirect(dimension: str, name: str, value: str) -> Iterator[Feature]:
    """A variable whose value the kubelet fills in, and one whose value is in a ConfigMap."""
    filled_in = _env((f"MY_{name}", value), (name, f"$(MY_{name})"))
    yield Feature(dimension, f"$(MY_{name})", filled_in)
    config = name.lower().replace("_", "-")
    source = {"configMapKeyRef": {"name": config, "key": "mine"}}
    named = {"env": [{"name": name, "valueFrom": source}]}
    yield Feature(dimension, "of a ConfigMap", named, config={config: {"mine": value}})


def _from(source: Mapping[str, Any]) -> dict[str, Any]:
    return {"env": [{"name": NVIDIA, "valueFrom": source}]}


def _env_from(
    value: str, prefix: str = "", kind: str = "configMapRef", **config: str
) -> Iterator[Feature]:
    entry = {"prefix": prefix} if prefix else {}
    added = {"envFrom": [{**entry, kind: {"name": "mine"}}]}
    yield Feature("envFrom", value, added, config={"mine": config} if config else {})


def _list_mount(place: str, value: str = "", volume: Mapping[str, Any] | None = None) -> Feature:
    mount = {"name": "list", "mountPath": place}
    source = {"hostPath": {"path": "/dev/null"}} if volume is None else volume
    mounts = {"volumeMounts": [mount]}
    return Feature("list", value or place, mounts, {"volumes": [{"name": "list", **source}]})


def _file(path: str) -> Feature:
    volumes = [{"name": "file", "hostPath": {"path": path}}]
    mounts = [{"name": "file", "mountPath": "/node" if path in {"/", "/dev"} else path}]
    return Feature("file", path, {"volumeMounts": mounts}, {"volumes": volumes})


def _limit(resource: str, number: int = 1) -> Feature:
    value = resource if number else f"{resource}=0"
    return Feature("asks", value, {"resources": {"limits": {resource: number}}})


def _privilege(value: str, context: Mapping[str, Any]) -> Feature:
    return Feature("privilege", value, {"securityContext": context})


def _features() -> Iterator[Feature]:  # noqa: PLR0915 - a table
    yield from _variables(
        "visible",
        NVIDIA,
        *("all", "1", "GPU-91d3", "nvidia.com/gpu=1", "0,all", "none,all", " all , ", "ALL", "7"),
        *("void", "", " , ", "all,void", "none"),
    )
    yield Feature("visible", "void then all", _env((NVIDIA, "void"), (NVIDIA, "all")))
    yield Feature("visible", "all then void", _env((NVIDIA, "all"), (NVIDIA, "void")))
    yield Feature("visible", "$(WHICH)", _env(("WHICH", "all"), (NVIDIA, "$(WHICH)")))
    yield Feature("visible", "$(WHICH)=void", _env(("WHICH", "void"), (NVIDIA, "$(WHICH)")))
    yield Feature("visible", "$(WHICH), void later", _env((NVIDIA, "$(WHICH)"), ("WHICH", "void")))
    yield Feature("visible", "$$(WHICH)", _env(("WHICH", "all"), (NVIDIA, "$$(WHICH)")))
    reference = {"configMapKeyRef": {"name": "named", "key": "devices"}}
    yield Feature("visible", "of a ConfigMap", _from(reference))
    which = {"name": "WHICH", "valueFrom": reference}
    through = {"env": [which, {"name": NVIDIA, "value": "$(WHICH)"}]}
    yield Feature("visible", "$(WHICH) of a ConfigMap", through)
    secret = {"secretKeyRef": {"name": "named", "key": "devices"}}
    yield Feature("visible", "of a Secret", _from(secret))
    annotation = {"fieldRef": {"fieldPath": "metadata.annotations['mine']"}}
    yield Feature(
        "visible", "of an annotation", _from(annotation), metadata={"annotations": {"mine": "all"}}
    )

    yield from _env_from("prefix NVIDIA_VISIBLE_", "NVIDIA_VISIBLE_")
    yield from _env_from("prefix NVIDIA_", "NVIDIA_", "secretRef")
    yield from _env_from("prefix DOCKER_", "DOCKER_", "secretRef", RESOURCE_GPU="all")
    yield from _env_from("prefix CUDA_", "CUDA_", VERSION="12.4")
    yield from _env_from("prefix NVIDIA_MO", "NVIDIA_MO", FED="enabled")
    yield from _env_from("prefix NVIDIA_NV", "NVIDIA_NV", SWITCH="enabled")
    yield from _env_from("prefix NVIDIA_GD", "NVIDIA_GD", S="enabled", RCOPY="enabled")
    yield from _env_from("prefix NVIDIA_IMEX_", "NVIDIA_IMEX_", "secretRef", CHANNELS="0")
    yield from _env_from("prefix NVIDIA_MIG_", "NVIDIA_MIG_", CONFIG_DEVICES="all")
    yield from _env_from("WHICH", WHICH="all")
    yield from _env_from("visible", NVIDIA_VISIBLE_DEVICES="all")
    yield from _env_from("swarm", DOCKER_RESOURCE_GPU="all")
    yield from _env_from("legacy", CUDA_VERSION="12.4")
    yield from _env_from("MOFED", NVIDIA_MOFED="enabled")
    yield from _env_from("IMEX", NVIDIA_IMEX_CHANNELS="0")
    yield from _env_from("MIG", NVIDIA_MIG_CONFIG_DEVICES="all")

    yield from _variables("CUDA_VERSION", "CUDA_VERSION", "12.4")
    yield from _indirect("CUDA_VERSION", "CUDA_VERSION", "12.4")
    yield from _variables("NVIDIA_REQUIRE_CUDA", "NVIDIA_REQUIRE_CUDA", "cuda>=12.0", "")
    yield from _indirect("NVIDIA_REQUIRE_CUDA", "NVIDIA_REQUIRE_CUDA", "")
    yield from _variables("swarm", "DOCKER_RESOURCE_GPU", "all", "1", "void")
    yield from _indirect("swarm", "DOCKER_RESOURCE_GPU", "all")
    for name in _GATED:
        yield from _variables(name, name, "enabled")
        yield from _indirect(name, name, "enabled")
    yield from _variables("NVIDIA_IMEX_CHANNELS", "NVIDIA_IMEX_CHANNELS", "0", "all")
    yield from _indirect("NVIDIA_IMEX_CHANNELS", "NVIDIA_IMEX_CHANNELS", "0")
    yield from _variables("NVIDIA_MIG_CONFIG_DEVICES", "NVIDIA_MIG_CONFIG_DEVICES", "all")
    yield from _indirect("NVIDIA_MIG_CONFIG_DEVICES", "NVIDIA_MIG_CONFIG_DEVICES", "all")
    yield from _variables("NVIDIA_MIG_MONITOR_DEVICES", "NVIDIA_MIG_MONITOR_DEVICES", "all")
    yield from _variables("capabilities", "NVIDIA_DRIVER_CAPABILITIES", "all", "unknown")

    for place in ("all", "1", "void", "cdi/nvidia.com/gpu/1", "imex/0"):
        yield _list_mount(f"{FOLDER}/{place}", place)
    yield _list_mount(f"{FOLDER}/x/../all", "x/../all")
    yield _list_mount(f"{FOLDER}s/../nvidia-container-devices/all", "another spelling")
    yield _list_mount(f"{FOLDER}/all", "/dev/./null", {"hostPath": {"path": "/dev/./null"}})
    claim = {"persistentVolumeClaim": {"claimName": "mine"}}
    yield _list_mount(f"{FOLDER}/all", "of a claim", claim)

    yield from map(_file, ("/dev/nvidia0", "/dev/char/195:0", "/dev"))

    yield _privilege("privileged", {"privileged": True})
    yield _privilege("SYS_ADMIN", {"capabilities": {"add": ["SYS_ADMIN"]}})
    yield _privilege("ALL", {"capabilities": {"add": ["ALL"]}})

    yield Feature("runtime class", "nvidia", spec={"runtimeClassName": "nvidia"})
    yield Feature("runtime class", "other", spec={"runtimeClassName": "gvisor"})

    yield _limit("nvidia.com/gpu")
    yield _limit("nvidia.com/gpu", 0)
    yield _limit("nvidia.com/gpu.shared")
    yield _limit("nvidia.com/mig-1g.10gb")
    yield _limit("amd.com/gpu")
    yield _limit("deviceclass.resource.kubernetes.io/nic.example.com")
    claimed = [{"name": "network", "resourceClaimTemplateName": "network-card"}]
    claims = {"resources": {"claims": [{"name": "network"}]}}
    yield Feature("asks", "claim", claims, {"resourceClaims": claimed})
    yield Feature("asks", "fraction", metadata={"annotations": {"gpu-fraction": "0.5"}})
    first = {"name": "first", "image": APP, "resources": {"limits": {"nvidia.com/gpu": 1}}}
    yield Feature("asks", "first container", spec={"initContainers": [first]})

    cdi = {"annotations": {"cdi.k8s.io/mine": "nvidia.com/gpu=1"}}
    yield Feature("annotation", "cdi.k8s.io", metadata=cdi)

    gpu_nodes = {"nodeSelector": {"nvidia.com/gpu.present": "true"}}
    yield Feature("nodes", "selected", spec=gpu_nodes)
    taint = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    yield Feature("nodes", "tolerated", spec={"tolerations": [taint]})
    yield Feature("nodes", "named", spec={"nodeName": "gpu-node-1"})

    sets_all = {NVIDIA: "all"}
    yield Feature(
        "image", "unknown", {"image": "registry.example.com/built-on-cuda:1"}, image=sets_all
    )
    known = {"image": "nvcr.io/nvidia/cuda:13.0.0-base-ubuntu24.04"}
    yield Feature("image", "known", known, image=sets_all)
    agent = {"image": "nvcr.io/nvidia/k8s/dcgm-exporter:4.2.0"}
    yield Feature("image", "agent", agent, image=sets_all)
    older = {"image": "registry.example.com/built-on-old-cuda:1"}
    yield Feature("image", "older", older, image={"CUDA_VERSION": "7.0"})

    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "3b6e"}
    owners = {"ownerReferences": [{**owner, "controller": True}]}
    yield Feature("creator", "DaemonSet", metadata=owners, user=DAEMON_SET)
    yield Feature("creator", "user with an owner", metadata=owners)

    yield Feature("place", "init container", place="initContainers")
    yield Feature("place", "sidecar", {"restartPolicy": "Always"}, place="initContainers")


FEATURES = tuple(_features())
"""Every feature of the model."""


def manifest(features: Iterable[Feature]) -> dict[str, Any]:
    """A pod of these features, whose container `main` has what they put into a container."""
    container: dict[str, Any] = {"name": "main", "image": APP}
    spec: dict[str, Any] = {}
    metadata: dict[str, Any] = {"name": "trainer", "namespace": "ml"}
    place = "containers"
    for feature in features:
        _merge(container, feature.container)
        _merge(spec, feature.spec)
        _merge(metadata, feature.metadata)
        place = feature.place or place
    spec.setdefault(place, []).append(container)
    if place != "containers":
        spec["containers"] = [{"name": "other", "image": APP}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _merge(into: dict[str, Any], added: Mapping[str, Any]) -> None:
    """Add to an object of a manifest: lists get longer, and the values of objects are merged."""
    for key, value in added.items():
        if isinstance(value, Mapping):
            _merge(into.setdefault(key, {}), value)
        elif isinstance(value, list):
            into[key] = [*into.get(key, ()), *value]
        else:
            into[key] = value


_OTHERS = frozenset({"infiniband", "nvidia-nvswitchctl", "nvidia-fs0", "gdrdrv"})
_IMEX = frozenset({"IMEX"})
_MIG = frozenset({"MIG config"})
_SYS_ADMIN = "SYS_ADMIN|ALL"
_GATED_FEATURES = {
    **dict.fromkeys(_GATED, "*"),
    "envFrom": "prefix NVIDIA_MO|prefix NVIDIA_NV|prefix NVIDIA_GD",
}
_CARDS = "nvidia.com/gpu|nvidia.com/gpu.shared|nvidia.com/mig-1g.10gb"
_DEVICE_CLASS = "deviceclass.resource.kubernetes.io/nic.example.com"
_MAY_BE_GPUS = f"{_CARDS}|amd.com/gpu|claim|{_DEVICE_CLASS}"
_OLD_OR_UNKNOWN = "unknown|older"
_KNOWN = "known|agent"
_ASKS_FOR_GPUS: dict[str, str] = {
    "asks": f"{_MAY_BE_GPUS}|first container",
    "nodes": "selected",
    "runtime class": "nvidia",
    "image": _KNOWN,
}


def _with_sys_admin(row: Row) -> tuple[Row, Row]:
    """The row, and it with SYS_ADMIN: then also where the toolkit accepts no variable otherwise."""
    return row, row._replace(has={**row.has, "privilege": _SYS_ADMIN})


ROWS: tuple[Row, ...] = (
    # A key of a ConfigMap is not part of the pod.
    *_with_sys_admin(Row("no-prefix", {"envFrom": "visible|legacy"})),
    *_with_sys_admin(Row("no-prefix", {"envFrom": "swarm"}, is_strict=True)),
    *_with_sys_admin(
        Row("no-prefix-beside-gpu", {"envFrom": "visible|legacy", "asks": _CARDS}, is_strict=True)
    ),
    Row("no-prefix", {"envFrom": "MOFED"}, _OTHERS, is_beside=True, is_strict=True),
    Row("no-prefix", {"envFrom": "IMEX"}, _IMEX, is_beside=True, is_strict=True),
    *_with_sys_admin(
        Row(
            "prefix-of-an-alternative",
            {"envFrom": "prefix DOCKER_", "asks": f"{_CARDS}|amd.com/gpu"},
            is_strict=True,
        )
    ),
    # The image decides.
    *_with_sys_admin(Row("image", {"image": _OLD_OR_UNKNOWN}, unless={"nodes": "selected"})),
    *_with_sys_admin(
        Row(
            "daemon-image",
            {"image": _OLD_OR_UNKNOWN, "creator": "DaemonSet", "nodes": "selected"},
        )
    ),
    *_with_sys_admin(
        Row("agent-image-of-a-daemon-set", {"image": "agent", "creator": "DaemonSet"})
    ),
    *_with_sys_admin(
        Row("known-image-after-an-init-container", {"image": _KNOWN, "asks": "first container"})
    ),
    *_with_sys_admin(
        Row("known-image-with-a-card-of-another-maker", {"image": _KNOWN, "asks": "amd.com/gpu"})
    ),
    *(
        row
        for name, asks in (
            ("known-image-after-an-init-container", "first container"),
            ("image", "amd.com/gpu"),
        )
        for row in _with_sys_admin(
            Row(name, {"image": _OLD_OR_UNKNOWN, "asks": asks, "nodes": "selected"})
        )
    ),
    *_with_sys_admin(
        Row(
            "known-image-after-an-init-container",
            {"image": _KNOWN, "asks": _DEVICE_CLASS, "place": "init container"},
        )
    ),
    *_with_sys_admin(Row("runtime-class", {"image": "*", "runtime class": "nvidia"})),
    *_with_sys_admin(Row("legacy", {"CUDA_VERSION": "*", "runtime class": "nvidia"})),
    *_with_sys_admin(Row("legacy", {"envFrom": "prefix CUDA_", "runtime class": "nvidia"})),
    # Devices beside those that a container has.
    *(
        Row(
            "gated-beside-gpu",
            {dimension: values},
            _OTHERS,
            unless={"visible": "none|none,all"},
            is_beside=True,
            is_strict=True,
        )
        for dimension, values in _GATED_FEATURES.items()
    ),
    *(
        Row(
            "gated-beside-gpu",
            {dimension: values, "asks": _MAY_BE_GPUS, "visible": "none|none,all"},
            _OTHERS,
            is_strict=True,
        )
        for dimension, values in _GATED_FEATURES.items()
    ),
    Row("no-prefix", {"envFrom": "MIG"}, _MIG, is_beside=True, is_strict=True),
    Row("imex", {"NVIDIA_IMEX_CHANNELS": "*"}, _IMEX, is_beside=True, is_strict=True),
    Row("imex", {"envFrom": "prefix NVIDIA_IMEX_"}, _IMEX, is_beside=True, is_strict=True),
    # Annotations, where the runtime passes them on.
    Row(
        "cdi",
        {"annotation": "cdi.k8s.io"},
        unless={"runtime class": "nvidia"},
        is_strict=True,
    ),
    # A privileged container, of whose pod nothing says that it means GPUs.
    Row(
        "device-tree-elsewhere",
        {"privilege": "privileged"},
        frozenset({GPUS, *_OTHERS}),
        unless=_ASKS_FOR_GPUS,
        is_strict=True,
    ),
    *(
        Row(
            "privileged-image-of-a-daemon-set",
            {"privilege": "privileged", **means_gpus, "creator": "DaemonSet"},
            frozenset({GPUS, *_OTHERS}),
            is_strict=True,
        )
        for means_gpus in ({"image": _KNOWN}, {"runtime class": "nvidia"})
    ),
)
"""The bypasses that explain what pods of the model get."""

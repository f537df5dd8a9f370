"""Random clusters with GPUs, and pods that ask for some: all that several readers look at."""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

from tests.testkit.cluster_commands.gpu_objects import Object, node, pod

HOST = "kubernetes.io/hostname"
WHOLE = ("nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "nvidia.com/gpu.shared", "amd.com/gpu")
MEMORY, CARDS = "aliyun.com/gpu-mem", "aliyun.com/gpu-count"
DRIVER = "gpu.nvidia.com"
_BY_CLASS = f"deviceclass.resource.kubernetes.io/{DRIVER}"
_PRODUCT, _COUNT = "nvidia.com/gpu.product", "nvidia.com/gpu.count"
_LABELS = {
    _PRODUCT: ("NVIDIA-A10", "NVIDIA-H100-80GB-HBM3", "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"),
    _COUNT: ("1", "8", "-3", "+8", "eight", "9223372036854775807"),
    "ack.node.gpu.schedule": ("share", "default"),
    "zone": ("a", "b"),
}
_GIBIBYTES = (15, 24)
_TAINTS: tuple[Object, ...] = (
    {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
    {"key": "team", "value": "a", "effect": "NoExecute"},
    {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
    {"key": "soft", "effect": "PreferNoSchedule"},
)
EVERY_TAINT: Object = {"operator": "Exists"}


class GpuCluster(NamedTuple):
    """Objects of a cluster, its nodes first, and a pod that is not there yet."""

    nodes: list[Object]
    others: list[Object]
    pod: Object

    @property
    def objects(self) -> list[Object]:
        """All that is there."""
        return [*self.nodes, *self.others]


def random_gpu_cluster(random: Random) -> GpuCluster:
    """A cluster; the same for the same state of `random`."""
    return _Clusters(random).make()


class _Clusters:
    """Makes clusters. Each leaves some features out, so that others are what decides."""

    def __init__(self, random: Random) -> None:
        self._random = random
        features = ("taints", "memory", "claims", "selector", "affinity", "many resources")
        self._features = {one for one in features if self._maybe(0.5)}

    def make(self) -> GpuCluster:
        names = [f"node-{number}" for number in range(self._random.randint(1, 4))]
        nodes = [self._node(name) for name in names]
        others = [self._placed(f"pod-{number}", names) for number in range(self._number(0, 8))]
        if "claims" in self._features:
            others += [self._class(), *map(self._slice, names)]
            others += [self._allocated(number, names) for number in range(self._number(0, 3))]
        return GpuCluster(nodes, others, self._new())

    def _maybe(self, chance: float) -> bool:
        return self._random.random() < chance

    def _one(self, *values: Any) -> Any:
        return self._random.choice(values)

    def _number(self, least: int, most: int) -> int:
        return self._random.randint(least, most)

    # Nodes.

    def _node(self, name: str) -> Object:
        capacity = {each: self._number(0, 8) for each in WHOLE if self._maybe(0.5)}
        allocatable = {
            each: self._one(count, count, self._number(0, count))
            for each, count in capacity.items()
            if self._maybe(0.9)
        }
        labels = {key: self._one(*values) for key, values in _LABELS.items() if self._maybe(0.6)}
        if "memory" in self._features and self._maybe(0.7):
            self._share(labels, allocatable)
        spec: dict[str, Any] = {}
        if "taints" in self._features:
            spec["taints"] = [taint for taint in _TAINTS if self._maybe(0.2)]
            spec |= {"unschedulable": True} if self._maybe(0.2) else {}
        return node(
            name,
            {key: str(count) for key, count in allocatable.items()},
            capacity={key: str(count) for key, count in {**capacity, **allocatable}.items()}
            | {key: str(count) for key, count in capacity.items()},
            labels={HOST: name, **labels},
            spec=spec,
            cpu=self._one("1", "64"),
        )

    def _share(self, labels: dict[str, str], allocatable: dict[str, int]) -> None:
        """Let a node offer the memory of cards, of which labels may say the size."""
        each, count = self._one(*_GIBIBYTES), self._number(1, 4)
        labels.pop(_PRODUCT, None)
        allocatable[MEMORY] = each * count
        if self._maybe(0.8):
            allocatable[CARDS] = count
        if self._maybe(0.6):
            labels["aliyun.accelerator/nvidia_mem"] = f"{each * 1024}MiB"

    def _class(self) -> Object:
        own = {"extendedResourceName": "nvidia.com/gpu"} if self._maybe(0.5) else {}
        selector = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
        return _object(
            "resource.k8s.io/v1", "DeviceClass", DRIVER, spec={"selectors": [selector], **own}
        )

    def _slice(self, name: str) -> Object:
        devices = [self._device(number) for number in range(self._number(0, 4))]
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": devices}
        return _object("resource.k8s.io/v1", "ResourceSlice", name, spec=spec)

    def _device(self, number: int) -> Object:
        sick = {"key": "sick", "effect": "NoSchedule"}
        return {"name": f"gpu-{number}", **({"taints": [sick]} if self._maybe(0.2) else {})}

    def _allocated(self, number: int, names: list[str]) -> Object:
        on = self._one(*names)
        result = {"request": "gpu", "driver": DRIVER, "pool": on, "device": f"gpu-{number}"}
        made = _object("resource.k8s.io/v1", "ResourceClaim", f"claim-{number}", spec={})
        made["metadata"]["namespace"] = "team-a"
        made["status"] = {"allocation": {"devices": {"results": [result]}}}
        return made

    # Pods.

    def _placed(self, name: str, names: list[str]) -> Object:
        amounts = {each: self._number(0, 3) for each in self._random.sample(WHOLE, 2)}
        on = self._one(*names) if self._maybe(0.9) else ""
        return pod(
            name, {"cpu": "100m", **amounts}, on=on, phase=self._one("Running", "Pending", "Failed")
        )

    def _new(self) -> Object:
        labels = {CARDS: self._one("2", "3", "0", "two")} if self._maybe(0.3) else {}
        more: dict[str, Any] = {}
        if self._maybe(0.3):
            more["initContainers"] = [self._container("init")]
            if self._maybe(0.5):
                more["initContainers"][0]["restartPolicy"] = "Always"
        if "selector" in self._features:
            more["nodeSelector"] = {
                self._one(*_LABELS): self._value() for _ in range(self._number(0, 2))
            }
        if "affinity" in self._features:
            terms = [self._term() for _ in range(self._number(0, 2))]
            required = {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
            }
            more["affinity"] = {"nodeAffinity": required}
        if self._maybe(0.2):
            more["overhead"] = {self._one(*WHOLE): "1"}
        more["tolerations"] = [EVERY_TAINT] if self._maybe(0.5) else []
        made = pod("new", labels=labels, **more)
        made["spec"]["containers"] = [
            self._container(f"main-{n}") for n in range(self._number(1, 2))
        ]
        del made["status"]
        return made

    def _container(self, name: str) -> Object:
        known = [*WHOLE, MEMORY, *([_BY_CLASS] if "claims" in self._features else ())]
        count = self._number(1, 2) if "many resources" in self._features else 1
        limits: dict[str, Any] = {}
        for each in self._random.sample(known, count):
            most = 60 if each == MEMORY else 9
            limits[each] = self._one(*(self._number(0, most) for _ in range(4)), "3", "500m")
        return {
            "name": name,
            "image": "registry.example.com/model:1",
            "resources": self._one({"limits": limits}, {"requests": limits}, self._uneven(limits)),
        }

    def _uneven(self, limits: dict[str, Any]) -> Object:
        """Limits with requests that API servers allow of no such resource."""
        asked = {name: self._number(0, 9) for name in limits if self._maybe(0.5)}
        return {"limits": limits, "requests": asked}

    def _value(self) -> str:
        return str(self._one(*self._one(*_LABELS.values())))

    def _term(self) -> Object:
        term: Object = {"matchExpressions": [self._expression() for _ in range(self._number(0, 2))]}
        if self._maybe(0.2):
            name = {"key": "metadata.name", "operator": self._one("In", "NotIn")}
            term["matchFields"] = [{**name, "values": [self._one("node-0", "node-1")]}]
        return term

    def _expression(self) -> Object:
        key = self._one(*_LABELS)
        operator = self._one("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
        values = {
            "In": [self._one(*_LABELS[key])],
            "NotIn": [self._one(*_LABELS[key]), self._value()],
            "Gt": [self._one("0", "-4", "+7", "9223372036854775806")],
            "Lt": [self._one("9", "0", "9223372036854775807")],
        }.get(operator)
        return {"key": key, "operator": operator, **({"values": values} if values else {})}


def _object(version: str, kind: str, name: str, **parts: Any) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **parts}

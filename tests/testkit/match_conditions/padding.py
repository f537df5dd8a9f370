"""Pods with far more content than any pod needs, which request GPUs in the last position."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.testkit.admission.reviews import container, pod
from tests.testkit.match_conditions.padded_pods import INSTANCE_TYPE, REQUIRED, node_affinity

GPUS = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
MANY, LONG = 20_000, 1 << 20


def variables(number: int, length: int = 1) -> list[dict[str, str]]:
    """`number` variables with names of at least `length` characters."""
    return [{"name": f"X{n}".ljust(length, "X"), "value": ""} for n in range(number)]


def gpu_pod(*before: dict[str, Any], metadata: Any = None, **spec: Any) -> Any:
    """A pod whose last container sets NVIDIA_VISIBLE_DEVICES=all."""
    last = container("last", env=[GPUS])
    manifest = pod(*before, last, **spec)
    manifest["metadata"].update(metadata or {})
    return manifest


def containers(number: int, env: list[dict[str, str]]) -> list[dict[str, Any]]:
    """`number` containers with these variables."""
    return [{"name": f"c-{n}", "image": "a", "env": env} for n in range(number)]


def keys(number: int) -> dict[str, str]:
    """`number` keys."""
    return {f"k{n}": "" for n in range(number)}


def instance_types(number: int) -> dict[str, Any]:
    """A node selector requirement on the instance type, with `number` values."""
    return {"key": INSTANCE_TYPE, "operator": "In", "values": [f"m{n}" for n in range(number)]}


def spreads(number: int) -> list[dict[str, Any]]:
    """`number` topology spread constraints."""
    constraint = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    return [{"topologyKey": f"k{n}", **constraint} for n in range(number)]


def pod_affinity(number: int) -> dict[str, Any]:
    """A pod affinity with `number` terms."""
    return {"podAffinity": {REQUIRED: [{"topologyKey": f"k{n}"} for n in range(number)]}}


def pod_with_ephemeral_containers() -> Any:
    """A pod with many ephemeral containers."""
    manifest = pod(container())
    added = containers(300, variables(20))
    manifest["spec"]["ephemeralContainers"] = [*added, container("last", env=[GPUS])]
    return manifest


PADDED_PODS: dict[str, Callable[[], Any]] = {
    "containers": lambda: gpu_pod(*containers(MANY, [])),
    "containers-of-variables": lambda: gpu_pod(*containers(100, variables(1000))),
    "init-containers": lambda: gpu_pod(initContainers=containers(100, variables(1000))),
    "variables": lambda: gpu_pod(*containers(1, variables(3 * MANY))),
    "long-variables": lambda: gpu_pod(*containers(32, variables(200, 380))),
    "longest-variable": lambda: gpu_pod(*containers(1, variables(1, LONG))),
    "sources": lambda: gpu_pod(container("a", envFrom=[{"secretRef": {"name": "a"}}] * MANY)),
    "image": lambda: gpu_pod({"name": "a", "image": "a" * LONG}),
    "images": lambda: gpu_pod(*({"name": f"c{n}", "image": "a" * 10_000} for n in range(200))),
    "annotations": lambda: gpu_pod(metadata={"annotations": keys(MANY)}),
    "labels": lambda: gpu_pod(metadata={"labels": keys(MANY)}),
    "longest-label": lambda: gpu_pod(metadata={"labels": {"a" * LONG: ""}}),
    "node-selector": lambda: gpu_pod(nodeSelector=keys(MANY)),
    "terms": lambda: gpu_pod(affinity=node_affinity([[instance_types(1)]] * MANY)),
    "expressions": lambda: gpu_pod(affinity=node_affinity([[instance_types(1)] * MANY])),
    "values": lambda: gpu_pod(affinity=node_affinity([[instance_types(5 * MANY)]])),
    "spreads": lambda: gpu_pod(topologySpreadConstraints=spreads(1000)),
    "pods-near-by": lambda: gpu_pod(affinity=pod_affinity(1000)),
    "volumes": lambda: gpu_pod(volumes=[{"name": f"v{n}", "emptyDir": {}} for n in range(MANY)]),
    "ephemeral-containers": pod_with_ephemeral_containers,
}

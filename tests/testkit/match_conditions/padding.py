"""Pods with far more in them than any pod needs, and what takes GPUs in the last place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.testkit.admission.reviews import container, pod
from tests.testkit.match_conditions.padded_pods import MACHINE, REQUIRED, placed

GPUS = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
MANY, LONG = 20_000, 1 << 20


def variables(number: int, length: int = 1) -> list[dict[str, str]]:
    """So many variables, whose names are at least so long."""
    return [{"name": f"X{n}".ljust(length, "X"), "value": ""} for n in range(number)]


def taking(*before: dict[str, Any], metadata: Any = None, **spec: Any) -> Any:
    """A pod whose last container takes GPUs."""
    last = container("last", env=[GPUS])
    whole = pod(*before, last, **spec)
    whole["metadata"].update(metadata or {})
    return whole


def containers(number: int, env: list[dict[str, str]]) -> list[dict[str, Any]]:
    """So many containers with these variables."""
    return [{"name": f"c-{n}", "image": "a", "env": env} for n in range(number)]


def keys(number: int) -> dict[str, str]:
    """So many keys."""
    return {f"k{n}": "" for n in range(number)}


def machines(number: int) -> dict[str, Any]:
    """A demand on the type of the machine, of so many values."""
    return {"key": MACHINE, "operator": "In", "values": [f"m{n}" for n in range(number)]}


def spreads(number: int) -> list[dict[str, Any]]:
    """So many demands that pods be spread."""
    also = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    return [{"topologyKey": f"k{n}", **also} for n in range(number)]


def near(number: int) -> dict[str, Any]:
    """A demand for other pods near by, in so many ways."""
    return {"podAffinity": {REQUIRED: [{"topologyKey": f"k{n}"} for n in range(number)]}}


def debugged() -> Any:
    """A pod to which many containers are added while it runs."""
    whole = pod(container())
    added = containers(300, variables(20))
    whole["spec"]["ephemeralContainers"] = [*added, container("last", env=[GPUS])]
    return whole


RECIPES: dict[str, Callable[[], Any]] = {
    "containers": lambda: taking(*containers(MANY, [])),
    "containers-of-variables": lambda: taking(*containers(100, variables(1000))),
    "init-containers": lambda: taking(initContainers=containers(100, variables(1000))),
    "variables": lambda: taking(*containers(1, variables(3 * MANY))),
    "long-variables": lambda: taking(*containers(32, variables(200, 380))),
    "longest-variable": lambda: taking(*containers(1, variables(1, LONG))),
    "sources": lambda: taking(container("a", envFrom=[{"secretRef": {"name": "a"}}] * MANY)),
    "image": lambda: taking({"name": "a", "image": "a" * LONG}),
    "images": lambda: taking(*({"name": f"c{n}", "image": "a" * 10_000} for n in range(200))),
    "annotations": lambda: taking(metadata={"annotations": keys(MANY)}),
    "labels": lambda: taking(metadata={"labels": keys(MANY)}),
    "longest-label": lambda: taking(metadata={"labels": {"a" * LONG: ""}}),
    "node-selector": lambda: taking(nodeSelector=keys(MANY)),
    "terms": lambda: taking(affinity=placed([[machines(1)]] * MANY)),
    "expressions": lambda: taking(affinity=placed([[machines(1)] * MANY])),
    "values": lambda: taking(affinity=placed([[machines(5 * MANY)]])),
    "spreads": lambda: taking(topologySpreadConstraints=spreads(1000)),
    "pods-near-by": lambda: taking(affinity=near(1000)),
    "volumes": lambda: taking(volumes=[{"name": f"v{n}", "emptyDir": {}} for n in range(MANY)]),
    "ephemeral-containers": debugged,
}

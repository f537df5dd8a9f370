"""Random pods with tolerations, affinities, schedulers, and requests without limits."""

from __future__ import annotations

import random
from typing import Any

from rules.placement.node_affinity import PREFERRED_AFFINITY, REQUIRED_AFFINITY
from tests.testkit.admission.in_process import new_pod
from tests.testkit.admission.random_pods import random_pod


def placed_pods(namespace: str, number: int) -> dict[str, Any]:
    """Return pods by their numbers; the same in every run."""
    made = {}
    for seed in range(number):
        given, choice = random_pod(seed), random.Random(seed)  # noqa: S311  # no secret
        spec = given["spec"] | {"automountServiceAccountToken": False}
        _place(spec, choice)
        metadata = {"annotations": given["annotations"]}
        made[str(seed)] = new_pod(namespace, f"random-{seed}", metadata=metadata, **spec)
    return made


_TOLERATIONS = (
    {"key": "nvidia.com/gpu", "operator": "Exists"},
    {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoExecute"},
    {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
    {"key": "nvidia.com/gpus", "operator": "Exists"},
    {"key": "nvidia-gpu", "operator": "Exists"},
    {"key": "example.com/gpus", "operator": "Gt", "value": "1"},
    {"operator": "Exists"},
    {"key": "zone", "operator": "Exists"},
)
_EXPRESSIONS = (
    {"key": "example.com/pool", "operator": "In", "values": ["c"]},
    {"key": "nvidia.com/gpu.product", "operator": "Exists"},
    {"key": "zone", "operator": "In", "values": ["a"]},
    {"key": "zone", "operator": "Exists"},
    {"key": "zone", "operator": "NotIn", "values": ["a", "b"]},
    {"key": "example.com/pool", "operator": "DoesNotExist"},
)


def _place(spec: dict[str, Any], choice: random.Random) -> None:
    """Give `spec` tolerations, affinities, requests without limits and variables set twice."""
    if choice.random() < 0.5:
        spec["tolerations"] = choice.sample(_TOLERATIONS, choice.choice((1, 2)))
    if choice.random() < 0.4:
        terms: list[dict[str, Any]] = [{"matchExpressions": [choice.choice(_EXPRESSIONS)]}]
        terms += choice.choice(([], [{}], [{"matchFields": [_ON_NODE]}]))
        spec["affinity"] = {"nodeAffinity": {REQUIRED_AFFINITY: {"nodeSelectorTerms": terms}}}
    if choice.random() < 0.3:
        preference = {"matchExpressions": [choice.choice(_EXPRESSIONS)]}
        node = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
        node[PREFERRED_AFFINITY] = [{"weight": 5, "preference": preference}]
    if choice.random() < 0.1:
        spec["schedulingGates"] = [{"name": "example.com/gate"}]
    if choice.random() < 0.2:
        spec["schedulerName"] = choice.choice(("default-scheduler", "hami-scheduler", "other"))
    for container in spec["containers"]:
        if choice.random() < 0.3:
            amount = choice.choice(("1", "2", "0", "1k", "500m", "-1"))
            container["resources"] = {"requests": {choice.choice(_RESOURCES): amount}}
        if container.get("env") and choice.random() < 0.2:
            container["env"] = [*container["env"], container["env"][0]]
        if container.get("env") and choice.random() < 0.1:
            name = container["env"][0]["name"]
            container["args"] = ["--devices", f"$({name})"]


_ON_NODE = {"key": "metadata.name", "operator": "In", "values": ["node-1"]}
_RESOURCES = ("nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "amd.com/gpu", "nvidia.com/gpumem")

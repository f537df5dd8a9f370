"""Nodes on which kube-scheduler may evict pods of lower priority for a pod that finds no other.

Source: Kubernetes, `pkg/scheduler/framework/plugins/defaultpreemption/default_preemption.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from cluster.source.objects import Object
from cluster.why.filters import Obstacle
from cluster.why.nodes import Node
from cluster.why.placed.pods import PlacedPods
from rules.base.json_values import as_object, as_text

_BUILT_IN = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
HIGHEST = max(_BUILT_IN.values())


class Priority(NamedTuple):
    """The priority of a pod, and whether others may be evicted for it."""

    value: int
    preempts: bool


def priority_of(pod: Object, priority_classes: Callable[[], Mapping[str, Object]]) -> Priority:
    """The priority of `pod`.

    `priority_classes` returns the PriorityClasses by name; it is called only for a pod without a
    priority of its own, as API servers give one to each. A class that is not there counts as the
    highest: then others may have to go.
    """
    spec = as_object(pod.get("spec"))
    own = spec.get("priority")
    if isinstance(own, int):
        return Priority(own, spec.get("preemptionPolicy") != "Never")
    classes = priority_classes()
    name = as_text(spec.get("priorityClassName"))
    found: Mapping[str, Any] = classes.get(name, {})
    if not name:
        defaults = (raw for raw in classes.values() if raw.get("globalDefault") is True)
        found = next(defaults, {})
    policy = spec.get("preemptionPolicy") or found.get("preemptionPolicy")
    unknown = _BUILT_IN.get(name, HIGHEST) if name else 0
    value = found.get("value")
    return Priority(value if isinstance(value, int) else unknown, policy != "Never")


def nodes_with_victims(
    refused: Iterable[tuple[Node, Iterable[Iterable[Obstacle]]]],
    placed: PlacedPods,
    priority: Priority,
) -> Iterator[str]:
    """The nodes that may take the pod without their pods of lower priority."""
    for node, refusals in refused if priority.preempts else ():
        lower = placed.lower(node.name, priority.value)
        if lower.pods and all(_is_cured(o, lower.requests) for found in refusals for o in found):
            yield node.name


def _is_cured(obstacle: Obstacle, released: Mapping[str, int]) -> bool:
    """Return whether a refusal may end as pods that have `released` end."""
    if obstacle.plugin == "NodeResourcesFit":
        if obstacle.subject == "pods":
            return True
        free = obstacle.free + released.get(obstacle.subject, 0)
        return obstacle.asked <= min(free, obstacle.total)
    # Of spread constraints, the total is the skew: without one the node lacks the label.
    return bool(obstacle.pod) or (obstacle.plugin == "PodTopologySpread" and obstacle.total > 0)

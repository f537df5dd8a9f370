"""Topology spread constraints that must hold: kube-scheduler's filter PodTopologySpread.

Constraints with `ScheduleAnyway`, among them those of kube-scheduler itself, only score nodes.
Source: Kubernetes, `pkg/scheduler/framework/plugins/podtopologyspread/filtering.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from cluster.why.nodes import Node
from cluster.why.placed.label_selectors import LabelSelector, labels_of
from cluster.why.placed.pods import PlacedPods, namespace_of
from rules.base.json_values import as_object, as_objects, as_text, as_texts

_EXCEEDED = "node(s) didn't match pod topology spread constraints"
_NO_LABEL = f"{_EXCEEDED} (missing required label)"


class SpreadObstacle(NamedTuple):
    """The reason against a node: kube-scheduler's message, and the key of the constraint.

    `max_skew` is 0 if the node lacks the label.
    """

    message: str
    topology_key: str
    max_skew: int = 0


class _Constraint(NamedTuple):
    topology_key: str
    max_skew: int
    min_domains: int
    selector: LabelSelector
    honors_affinity: bool
    honors_taints: bool


class TopologySpread:
    """The topology spread constraints of a pod, applied to `nodes`.

    `is_selected` and `is_tolerated` are what its node affinity and its tolerations say of a node.
    """

    def __init__(
        self,
        pod: Mapping[str, Any],
        placed: PlacedPods,
        nodes: Sequence[Node],
        *,
        is_selected: Callable[[Node], bool],
        is_tolerated: Callable[[Node], bool],
    ) -> None:
        namespace = namespace_of(pod)
        self._labels = labels_of(pod)
        self._constraints = [*_constraints(pod, self._labels)]
        keys = [one.topology_key for one in self._constraints]
        known = [node for node in nodes if all(key in node.labels for key in keys)] if keys else []
        self._counts: list[dict[str, int]] = []
        for one in self._constraints:
            pods = _pods_by_node(one.selector, placed, namespace)
            counts: dict[str, int] = {}
            for node in known:
                if one.honors_affinity and not is_selected(node):
                    continue
                if one.honors_taints and not is_tolerated(node):
                    continue
                value = node.labels[one.topology_key]
                counts[value] = counts.get(value, 0) + pods.get(node.name, 0)
            self._counts.append(counts)

    @property
    def can_refuse(self) -> bool:
        """Return whether there is a constraint that must hold."""
        return bool(self._constraints)

    @property
    def is_about_itself(self) -> bool:
        """Return whether where one such pod is decides about the next."""
        return any(one.selector.matches(self._labels) for one in self._constraints)

    def obstacles(self, node: Node) -> Iterator[SpreadObstacle]:
        """Yield why `node` is refused: kube-scheduler names the first."""
        for one, counts in zip(self._constraints, self._counts, strict=True):
            value = node.labels.get(one.topology_key)
            if value is None:
                yield SpreadObstacle(_NO_LABEL, one.topology_key)
                continue
            least = 0 if len(counts) < one.min_domains else min(counts.values(), default=0)
            own = one.selector.matches(self._labels)
            if counts.get(value, 0) + own - least > one.max_skew:
                yield SpreadObstacle(_EXCEEDED, one.topology_key, one.max_skew)


def _constraints(pod: Mapping[str, Any], labels: Mapping[str, str]) -> Iterator[_Constraint]:
    spec = as_object(pod.get("spec"))
    for _, raw in as_objects(spec.get("topologySpreadConstraints")):
        if raw.get("whenUnsatisfiable") == "DoNotSchedule":
            keys = as_texts(raw.get("matchLabelKeys"))
            named = {key: labels[key] for key in keys if key in labels}
            yield _Constraint(
                as_text(raw.get("topologyKey")),
                _number(raw.get("maxSkew")),
                _number(raw.get("minDomains")),
                LabelSelector(raw.get("labelSelector")).narrowed(named),
                raw.get("nodeAffinityPolicy") != "Ignore",
                raw.get("nodeTaintsPolicy") == "Honor",
            )


def _number(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 1


def _pods_by_node(selector: LabelSelector, placed: PlacedPods, namespace: str) -> Mapping[str, int]:
    """Return how many pods of the namespace `selector` selects, by node.

    An empty one selects no pod that is there, but those that are nominated: kube-scheduler adds
    them by other code.
    """
    found: dict[str, int] = {}
    if selector.is_empty:
        return {node: spaces.count(namespace) for node, spaces in placed.beside.items()}
    for kind, places in placed.kinds.items():
        if kind.namespace == namespace and selector.matches(dict(kind.labels)):
            for node, pods in places.items():
                found[node] = found.get(node, 0) + len(pods)
    return found


def spread_marks(pod: Mapping[str, Any]) -> tuple[bool, ...]:
    """Return a key of the labels that the constraints look at: they treat equal keys alike.

    Labels that a constraint names as keys must be the same as well.
    """
    labels = labels_of(pod)
    return tuple(one.selector.matches(labels) for one in _constraints(pod, labels))


def label_keys(pod: Mapping[str, Any]) -> tuple[str, ...]:
    """The labels of a pod whose values its constraints compare."""
    spec = as_object(pod.get("spec"))
    constraints = (raw for _, raw in as_objects(spec.get("topologySpreadConstraints")))
    return tuple(key for raw in constraints for key in as_texts(raw.get("matchLabelKeys")))

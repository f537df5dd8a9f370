"""Affinity to pods and against them: kube-scheduler's filter InterPodAffinity.

Source: Kubernetes, `pkg/scheduler/framework/plugins/interpodaffinity/filtering.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from cluster.why.nodes import Node
from cluster.why.placed.label_selectors import labels_of
from cluster.why.placed.pods import (
    AffinityTerm,
    PlacedPods,
    Places,
    affinity_terms,
    namespace_of,
)

_HOSTNAME = "kubernetes.io/hostname"
_NOT_NEAR = "node(s) didn't match pod affinity rules"
_BESIDE = "node(s) didn't match pod anti-affinity rules"
REFUSED_BY_PLACED_PODS = "node(s) didn't satisfy existing pods anti-affinity rules"
"""The message about a node that the anti-affinity of pods there keeps others from."""
_Domain: TypeAlias = tuple[str, str]
"""The nodes with one value of a label: its key, and the value."""


class AffinityObstacle(NamedTuple):
    """The reason against a node: kube-scheduler's message, the nodes meant, and a pod there."""

    message: str
    topology: str
    pod: str = ""


class PodAffinity:
    """The affinity of a pod, and the anti-affinity of placed pods, applied to `nodes`."""

    def __init__(self, pod: Mapping[str, Any], placed: PlacedPods, nodes: Iterable[Node]) -> None:
        self._namespace, self._labels = namespace_of(pod), labels_of(pod)
        self._placed = placed
        self._wanted = [*affinity_terms(pod, "podAffinity")]
        self._unwanted = [*affinity_terms(pod, "podAntiAffinity")]
        self.is_unsure = False
        """Whether a term selects namespaces by labels that are not known."""
        against = [
            (term, places)
            for terms, places in placed.guarded.values()
            for term in terms
            if self._is_meant(term, self._namespace, self._labels)
        ]
        self._node_labels: Mapping[str, Mapping[str, str]] = {}
        if self._wanted or self._unwanted or against:
            self._node_labels = {node.name: node.labels for node in nodes}
        self._near, self._beside = self._find_pods()
        self._guarded: dict[_Domain, str] = {}
        for term, places in against:
            self._guarded.update(self._domains(term.topology_key, places))

    @property
    def can_refuse(self) -> bool:
        """Return whether it keeps the pod from any node."""
        return bool(self._wanted or self._unwanted or self._guarded)

    @property
    def is_one_per_node(self) -> bool:
        """Return whether its anti-affinity keeps two such pods from one node."""
        return any(
            term.topology_key == _HOSTNAME and self._is_meant(term, self._namespace, self._labels)
            for term in self._unwanted
        )

    @property
    def is_about_itself(self) -> bool:
        """Return whether where one such pod is decides about the next, beyond its node."""
        return any(
            self._is_meant(term, self._namespace, self._labels)
            for term in (*self._wanted, *self._unwanted)
            if term in self._wanted or term.topology_key != _HOSTNAME
        )

    def obstacles(self, node: Node) -> Iterator[AffinityObstacle]:
        """Yield why `node` is refused: kube-scheduler names the first."""
        if not_near := self._not_near(node):
            yield not_near
        for key in dict.fromkeys(term.topology_key for term in self._unwanted):
            if pod := self._beside.get((key, node.labels.get(key, ""))):
                yield AffinityObstacle(_BESIDE, key, pod)
                break
        for (key, value), pod in self._guarded.items():
            if node.labels.get(key) == value:
                yield AffinityObstacle(REFUSED_BY_PLACED_PODS, key, pod)
                break

    def _not_near(self, node: Node) -> AffinityObstacle | None:
        for term in self._wanted:
            if term.topology_key not in node.labels:
                return AffinityObstacle(_NOT_NEAR, term.topology_key)
        far = [
            t
            for t in self._wanted
            if (t.topology_key, node.labels[t.topology_key]) not in self._near
        ]
        if far and (self._near or not self._is_first):
            return AffinityObstacle(_NOT_NEAR, far[0].topology_key)
        return None

    @property
    def _is_first(self) -> bool:
        """Return whether the pod is one that its own affinity asks for.

        It may then be the first.
        """
        return all(self._is_meant(t, self._namespace, self._labels) for t in self._wanted)

    def _find_pods(self) -> tuple[Mapping[_Domain, str], Mapping[_Domain, str]]:
        """The domains with a pod that all wanted terms mean, and those with an unwanted one."""
        near: dict[_Domain, str] = {}
        beside: dict[_Domain, str] = {}
        if not (self._wanted or self._unwanted):
            return near, beside
        for kinds in (self._placed.kinds, self._placed.ending):
            for (namespace, pairs), places in kinds.items():
                labels = dict(pairs)
                if self._wanted and all(self._is_meant(t, namespace, labels) for t in self._wanted):
                    for term in self._wanted:
                        near.update(self._domains(term.topology_key, places))
                for term in self._unwanted:
                    if self._is_meant(term, namespace, labels):
                        beside.update(self._domains(term.topology_key, places))
        return near, beside

    def _is_meant(self, term: AffinityTerm, namespace: str, labels: Mapping[str, str]) -> bool:
        is_meant = term.matches(namespace, labels, self._placed.namespace_labels)
        self.is_unsure |= is_meant is None
        return bool(is_meant)

    def _domains(self, key: str, places: Places) -> Iterator[tuple[_Domain, str]]:
        """Each domain with pods that are at `places`, and one of these pods."""
        for node, pods in places.items():
            value = self._node_labels.get(node, {}).get(key)
            if value is not None:
                yield (key, value), pods[0]


def label_marks(pod: Mapping[str, Any], placed: PlacedPods) -> tuple[bool | None, ...]:
    """Return a key of the labels that affinity looks at: it treats pods with the same key alike."""
    namespace, labels = namespace_of(pod), labels_of(pod)
    own = (
        term for field in ("podAffinity", "podAntiAffinity") for term in affinity_terms(pod, field)
    )
    guards = (term for terms, _ in placed.guarded.values() for term in terms)
    return tuple(
        term.matches(namespace, labels, placed.namespace_labels) for term in (*own, *guards)
    )

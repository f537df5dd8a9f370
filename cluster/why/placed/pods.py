"""The parts of placed pods that count for other pods: labels, ports and affinity."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from cluster.accounting.account import NodeLoad
from cluster.accounting.pod_requests import Requests
from cluster.why.placed.disks import DisksInUse, disks_of
from cluster.why.placed.label_selectors import LabelSelector, labels_of
from cluster.why.volumes.older_volumes import DriverVolume, driver_volume
from rules.base.json_values import as_object, as_objects, as_text, as_texts

_ANY_ADDRESS = "0.0.0.0"  # noqa: S104  # compared, and not listened at


class HostPort(NamedTuple):
    """A port of a node that a container takes."""

    address: str
    protocol: str
    port: int


def host_ports(spec: Mapping[str, Any]) -> Iterator[HostPort]:
    """The ports of its node that a pod takes while it runs.

    Source: Kubernetes, `pkg/scheduler/util/utils.go`, GetHostPorts.
    """
    running = [container for _, container in as_objects(spec.get("containers"))]
    inits = (container for _, container in as_objects(spec.get("initContainers")))
    running += [container for container in inits if container.get("restartPolicy") == "Always"]
    for container in running:
        for _, port in as_objects(container.get("ports")):
            number = port.get("hostPort")
            if isinstance(number, int) and number > 0:
                address = as_text(port.get("hostIP")) or _ANY_ADDRESS
                yield HostPort(address, as_text(port.get("protocol")) or "TCP", number)


NamespaceLabels: TypeAlias = Callable[[str], Mapping[str, str] | None]


class PodKind(NamedTuple):
    """The properties by which affinity tells pods apart."""

    namespace: str
    labels: frozenset[tuple[str, str]]


class AffinityTerm(NamedTuple):
    """A required term of affinity to pods, or against them.

    `namespaces` are those whose pods count, together with those that `namespace_selector` selects.
    """

    topology_key: str
    selector: LabelSelector
    namespaces: frozenset[str]
    namespace_selector: LabelSelector

    def matches(
        self, namespace: str, labels: Mapping[str, str], namespace_labels: NamespaceLabels
    ) -> bool | None:
        """Return whether a pod counts; None if that depends on unknown labels of its namespace.

        `namespace_labels` returns the labels of a namespace, or None.
        Source: Kubernetes, `pkg/scheduler/framework/types.go`, AffinityTerm.
        """
        if not self.selector.matches(labels):
            return False
        selector = self.namespace_selector
        if namespace in self.namespaces or selector.is_empty:
            return True
        if selector.is_none:
            return False
        known = namespace_labels(namespace)
        return None if known is None else selector.matches(known)


def affinity_terms(pod: Mapping[str, Any], field: str) -> Iterator[AffinityTerm]:
    """The required terms of `podAffinity` or `podAntiAffinity` of a pod."""
    affinity = as_object(as_object(as_object(pod.get("spec")).get("affinity")).get(field))
    for _, raw in as_objects(affinity.get("requiredDuringSchedulingIgnoredDuringExecution")):
        names = as_texts(raw.get("namespaces"))
        if not names and not isinstance(raw.get("namespaceSelector"), dict):
            names = [namespace_of(pod)]
        yield AffinityTerm(
            as_text(raw.get("topologyKey")),
            LabelSelector(raw.get("labelSelector")),
            frozenset(names),
            LabelSelector(raw.get("namespaceSelector")),
        )


def namespace_of(pod: Mapping[str, Any]) -> str:
    """The namespace of a pod; `default` if it names none, as in a file."""
    return as_text(as_object(pod.get("metadata")).get("namespace")) or "default"


class Nominated(NamedTuple):
    """A pod without a node, for which kube-scheduler has evicted others from one."""

    name: str
    priority: int
    requests: Requests
    pod: Mapping[str, Any]

    @property
    def is_apart(self) -> bool:
        """Return whether it only takes amounts: no ports or volumes, and keeps no pods away."""
        spec = as_object(self.pod.get("spec"))
        guards = as_object(spec.get("affinity")).get("podAntiAffinity")
        return not (guards or spec.get("volumes") or any(host_ports(spec)))


Places: TypeAlias = dict[str, list[str]]
"""By the name of a node, the pods that are there, as NAMESPACE/NAME."""


def _unknown_labels(_: str) -> None:
    return None


class PlacedPods:
    """The pods of a cluster that have a node.

    - `kinds`: where the pods of a kind are; `ending` are those that are deleted and still there.
    - `guarded`: the required terms of anti-affinity of pods, with where these pods are.
    - `ports`: by node, the ports that are taken: by protocol and number, the pod that has it at an
      address.
    - `claims_at`: by node, the claims for persistent volumes that its pods have, as namespace and
      name; `disks` are the disks that pods name themselves, and `older_at` those that drivers
      serve.
    - `by_priority`: by node, what its pods of each priority take.
    - `nominated`: by node, the pods without a node for which kube-scheduler keeps room there.
    - `beside`: by node, the namespaces of those that are only nominated for it and count as there.
    - `namespace_labels`: returns the labels of a namespace; None if they are not known.
    """

    def __init__(self, namespace_labels: NamespaceLabels = _unknown_labels) -> None:
        self.namespace_labels = namespace_labels
        self.kinds: dict[PodKind, Places] = {}
        self.ending: dict[PodKind, Places] = {}
        self.guarded: dict[str, tuple[tuple[AffinityTerm, ...], Places]] = {}
        self.ports: dict[str, dict[tuple[str, int], dict[str, str]]] = {}
        self.claims_at: dict[str, list[tuple[str, str]]] = {}
        self.disks: dict[str, DisksInUse] = {}
        self.older_at: dict[str, set[DriverVolume]] = {}
        self._users: dict[tuple[str, str], list[str]] = {}
        self.by_priority: dict[str, dict[int, Requests]] = {}
        self.nominated: dict[str, list[Nominated]] = {}
        self.beside: dict[str, list[str]] = {}

    def add(self, pod: Mapping[str, Any], requests: Requests) -> None:
        """Count a pod that has a node, has not terminated, and takes `requests`."""
        metadata, spec = as_object(pod.get("metadata")), as_object(pod.get("spec"))
        node, value = as_text(spec.get("nodeName")), spec.get("priority")
        self.add_at(pod, node, f"{namespace_of(pod)}/{as_text(metadata.get('name'))}")
        priority = value if isinstance(value, int) else 0
        taken = self.by_priority.setdefault(node, {}).setdefault(priority, {})
        for name, amount in requests.items():
            taken[name] = taken.get(name, 0) + amount

    def nominate(self, pod: Mapping[str, Any], requests: Requests) -> None:
        """Count a pod without a node, if kube-scheduler keeps room for it."""
        spec = as_object(pod.get("spec"))
        node = as_text(as_object(pod.get("status")).get("nominatedNodeName"))
        if not node:
            return
        value = spec.get("priority")
        name = f"{namespace_of(pod)}/{as_text(as_object(pod.get('metadata')).get('name'))}"
        priority = value if isinstance(value, int) else 0
        self.nominated.setdefault(node, []).append(Nominated(name, priority, requests, pod))

    def ahead_of(self, priority: int, name: str) -> dict[str, list[Nominated]]:
        """Return the nominated pods that take room before the pod `name`, by node.

        Source: Kubernetes, `pkg/scheduler/framework/runtime/framework.go`, addGENominatedPods.
        """
        found: dict[str, list[Nominated]] = {}
        for node, pods in self.nominated.items():
            if ahead := [one for one in pods if one.priority >= priority and one.name != name]:
                found[node] = ahead
        return found

    def lower(self, node: str, priority: int) -> NodeLoad:
        """Return the amounts that pods of a lower priority take on `node`."""
        lower = NodeLoad()
        for value, taken in self.by_priority.get(node, {}).items():
            if value < priority:
                lower.add(taken)
        return lower

    def add_at(self, pod: Mapping[str, Any], node: str, name: str) -> None:
        """Count a pod as one of `node`, by that name."""
        metadata, spec = as_object(pod.get("metadata")), as_object(pod.get("spec"))
        kind = PodKind(namespace_of(pod), frozenset(labels_of(pod).items()))
        kinds = self.ending if metadata.get("deletionTimestamp") else self.kinds
        kinds.setdefault(kind, {}).setdefault(node, []).append(name)
        self._add_volumes(pod, node, kind.namespace, name)
        for port in host_ports(spec):
            same = self.ports.setdefault(node, {}).setdefault((port.protocol, port.port), {})
            same.setdefault(port.address, name)
        if affinity := as_object(as_object(spec.get("affinity")).get("podAntiAffinity")):
            key = json.dumps([kind.namespace, affinity], sort_keys=True, default=str)
            if key not in self.guarded:
                self.guarded[key] = tuple(affinity_terms(pod, "podAntiAffinity")), {}
            self.guarded[key][1].setdefault(node, []).append(name)

    def _add_volumes(self, pod: Mapping[str, Any], node: str, namespace: str, name: str) -> None:
        spec = as_object(pod.get("spec"))
        for _, volume in as_objects(spec.get("volumes")):
            if claim := as_object(volume.get("persistentVolumeClaim")):
                key = namespace, as_text(claim.get("claimName"))
                self._users.setdefault(key, []).append(name)
                self.claims_at.setdefault(node, []).append(key)
            elif "ephemeral" in volume:
                made = f"{name.rpartition('/')[2]}-{as_text(volume.get('name'))}"
                self.claims_at.setdefault(node, []).append((namespace, made))
            elif served := driver_volume(volume):
                self.older_at.setdefault(node, set()).add(served)
        for disk in disks_of(spec):
            self.disks.setdefault(node, DisksInUse()).add(disk, name)

    def users_of(self, namespace: str, claim: str) -> tuple[str, ...]:
        """Return the pods that have a claim for a persistent volume."""
        return tuple(self._users.get((namespace, claim), ()))

    def with_copies(self, pod: Mapping[str, Any], copies: Mapping[str, int]) -> PlacedPods:
        """These pods, and of `pod` as many as `copies` says by node."""
        name = f"{namespace_of(pod)}/{as_text(as_object(pod.get('metadata')).get('name'))}"
        return self._with([(pod, node, name, count) for node, count in copies.items()])

    def with_nominated(self, node: str, pods: Iterable[Nominated]) -> PlacedPods:
        """These pods, and those that are nominated for `node`."""
        listed = [*pods]
        more = self._with([(one.pod, node, one.name, 1) for one in listed])
        more.beside = {node: [namespace_of(one.pod) for one in listed]}
        return more

    def _with(self, added: Iterable[tuple[Mapping[str, Any], str, str, int]]) -> PlacedPods:
        more = PlacedPods(self.namespace_labels)
        more.nominated = self.nominated
        more.claims_at = {node: [*claims] for node, claims in self.claims_at.items()}
        more.disks = {node: disks.copy() for node, disks in self.disks.items()}
        more.older_at = {node: {*served} for node, served in self.older_at.items()}
        more._users = {claim: [*pods] for claim, pods in self._users.items()}
        more.by_priority = self.by_priority  # they have the priority of `pod`, and evict no other
        more.kinds, more.ending = _copied(self.kinds), _copied(self.ending)
        more.guarded = {
            key: (terms, {node: [*names] for node, names in places.items()})
            for key, (terms, places) in self.guarded.items()
        }
        more.ports = {
            node: {port: {**pods} for port, pods in ports.items()}
            for node, ports in self.ports.items()
        }
        for pod, node, name, count in added:
            for _ in range(count):
                more.add_at(pod, node, name)
        return more

    def taken(self, ports: Iterable[HostPort], node: str) -> Iterator[tuple[HostPort, str]]:
        """Yield those of `ports` that are not free on `node`, each with a pod that has it."""
        taken = self.ports.get(node, {})
        for port in dict.fromkeys(ports):
            pods = taken.get((port.protocol, port.port), {})
            if port.address == _ANY_ADDRESS:
                found = [*pods.values()][:1]
            else:
                found = [pods[one] for one in (port.address, _ANY_ADDRESS) if one in pods]
            if found:
                yield port, found[0]


def _copied(kinds: Mapping[PodKind, Places]) -> dict[PodKind, Places]:
    return {
        kind: {node: [*names] for node, names in places.items()} for kind, places in kinds.items()
    }

"""Reads what counts for pods from a cluster, or from files with what is in one."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from cluster.accounting.account import PodLedger, name_of
from cluster.accounting.shares import card_memory
from cluster.source.files import FileSource
from cluster.source.objects import (
    CLAIM_TEMPLATES,
    CLAIMS,
    CSI_DRIVERS,
    DEVICE_CLASSES,
    LIMIT_RANGES,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    PRIORITY_CLASSES,
    QUOTAS,
    RUNTIME_CLASSES,
    SLICES,
    STORAGE_CLASSES,
    TAINT_RULES,
    Object,
    ObjectReader,
    Resource,
    SourceError,
    list_readable,
)
from cluster.why.admission import admit
from cluster.why.cards import KAI_KEYS
from cluster.why.devices.allocator import DeviceAllocator
from cluster.why.explanation import (
    Classes,
    Explanation,
    Namespace,
    explain,
    scheduler_message,
    uncounted_resources,
)
from cluster.why.filters import Wanted
from cluster.why.nodes import Node, read_node
from cluster.why.placed.affinity import label_marks
from cluster.why.placed.label_selectors import labels_of
from cluster.why.placed.pods import PlacedPods
from cluster.why.placed.topology_spread import label_keys, spread_marks
from cluster.why.pod_devices import claims_in, is_claim
from cluster.why.volumes import Known, KnownVolumes
from policies.loading import default_policy
from rules.base.json_values import as_object, as_objects, as_text
from rules.placement.node_labels import GPU_COUNT
from rules.profile.platforms.records import parse_version
from rules.workloads.future_pods import future_pods, has_final_pods

_LOOKED_AT = (
    *("affinity", "nodeSelector", "overhead", "resourceClaims", "resources", "schedulerName"),
    *("preemptionPolicy", "priority", "schedulingGates", "tolerations"),
    "topologySpreadConstraints",
)
"""The fields of a pod's spec that an explanation looks at, beside containers and volumes."""


class Workload(NamedTuple):
    """Pods that do not exist yet: how many run at the same time; None if that is not known.

    `beside` are the claims and templates of claims of the same file.
    """

    pod: Object
    pods: int | None
    beside: tuple[Object, ...] = ()


class Cluster:
    """The nodes of a cluster, what their pods take, and what else counts for a pod.

    `on_missing` is called with a line for each thing that the account may not list. Raises
    SourceError if nodes or pods cannot be listed.
    """

    def __init__(
        self,
        source: ObjectReader,
        on_missing: Callable[[str], object],
        *,
        namespace: str | None = None,
    ) -> None:
        self._source, self._on_missing, self._namespace = source, on_missing, namespace
        raw_nodes = [*source.list(NODES)]
        memory = {name_of(raw): card_memory(raw) for raw in raw_nodes}
        ledger = PodLedger(default_policy().profile, memory)
        self._waiting: list[Object] = []
        self._placed = PlacedPods(self._labels_of_namespace)
        for pod in source.list(PODS):
            counted = ledger.add(pod)
            if counted is not None and counted.node:
                self._placed.add(pod, counted.requests)
            elif counted is not None:
                self._waiting.append(pod)
                self._placed.nominate(pod, counted.requests)
        self._classes = Classes(
            lambda: self._named(RUNTIME_CLASSES), lambda: self._named(PRIORITY_CLASSES)
        )
        self._volumes = KnownVolumes(
            lambda namespace: self._known(PERSISTENT_VOLUME_CLAIMS, namespace),
            lambda: self._known(PERSISTENT_VOLUMES),
            lambda: self._known(STORAGE_CLASSES),
            lambda: self._known(CSI_DRIVERS),
        )
        self._listed: dict[tuple[Resource, str | None], Mapping[str, Object]] = {}
        self._nodes = [read_node(raw, ledger.loads.get(name_of(raw))) for raw in raw_nodes]
        self._namespaces: dict[str, Namespace] = {}
        self._claims: dict[str | None, dict[tuple[str, str], Object]] = {}

    def explain(self, pod: Object) -> Explanation:
        """Return why a pod of the cluster is Pending."""
        return self._explain(pod, exists=True)

    def explain_pending(self) -> Iterator[Explanation]:
        """Return why each pod that waits for a node does so, in the order of the list."""
        known: dict[str, Explanation] = {}
        for pod in self._waiting:
            metadata = as_object(pod.get("metadata"))
            namespace, name = as_text(metadata.get("namespace")), as_text(metadata.get("name"))
            if self._namespace and namespace not in {self._namespace, ""}:
                continue
            key = _key(pod, self._placed)
            found = known.get(key)
            if found is None:
                scope = self._namespace
                found = known[key] = self._explain(pod, exists=True, scope=scope)
            yield found._replace(
                namespace=namespace,
                name=name,
                scheduler=scheduler_message(pod),
                since=as_text(metadata.get("creationTimestamp")),
            )

    def explain_workload(self, workload: Workload) -> Explanation:
        """Return why the first of the pods cannot run, or the first without room beside others."""
        pod, count, beside = workload
        found = self._explain(pod, exists=False, beside=beside)
        if count is None or count == 1 or not found.fitting or found.node:
            return found._replace(wanted=count)
        home = self._namespace_of_new(pod)
        made = admit(pod, home.name, home.limit_ranges, self._classes.runtime).pod
        uncounted = uncounted_resources(made, self._nodes, {}, exists=False)
        wanted = Wanted(made, uncounted, nodes=self._nodes, placed=self._placed)
        copies = self._copies(wanted, frozenset(found.fitting), count)
        placed = sum(copies.values())
        if not placed or as_object(made.get("spec")).get("resourceClaims"):
            unchecked = (*found.unchecked, "for how many of its pods there are devices")
            found = found._replace(unchecked=unchecked)
        if not placed:  # nodes need not offer the devices of a DeviceClass
            return found._replace(wanted=count)
        if placed < count:
            nodes = [
                node._replace(load=node.load.with_pods(wanted.requests, copies.get(node.name, 0)))
                for node in self._nodes
            ]
            others = self._placed.with_copies(made, copies)
            found = self._explain(pod, exists=False, nodes=nodes, placed=others, beside=beside)
        elif wanted.asks_of_a_card:
            found = found._replace(unchecked=(*found.unchecked, "how its pods fit on the cards"))
        if wanted.is_about_itself:
            unchecked = (*found.unchecked, "where its pods are, which decides about the next ones")
            found = found._replace(unchecked=unchecked)
        return found._replace(wanted=count, placed=placed)

    def _copies(self, wanted: Wanted, fitting: frozenset[str], count: int) -> Mapping[str, int]:
        """Return how many of `count` equal pods each of the fitting nodes has room for."""
        copies: dict[str, int] = {}
        for node in self._nodes:
            if node.name in fitting and count:
                copies[node.name] = min(wanted.copies(node), count)
                count -= copies[node.name]
        return copies

    def _explain(
        self,
        pod: Object,
        *,
        exists: bool,
        nodes: list[Node] | None = None,
        placed: PlacedPods | None = None,
        scope: str | None = "",
        beside: Iterable[Object] = (),
    ) -> Explanation:
        """`scope` is the namespace whose claims are read; None for all.

        `beside` are claims and templates that will exist too.
        """
        claims = templates = None
        if as_object(pod.get("spec")).get("resourceClaims"):
            home = self._home(pod)
            made = claims_in(home, beside)
            if not exists:
                listed = self._readable(CLAIM_TEMPLATES, home)
                templates = {name_of(raw): raw for raw in listed}
                templates |= made.templates
            known = self._claims_in(home if scope == "" else scope)
            claims = {**made.made}
            claims |= {name: raw for (where, name), raw in known.items() if where in {home, ""}}
        namespace = Namespace() if exists else self._namespace_of_new(pod)
        return explain(
            pod,
            self._nodes if nodes is None else nodes,
            namespace=namespace._replace(claims=claims, templates=templates),
            devices=lambda: self._devices,
            placed=self._placed if placed is None else placed,
            classes=self._classes,
            volumes=self._volumes,
            exists=exists,
        )

    def _home(self, pod: Object) -> str:
        named = as_text(as_object(pod.get("metadata")).get("namespace"))
        return named or self._namespace or "default"

    def _namespace_of_new(self, pod: Object) -> Namespace:
        home = self._home(pod)
        if home not in self._namespaces:
            quotas, ranges = self._readable(QUOTAS, home), self._readable(LIMIT_RANGES, home)
            self._namespaces[home] = Namespace(None, tuple(quotas), tuple(ranges), home)
        return self._namespaces[home]

    def _claims_in(self, scope: str | None) -> dict[tuple[str, str], Object]:
        if scope not in self._claims:
            listed = self._readable(CLAIMS, scope)
            self._claims[scope] = {_place(raw): raw for raw in listed}
        return self._claims[scope]

    @cached_property
    def _devices(self) -> DeviceAllocator | None:
        """Return what is known of devices; None if the cluster has no DeviceClass."""
        classes = [*self._readable(DEVICE_CLASSES, None)]
        if not classes:
            return None
        claims = self._claims_in(None).values()
        slices, rules = self._readable(SLICES, None), self._readable(TAINT_RULES, None)
        version = parse_version(self._source.server_version())
        return DeviceAllocator(slices, classes, claims, rules, version=version)

    def _labels_of_namespace(self, namespace: str) -> Mapping[str, str] | None:
        return self._namespace_labels.get(namespace)

    @cached_property
    def _namespace_labels(self) -> Mapping[str, Mapping[str, str]]:
        return {name_of(raw): labels_of(raw) for raw in self._readable(NAMESPACES, None)}

    def _named(self, resource: Resource, namespace: str | None = None) -> Mapping[str, Object]:
        """The objects of a resource by name; they are read once."""
        if (resource, namespace) not in self._listed:
            listed = self._readable(resource, namespace)
            self._listed[resource, namespace] = {name_of(raw): raw for raw in listed}
        return self._listed[resource, namespace]

    def _known(self, resource: Resource, namespace: str | None = None) -> Known:
        """Return the objects of a resource by name; None if files have none.

        Files need not have all that is in a cluster.
        """
        found = self._named(resource, namespace)
        return None if not found and isinstance(self._source, FileSource) else found

    def _readable(self, resource: Resource, namespace: str | None) -> Iterator[Object]:
        return list_readable(self._source, resource, namespace, self._on_missing)


def read_workloads(file: str, namespace: str | None) -> list[Workload]:
    """The pods of the objects in a file: of Pods, and of what makes pods.

    Raises SourceError if there are none.
    """
    found: list[Workload] = []
    beside: list[Object] = []
    profile = default_policy().profile
    for raw in FileSource([file], sys.stdin.buffer).list_all({}, None, _raise):
        kind, group = as_text(raw.get("kind")), as_text(raw.get("apiVersion")).rpartition("/")[0]
        if (kind, group) == ("Pod", ""):
            found.append(Workload(raw, 1))
        elif is_claim(raw):
            beside.append(raw)
        elif has_final_pods(kind, group):
            made = future_pods(raw, profile, namespace)
            pods = [{**as_object(pod.manifest)} for pod in made]
            count = _count(kind, as_object(raw.get("spec"))) if len(pods) == 1 else None
            found += (Workload(pod, count) for pod in pods)
    if not found:
        raise SourceError(f"{file}: there is no Pod, and no object that makes pods")
    return [workload._replace(beside=tuple(beside)) for workload in found]


def _raise(error: SourceError) -> None:
    raise error


def _count(kind: str, spec: Mapping[str, Any]) -> int | None:
    """Return how many pods of a built-in workload run at the same time; None if it is not known."""
    match kind:
        case "Deployment" | "ReplicaSet" | "StatefulSet" | "ReplicationController":
            return _number(spec.get("replicas"), 1)
        case "Job":
            parallelism = _number(spec.get("parallelism"), 1)
            return min(parallelism, _number(spec.get("completions"), parallelism))
    return None


def _number(value: object, default: int) -> int:
    return value if isinstance(value, int) and 0 <= value < 10**9 else default


def _key(pod: Object, placed: PlacedPods) -> str:
    """Return a key of what an explanation looks at: pods with the same key have the same answer."""
    metadata, spec = as_object(pod.get("metadata")), as_object(pod.get("spec"))
    containers = [
        [container.get("resources"), container.get("ports"), container.get("restartPolicy")]
        for field in ("containers", "initContainers")
        for _, container in as_objects(spec.get(field))
    ]
    volumes = [
        [volume.get(key) for key in ("persistentVolumeClaim", "ephemeral")]
        for _, volume in as_objects(spec.get("volumes"))
    ]
    status = as_object(pod.get("status"))
    claims = status.get("resourceClaimStatuses")
    # Labels and annotations differ from pod to pod of a Job: only these matter.
    labels, annotations = (as_object(metadata.get(key)) for key in ("labels", "annotations"))
    named = [metadata.get("namespace"), labels.get(GPU_COUNT), *map(annotations.get, KAI_KEYS)]
    if any(volume.get("ephemeral") for _, volume in as_objects(spec.get("volumes"))):
        named.append(metadata.get("name"))  # its claims have names of their own
    if status.get("nominatedNodeName"):
        named.append(metadata.get("name"))  # room is kept for itself
    named += [labels.get(key) for key in label_keys(pod)]
    marks = [*label_marks(pod, placed), *spread_marks(pod)]
    looked_at = [spec.get(key) for key in _LOOKED_AT]
    parts = [named, marks, looked_at, containers, volumes, claims]
    return json.dumps(parts, sort_keys=True, default=str)


def _place(raw: Object) -> tuple[str, str]:
    metadata = as_object(raw.get("metadata"))
    return as_text(metadata.get("namespace")), as_text(metadata.get("name"))

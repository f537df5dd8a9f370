"""An account of GPUs that follows a cluster: only nodes that have changed are counted again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from cluster.accounting.account import (
    DEFAULT_POD_SIZE,
    CountedPod,
    NodeCounter,
    NodeLoad,
    Object,
    PodSize,
    PodsWithClaims,
    count_claims,
    count_pod,
    given_twice,
)
from cluster.accounting.claims import Device, offered_devices
from cluster.accounting.pods_without_gpu import GpuNodeTaints, PodWithoutGpu
from cluster.accounting.shares import card_memory
from cluster.accounting.usage import Consumer, NodeUsage, Usage
from cluster.source.objects import name_of, without_images
from rules.base.json_values import as_object, as_text
from rules.profile.profile import Profile

Key = tuple[str, str]
"""Namespace and name of an object."""


class RunningAccount:
    """An account equal to an `Account`, of objects that come and go.

    A change takes time that depends on what it changes: a pod costs the count of its node. Claims
    and ResourceSlices change seldom; with one of them, all of them are counted again.
    """

    def __init__(self, profile: Profile, pod_size: PodSize = DEFAULT_POD_SIZE) -> None:
        self._profile, self._pod_size = profile, pod_size
        self._nodes: dict[str, Object] = {}
        self._card_memory: dict[str, int] = {}
        self._pods: dict[Key, CountedPod] = {}
        self._on_node: dict[str, dict[Key, CountedPod]] = defaultdict(dict)
        self._claims: dict[Key, Object] = {}
        self._slices: dict[str, Object] = {}
        self._unknown: tuple[str, ...] = ()
        self._offered: dict[str, list[Device]] = {}
        self._claim_consumers: dict[str, list[Consumer]] = {}
        self._counted: dict[str, NodeUsage] = {}
        self._taints = GpuNodeTaints(profile)
        self._without_gpu: dict[str, list[PodWithoutGpu]] = {}
        self._changed: set[str] = set()
        self._claims_changed = False

    def put_node(self, raw: Object) -> bool:
        """Take a node in; whether its pods must be put again, as its cards are of another size.

        What a pod has of a card may depend on that, and pods are not kept.
        """
        name, memory = name_of(raw), card_memory(raw)
        self._nodes[name] = without_images(raw)
        self._changed.add(name)
        before = self._card_memory.get(name, 0)
        self._card_memory[name] = memory
        return memory != before and bool(self._on_node.get(name))

    def drop_node(self, name: str) -> bool:
        """Forget a node; whether its pods must be put again."""
        self._nodes.pop(name, None)
        memory = self._card_memory.pop(name, 0)
        self._changed.add(name)
        return bool(memory and self._on_node.get(name))

    def put_pod(self, raw: Object) -> None:
        """Take a pod in, in place of an earlier state of it."""
        counted = count_pod(raw, self._profile, self._card_memory)
        metadata = as_object(raw.get("metadata"))
        key = as_text(metadata.get("namespace")), as_text(metadata.get("name"))
        before = self._pods.get(key)
        if counted == before:
            return
        self.drop_pod(key)
        if counted is not None:
            self._pods[key] = counted
            self._on_node[counted.node][key] = counted
            self._changed.add(counted.node)
            self._claims_changed |= counted.has_claims

    def drop_pod(self, key: Key) -> None:
        """Forget a pod."""
        counted = self._pods.pop(key, None)
        if counted is not None:
            self._on_node[counted.node].pop(key, None)
            self._changed.add(counted.node)
            self._claims_changed |= counted.has_claims

    def put_claim(self, key: Key, raw: Object | None) -> None:
        """Take a ResourceClaim in; None if it is gone."""
        if raw is None:
            self._claims.pop(key, None)
        else:
            self._claims[key] = raw
        self._claims_changed = True

    def put_slice(self, name: str, raw: Object | None) -> None:
        """Take a ResourceSlice in; None if it is gone."""
        if raw is None:
            self._slices.pop(name, None)
        else:
            self._slices[name] = raw
        self._claims_changed = True

    def usage(self) -> Usage:
        """The account as it is now."""
        if self._claims_changed:
            self._count_claims()
        for name in self._changed:
            self._count(name)
        self._changed.clear()
        nodes = tuple(self._counted[name] for name in sorted(self._counted))
        consumers = tuple(self._consumers())
        twice = given_twice(consumers, self._claims.values(), self._profile)
        return Usage(
            nodes=nodes,
            consumers=consumers,
            unknown=self._unknown,
            given_twice=twice,
            sick=tuple(sick for pod in self._pods.values() for sick in pod.sick),
            without_gpu=tuple(
                pod for name in sorted(self._without_gpu) for pod in self._without_gpu[name]
            ),
        )

    def nodes(self) -> Iterator[tuple[Object, NodeLoad]]:
        """Each node, with or without GPUs, and what its pods take."""
        for name, raw in self._nodes.items():
            yield raw, self._load(name)

    def pods_of(self, name: str) -> tuple[CountedPod, ...]:
        """The counted parts of the pods of a node."""
        return tuple(self._on_node.get(name, {}).values())

    def node(self, name: str) -> Object | None:
        """The node of this name, with or without GPUs; None if there is none."""
        return self._nodes.get(name)

    def _consumers(self) -> Iterator[Consumer]:
        for pod in self._pods.values():
            if pod.consumer is not None:
                yield pod.consumer
        for consumers in self._claim_consumers.values():
            yield from consumers

    def _load(self, name: str) -> NodeLoad:
        load = NodeLoad()
        for pod in self._on_node.get(name, {}).values():
            load.add(pod.requests, pod.consumer)
        return load

    def _count(self, name: str) -> None:
        raw = self._nodes.get(name)
        counted, without = None, list[PodWithoutGpu]()
        if raw is not None:
            pods = self._on_node.get(name, {}).values()
            taints = self._taints.of(raw)
            if taints is not None:
                found = (pod.without_gpu for pod in pods if pod.without_gpu is not None)
                without = sorted(pod.on_node(taints) for pod in found)
            own = [pod.consumer for pod in pods if pod.consumer is not None]
            counter = NodeCounter(
                {name: self._load(name)},
                [*own, *self._claim_consumers.get(name, ())],
                {name: self._offered.get(name, [])},
                self._profile,
                self._pod_size,
                {name: without},
            )
            counted = counter.count(raw)
        if counted is None:
            self._counted.pop(name, None)
        else:
            self._counted[name] = counted
        if without:
            self._without_gpu[name] = without
        else:
            self._without_gpu.pop(name, None)

    def _count_claims(self) -> None:
        """Count all claims again, and the nodes that have a part in them before or after."""
        devices, self._unknown = offered_devices(self._slices.values(), self._profile)
        before = {*self._offered, *self._claim_consumers}
        offered: dict[str, list[Device]] = defaultdict(list)
        for device in devices.values():
            offered[device.node].append(device)
        self._offered = dict(offered)
        pods = PodsWithClaims(self._pods.values())
        self._claim_consumers = _by_node(
            count_claims(self._claims.values(), devices, pods, self._profile)
        )
        self._changed |= before | {*self._offered, *self._claim_consumers}
        self._claims_changed = False


def _by_node(consumers: Iterable[Consumer]) -> dict[str, list[Consumer]]:
    found: dict[str, list[Consumer]] = {}
    for consumer in consumers:
        found.setdefault(consumer.node, []).append(consumer)
    return found

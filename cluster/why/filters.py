"""The obstacles that keep one node from taking a pod, in kube-scheduler's order.

The scheduler runs its filter plugins one after the other, and the first that refuses a node says
why. A plugin may have several reasons, such as too little of several resources. After it come the
device plugin, and the schedulers that count what is free on one card.
Source: Kubernetes, `pkg/scheduler/apis/config/v1/default_plugins.go` and
`pkg/scheduler/framework/plugins`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

from cluster.accounting.pod_requests import amount_of, effective_requests, whole
from cluster.accounting.shares import FRACTION, VOLCANO_CARDS
from cluster.why.amounts import NANO
from cluster.why.cards.card_rooms import CardRequest, CardRoom, asked_of_a_card
from cluster.why.cards.divided_cards import CardChooser
from cluster.why.cards.kai_cards import kai_request
from cluster.why.node_affinity import NodeAffinity
from cluster.why.nodes import Node
from cluster.why.placed.affinity import PodAffinity
from cluster.why.placed.pods import Nominated, PlacedPods, host_ports
from cluster.why.placed.topology_spread import TopologySpread
from cluster.why.volumes.pod_volumes import Volumes
from rules.base.json_values import as_object, as_objects, as_text
from rules.placement.tolerations import display_taint, tolerates
from rules.profile.profile import Taint

_CORDONED = Taint((), "node.kubernetes.io/unschedulable", None, "NoSchedule")
_BY_NAME = "node(s) didn't satisfy plugin(s) [NodeAffinity]"
_NO_NAME = "pod affinity terms conflict"
_NVIDIA = ("nvidia.com/gpu", "nvidia.com/gpu.shared")


class Obstacle(NamedTuple):
    """A reason why a node cannot take a pod.

    - `plugin`: the filter of kube-scheduler that refuses it.
    - `message`: what an event of kube-scheduler says.
    - `subject`: what it is about: a taint, a label, a port, or the name of a resource.
    - `pod`: the pod that is in the way, if there is one.
    - `wanted`: the label that the node lacks.
    - `asked`, `free`, `total`, `capacity`: of a resource, in units of 1e-9: what the pod asks for,
      and what the node has left (less than nothing if its pods take more than it has), offers, and
      would offer if all its devices were healthy.
    - `is_expected`: the node's labels say that it has such devices.
    - `kept_for`: the pods without a node for which kube-scheduler keeps room there.
    - `words`, `remedy`: the reason, what is against each device, and what would change it, where
      the code that finds it also knows the words.

    `message` is empty if kube-scheduler does not refuse the pod, and another program does.
    """

    plugin: str
    message: str
    subject: str = ""
    asked: int = 0
    free: int = 0
    total: int = 0
    capacity: int = 0
    is_expected: bool = False
    pod: str = ""
    wanted: str = ""
    kept_for: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    remedy: str = ""


_Plugin: TypeAlias = Callable[[Node], Iterable[Obstacle]]
Filter: TypeAlias = Callable[[Node], Iterable[tuple[Obstacle, ...]]]
"""A filter of another module: the obstacles of a node, if it refuses the node."""


class Wanted:
    """The needs of a pod that nodes must meet.

    `uncounted` are resources that nodes need not offer, as another scheduler counts them, or a
    DeviceClass serves them. `nodes` are all of the cluster, `placed` the pods that have one of
    them, if they are known, and `volumes` those of the pod. `ahead` are, by node, the pods without
    a node for which kube-scheduler keeps room there before it asks for this one. `later` are the
    filters that kube-scheduler asks after those of this class.
    """

    def __init__(
        self,
        pod: Mapping[str, Any],
        uncounted: Collection[str] = (),
        *,
        nodes: Sequence[Node] = (),
        placed: PlacedPods | None = None,
        volumes: Volumes | None = None,
        ahead: Mapping[str, Sequence[Nominated]] | None = None,
        later: Sequence[Filter] = (),
        exists: bool = False,
    ) -> None:
        spec = as_object(pod.get("spec"))
        self.pod, self.spec = pod, spec
        self._uncounted, self._nodes = uncounted, nodes
        self._placed = placed or PlacedPods()
        self._ahead = ahead or {}
        self._ports = [*host_ports(spec)]
        self._volumes = volumes if volumes and volumes.are_any else None
        self._later, self._exists = later, exists
        self._chooser = CardChooser(pod, exists=exists)
        self._of_a_card, self._of_kai = asked_of_a_card(pod), kai_request(pod)
        self.requests = effective_requests(pod)
        # GPUs first: what is beside them matters only where they are.
        self._by_importance = sorted(self.requests.items(), key=lambda item: "/" not in item[0])
        self.node_name = as_text(spec.get("nodeName"))
        self._tolerations = [toleration for _, toleration in as_objects(spec.get("tolerations"))]
        self._node_affinity = NodeAffinity(spec)

    def obstacles(self, node: Node) -> Iterator[tuple[Obstacle, ...]]:
        """Return the obstacle of each filter that refuses `node`; nothing if none does.

        kube-scheduler stops at the first. What comes after it says whether it would be enough to
        remove that: also what the same filter would say next. It asks its filters first as if the
        pods that it has nominated for a node were there.
        """
        ahead = self._ahead.get(node.name)
        return self._obstacles_with(ahead, node) if ahead else self._obstacles(node)

    def _obstacles_with(
        self, ahead: Sequence[Nominated], node: Node
    ) -> Iterator[tuple[Obstacle, ...]]:
        found: list[tuple[Obstacle, ...]] = []
        names = tuple(one.name for one in ahead)
        for obstacles in self._beside(ahead, node):
            found.append(tuple(one._replace(kept_for=names) for one in obstacles))
            yield found[-1]
        said = {(one.message, one.subject) for obstacles in found for one in obstacles}
        for obstacles in self._obstacles(node):
            if not said.issuperset((one.message, one.subject) for one in obstacles):
                yield obstacles

    def _beside(self, ahead: Sequence[Nominated], node: Node) -> Iterator[tuple[Obstacle, ...]]:
        """Yield the obstacles of a node on which the pods of `ahead` run too."""
        load = node.load
        for one in ahead:
            load = load.with_pods(one.requests, 1)
        node = node._replace(load=load)
        is_apart = self._volumes is None and not self._ports and all(o.is_apart for o in ahead)
        if is_apart and not (self.topology_spread.can_refuse or self.pod_affinity.can_refuse):
            yield from self._obstacles(node)
            return
        placed = self._placed.with_nominated(node.name, ahead)
        volumes = self._volumes and self._volumes.beside(ahead, placed)
        other = Wanted(
            self.pod,
            self._uncounted,
            nodes=self._nodes,
            placed=placed,
            volumes=volumes,
            later=self._later,
            exists=self._exists,
        )
        if not self.pod_affinity.can_refuse:  # then kube-scheduler does not ask this filter at all
            other.pod_affinity = self.pod_affinity
        yield from other.obstacles(node)

    def _obstacles(self, node: Node) -> Iterator[tuple[Obstacle, ...]]:
        names = self._node_affinity.names
        if names is not None and node.name not in names:
            yield (Obstacle("NodeAffinity", _BY_NAME if names else _NO_NAME),)
        for plugin in self._before_volumes:
            if found := tuple(plugin(node)):
                yield found
        if self._volumes is not None:
            yield from self._of_volumes(self._volumes, node)
        if self.topology_spread.can_refuse:
            yield from ((one,) for one in self._topology_spread(node))
        if self.pod_affinity.can_refuse:
            yield from ((one,) for one in self._pod_affinity(node))
        for later in self._later:
            yield from later(node)
        for plugin in (self._shares, self._cards):
            if found := tuple(plugin(node)):
                yield found

    def obstacles_without(
        self, removed: Sequence[Obstacle], node: Node
    ) -> list[tuple[Obstacle, ...]] | None:
        """Return the obstacles that are left once `removed`, those of a filter, are out of the way.

        None if they are those that come after `removed` anyway. Topology spread counts the nodes
        that a pod selects and tolerates, and that have the labels of all its constraints: what
        changes one of these changes what it says.
        """
        if not self.topology_spread.can_refuse:
            return None
        spec, nodes = {**self.spec}, self._nodes
        match removed[0].plugin:
            case "TaintToleration":
                well = node._replace(
                    taints=tuple(t for t in node.taints if not is_of_kubernetes(t))
                )
                nodes = [well if one is node else one for one in nodes]
                node = well
                added = [
                    {"key": t.key, "operator": "Exists", "effect": t.effect}
                    for t in node.taints
                    if not self._tolerates(t)
                ]
                spec["tolerations"] = [*self._tolerations, *added]
            case "NodeAffinity":
                affinity = {**as_object(spec.get("affinity"))}
                affinity.pop("nodeAffinity", None)
                spec.pop("nodeSelector", None)
                spec["affinity"] = affinity
            case "PodTopologySpread" if not removed[0].total:
                key = "topologySpreadConstraints"
                names = {one.subject for one in removed}
                spec[key] = [
                    one
                    for _, one in as_objects(spec.get(key))
                    if as_text(one.get("topologyKey")) not in names
                ]
            case _:
                return None
        other = Wanted(
            {**self.pod, "spec": spec},
            self._uncounted,
            nodes=nodes,
            placed=self._placed,
            volumes=self._volumes,
            ahead=self._ahead,
            later=self._later,
            exists=self._exists,
        )
        return [*other.obstacles(node)]

    @cached_property
    def _before_volumes(self) -> tuple[_Plugin, ...]:
        plugins: list[_Plugin] = [self._unschedulable, self._taint, self._affinity]
        if self._ports:
            plugins.append(self._host_ports)
        return (*plugins, self._resources)

    @staticmethod
    def _of_volumes(volumes: Volumes, node: Node) -> Iterator[tuple[Obstacle, ...]]:
        for found in volumes.obstacles(node):
            yield tuple(
                Obstacle(
                    one.plugin,
                    one.message,
                    one.subject,
                    pod=one.pod,
                    words=(one.words,),
                    remedy=one.remedy,
                )
                for one in found
            )

    def obstacles_of_kubelet(self, node: Node) -> Iterator[tuple[Obstacle, ...]]:
        """Return why the kubelet of `node` refuses the pod, if it names the node itself.

        Then kube-scheduler is not asked. A kubelet does not check a device that its node does not
        offer. Source: Kubernetes, `pkg/kubelet/lifecycle/predicate.go`.
        """
        taints = tuple(taint for taint in node.taints if taint.effect == "NoExecute")
        resources = [o for o in self._resources(node) if o.total or "/" not in o.subject]
        for found in (
            tuple(self._taint(node._replace(taints=taints))),
            tuple(self._affinity(node)),
            tuple(self._host_ports(node)),
            tuple(resources),
            tuple(self._shares(node)),
        ):
            if found:
                yield tuple(obstacle._replace(message="") for obstacle in found)

    def _is_uncounted(self, resource: str, node: Node) -> bool:
        return resource in self._uncounted and resource not in node.devices

    def copies(self, node: Node) -> int:
        """Return how many such pods `node` has room for, whatever other nodes say."""
        for one in self._ahead.get(node.name, ()):
            node = node._replace(load=node.load.with_pods(one.requests, 1))
        room = [1] if self._ports or self.pod_affinity.is_one_per_node else []
        room += [whole(node.allocatable.get("pods", 0)) - node.load.pods]
        for name, asked in self.requests.items():
            total = node.allocatable.get(name, 0)
            if asked and not self._is_uncounted(name, node):
                room.append((total - node.load.requests.get(name, 0)) // asked)
        return max(min(room), 0)

    def doubts(self, node: Node) -> Iterator[str]:
        """Yield the unknown facts about a node that refuses the pod for no known reason."""
        if self._volumes:
            yield from self._volumes.doubts(node)
        for resource, asked in self._of_a_card.items():
            room = node.rooms.get(resource)
            if resource in node.divided or (room is None and resource not in node.devices):
                continue
            if not (room and room.is_known and asked.most <= room.free_on_each(asked.cards)):
                yield f"how much {resource} is free on one card"
        if self._of_kai and self._of_kai.memory and not node.card_memory:
            yield "how much memory a card has, which no label of the node says"
        yield from filter(None, (self._chooser.choose(node.divided, node.load).doubt,))

    @cached_property
    def overhead(self) -> Mapping[str, int]:
        """Return the part of the requests that is not of its containers."""
        return {name: amount_of(one) for name, one in as_object(self.spec.get("overhead")).items()}

    @property
    def asks_of_a_card(self) -> bool:
        """Return whether the pod asks for a part of a card."""
        return bool(self._of_a_card or self._of_kai)

    @property
    def is_about_itself(self) -> bool:
        """Return whether where one such pod is decides about the next, beyond its node."""
        is_exclusive = self._volumes is not None and self._volumes.is_for_one_pod
        of_pods = self.topology_spread.is_about_itself or self.pod_affinity.is_about_itself
        return is_exclusive or of_pods

    @cached_property
    def topology_spread(self) -> TopologySpread:
        """Return what the pod's topology spread constraints say about nodes."""
        return TopologySpread(
            self.pod,
            self._placed,
            self._nodes,
            is_selected=lambda node: not self._node_affinity.unmet(node),
            is_tolerated=lambda node: all(map(self._tolerates, node.taints)),
        )

    @cached_property
    def pod_affinity(self) -> PodAffinity:
        """Return what the pod's affinity, and the anti-affinity of others, say about nodes."""
        return PodAffinity(self.pod, self._placed, self._nodes)

    def _tolerates(self, taint: Taint) -> bool:
        return any(tolerates(toleration, taint) for toleration in self._tolerations)

    def _unschedulable(self, node: Node) -> Iterator[Obstacle]:
        if node.is_cordoned and not self._tolerates(_CORDONED._replace(value="")):
            yield Obstacle("NodeUnschedulable", "node(s) were unschedulable")

    def _taint(self, node: Node) -> Iterator[Obstacle]:
        for taint in node.taints:
            if not self._tolerates(taint):
                text = display_taint(taint._replace(value=taint.value or None))
                yield Obstacle("TaintToleration", "node(s) had untolerated taint(s)", text)

    def _affinity(self, node: Node) -> Iterator[Obstacle]:
        if unmet := self._node_affinity.unmet(node):
            message = "node(s) didn't match Pod's node affinity/selector"
            yield Obstacle("NodeAffinity", message, unmet)

    def _host_ports(self, node: Node) -> Iterator[Obstacle]:
        message = "node(s) didn't have free ports for the requested pod ports"
        taken = self._placed.taken(self._ports, node.name)
        found = (
            Obstacle("NodePorts", message, f"{p.port}/{p.protocol}", pod=pod) for p, pod in taken
        )
        yield from dict.fromkeys(found)  # at several addresses it is still one port

    def _topology_spread(self, node: Node) -> Iterator[Obstacle]:
        for found in self.topology_spread.obstacles(node):
            yield Obstacle(
                "PodTopologySpread", found.message, found.topology_key, total=found.max_skew
            )

    def _pod_affinity(self, node: Node) -> Iterator[Obstacle]:
        for found in self.pod_affinity.obstacles(node):
            is_lacking = found.topology not in node.labels
            wanted = found.topology if is_lacking else ""
            yield Obstacle(
                "InterPodAffinity", found.message, found.topology, pod=found.pod, wanted=wanted
            )

    def _resources(self, node: Node) -> Iterator[Obstacle]:
        plugin = "NodeResourcesFit"
        room = whole(node.allocatable.get("pods", 0)) - node.load.pods
        if room < 1:
            total = node.allocatable.get("pods", 0)
            yield Obstacle(plugin, "Too many pods", "pods", NANO, room * NANO, total)
        for name, asked in self._by_importance:
            total = node.allocatable.get(name, 0)
            free = total - node.load.requests.get(name, 0)
            if asked > free and not self._is_uncounted(name, node):
                capacity, is_expected = node.capacity.get(name, 0), _is_expected(node, name)
                amounts = asked, free, total, capacity
                yield Obstacle(plugin, f"Insufficient {name}", name, *amounts, is_expected)

    def _shares(self, node: Node) -> Iterator[Obstacle]:
        """NVIDIA's device plugin gives a container one share of a card that MPS shares.

        Source: NVIDIA/k8s-device-plugin `cmd/nvidia-device-plugin`, failRequestsGreaterThanOne.
        """
        if node.labels.get("nvidia.com/gpu.sharing-strategy") != "mps":
            return
        for field in ("containers", "initContainers"):
            for _, container in as_objects(self.spec.get(field)):
                limits = as_object(as_object(container.get("resources")).get("limits"))
                for name in _NVIDIA:
                    if (asked := amount_of(limits.get(name))) > NANO and name in node.devices:
                        yield Obstacle("MPS", "", name, asked)
                        return

    def _cards(self, node: Node) -> Iterator[Obstacle]:
        """Too little is free on one card, whatever the sum over the cards of the node is."""
        chosen = self._chooser.choose(node.divided, node.load)
        for resource, asked in self._of_a_card.items():
            room = node.rooms.get(resource)
            if room is None or asked.least <= room.free_on_each(asked.cards):
                continue
            if resource == VOLCANO_CARDS:
                yield Obstacle("Card", "", resource, words=(_of_whole_cards(asked.least, room),))
            elif asked.cards > 1:
                yield Obstacle("Card", "", resource, words=(_of_cards(resource, asked, room),))
            elif chosen.reason or resource not in node.divided:
                yield Obstacle("Card", "", resource, asked.least, room.free, room.total)
            return
        if self._of_kai and (reason := self._of_kai.reason_against(node.kai)):
            yield Obstacle("Card", "", FRACTION, words=(reason,))
        elif chosen.reason:
            yield Obstacle("Card", "", "cards", words=(chosen.reason,))


def _of_whole_cards(asked: int, room: CardRoom) -> str:
    wanted, idle, total = (amount // NANO for amount in (asked, room.free, room.total))
    return f"the pod asks for {wanted} whole cards, and {idle} of {total} are idle"


def _of_cards(resource: str, asked: CardRequest, room: CardRoom) -> str:
    wanted, free = whole(asked.least), room.free_on_each(asked.cards) // NANO
    return (
        f"the pod asks for {wanted} {resource} of each of {asked.cards} cards, and at most {free} "
        "are free on each of so many"
    )


def is_of_kubernetes(taint: Taint) -> bool:
    """Return whether Kubernetes itself sets a taint, and removes it as soon as the node is well."""
    return taint.key.startswith("node.kubernetes.io/")


def _is_expected(node: Node, resource: str) -> bool:
    """Return whether labels of a node promise devices of a vendor that the node does not offer."""
    vendor = resource.partition("/")[0]
    is_labelled = node.labels.get(f"{vendor}/gpu.present") == "true" or any(
        node.labels.get(f"{vendor}/{key}") for key in ("gpu.product", "gpu.product-name")
    )
    return is_labelled and not any(name.startswith(f"{vendor}/") for name in node.devices)

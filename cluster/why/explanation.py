"""The reasons why a pod is Pending: before nodes are looked at, and for each group of nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from cluster.accounting.pod_requests import effective_requests
from cluster.source.objects import Object, group_name
from cluster.why.admission import Admitted, admit
from cluster.why.amounts import requests_text
from cluster.why.cards.card_rooms import COUNTED_BY_SCHEDULERS
from cluster.why.cards.divided_cards import PERCENTAGES
from cluster.why.declared_features import NeededFeatures
from cluster.why.devices.allocator import DeviceAllocator
from cluster.why.devices.pod_devices import Claims, PodDevices
from cluster.why.filters import Wanted
from cluster.why.groups import NodeGroup, Refusals, group_nodes
from cluster.why.hurdles import Hurdle, find_hurdles
from cluster.why.nodes import Node
from cluster.why.placed.pods import Nominated, PlacedPods, host_ports, namespace_of
from cluster.why.placed.preemption import nodes_with_victims, priority_of
from cluster.why.queueing.pod_groups import PodGroup
from cluster.why.volumes.known import KnownVolumes
from cluster.why.volumes.pod_volumes import Volumes
from reports.formats import some
from rules.base.json_values import as_object, as_objects, as_text

DEFAULT_SCHEDULER = "default-scheduler"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_AGAINST = "podAntiAffinity"
_DEVICES_AND_LATER = frozenset({"DynamicResources", "NodeDeclaredFeatures"})
"""The last filters of kube-scheduler."""


class Answer(StrEnum):
    """The answers to whether a pod can run."""

    CAN = "can"
    CANNOT = "cannot"
    NOT_KNOWN = "not known"


class Explanation(NamedTuple):
    """The reasons why a pod has no node.

    - `asks`: what it asks for, such as `4 nvidia.com/gpu`; `defaults` is what its namespace adds.
    - `node`: the node that it has, or that it names itself; empty if it has none.
    - `hurdles`: what is in its way before nodes are looked at.
    - `groups`: the nodes that cannot take it, those first that come nearest to it; `fitting` are
      those that can.
    - `other_scheduler`: the scheduler that decides about it, if that is not kube-scheduler.
    - `wanted`, `placed`: of how many equal pods this is one, and for how many there is room; None
      if no user asked. With too little room, the explanation is that of the next pod.
    - `group`: the PodGroup because of which so many pods must find room at the same time.
    - `since`: when it was created; empty if it does not exist yet.
    - `evicting`: the nodes from which kube-scheduler may evict pods of lower priority for it.
    - `scheduler`: what kube-scheduler has said last, if the pod has it.
    - `unchecked`: what may keep nodes from it as well, and is not known here.
    - `is_unfinished`: webhooks change it in a way that is not known, so that nothing is sure.
    - `is_admitted`: Kueue lets it run, so that its pods are to be asked about and not the nodes.
    """

    namespace: str
    name: str
    asks: tuple[str, ...]
    node: str
    hurdles: tuple[Hurdle, ...]
    groups: tuple[NodeGroup, ...]
    fitting: tuple[str, ...]
    nodes: int
    scheduler: str
    unchecked: tuple[str, ...]
    other_scheduler: str = ""
    defaults: tuple[str, ...] = ()
    is_bound: bool = False
    """Whether it has `node`, and no longer waits for an answer about it."""
    wanted: int | None = None
    placed: int | None = None
    since: str = ""
    evicting: tuple[str, ...] = ()
    is_unfinished: bool = False
    is_admitted: bool = False
    group: str = ""

    @property
    def answer(self) -> Answer:
        """Return whether it can run: not known rather than surer than those who decide."""
        if self.hurdles:
            return Answer.CANNOT
        if self.is_bound:
            return Answer.CAN
        if self.other_scheduler or self.is_unfinished or self.is_admitted:
            return Answer.NOT_KNOWN
        if not self.fitting:
            return Answer.NOT_KNOWN if self.evicting else Answer.CANNOT
        return Answer.NOT_KNOWN if self.unchecked else Answer.CAN

    @property
    def summary(self) -> str:
        """Return the nodes' reasons as in an event of kube-scheduler.

        A node may count several times.

        Empty if kube-scheduler does not decide, others refuse what it would allow, or it is not
        known.
        """
        is_refused_later = any(not all(group.messages) for group in self.groups)
        is_unsure = bool(self.fitting and (self.unchecked or self.hurdles))
        is_about_nodes = not (self.node or self.other_scheduler or self.is_admitted)
        if not is_about_nodes or is_refused_later or is_unsure:
            return ""
        counts: Counter[str] = Counter()
        for group in self.groups:
            for message in group.messages:
                counts[message] += len(group.names)
        reasons = sorted(f"{count} {message}" for message, count in counts.items())
        said = f"{len(self.fitting)}/{self.nodes} nodes are available"
        return f"{said}: {', '.join(reasons)}." if reasons else f"{said}."

    @property
    def verdict(self) -> str:
        """The answer in one sentence."""
        if self.hurdles:
            return self.hurdles[0].what
        if self.is_bound:
            return f"it has the node {self.node}"
        if self.is_admitted:
            return "Kueue has admitted it: its pods exist, or are being made"
        if self.other_scheduler:
            who = f"the scheduler {self.other_scheduler} decides about it"
            return f"{who}; by what is known here {self._nodes_verdict}"
        if self.is_unfinished:
            return f"by what is known here {self._nodes_verdict}"
        return self._nodes_verdict

    @property
    def _nodes_verdict(self) -> str:
        if not self.group or self.placed in {None, self.wanted}:
            return self._verdict_of_nodes
        return (
            f"its PodGroup {self.group} needs room for {self.wanted:,} pods at the same time, and "
            f"there is some for {self.placed:,}; about the next: {self._verdict_of_nodes}"
        )

    @property
    def _verdict_of_nodes(self) -> str:
        if self.fitting:
            may = "may" if self.unchecked else "can"
            return f"{_nodes(len(self.fitting))} {may} take it: {some(self.fitting)}"
        if not self.nodes:
            return "there is no node"
        # Of the nodes that come nearest to it.
        reasons = "; ".join(self.groups[0].reasons)
        if self.node:
            return f"the kubelet of {self.node} refuses it: {reasons}"
        if self.nodes == 1:
            return f"the only node cannot take it{self._now}: {reasons}"
        first = len(self.groups[0].names)
        because = "" if first == self.nodes else f"{first:,} of them because "
        return f"none of {_nodes(self.nodes)} can take it{self._now}: {because}{reasons}"

    @property
    def _now(self) -> str:
        return " as it is now" if self.evicting else ""


class Namespace(NamedTuple):
    """The parts of a pod's namespace that count.

    - `claims`, `templates`: claims and templates of claims by name; None if they are not known.
    - `quotas`, `limit_ranges`: what the API server looks at as it creates a pod.
    - `name`: where a pod is created that names no namespace itself.
    - `kueue`: why Kueue holds the pod back.
    - `group`: the PodGroup of the pod; None if it is not known, or the pod is in none.
    """

    claims: Mapping[str, Object] | None = None
    quotas: tuple[Object, ...] = ()
    limit_ranges: tuple[Object, ...] = ()
    name: str = ""
    templates: Mapping[str, Object] | None = None
    kueue: tuple[Hurdle, ...] = ()
    group: PodGroup | None = None


def _no_classes() -> Mapping[str, Object]:
    return {}


def _no_allocator() -> None:
    return None


class Classes(NamedTuple):
    """Functions that return the classes of a cluster by name."""

    runtime: Callable[[], Mapping[str, Object]] = _no_classes
    priority: Callable[[], Mapping[str, Object]] = _no_classes


def explain(
    pod: Object,
    nodes: Iterable[Node],
    *,
    namespace: Namespace = Namespace(),  # noqa: B008  # it cannot be changed
    devices: Callable[[], DeviceAllocator | None] = _no_allocator,
    placed: PlacedPods | None = None,
    classes: Classes = Classes(),  # noqa: B008  # the same
    volumes: KnownVolumes = KnownVolumes(),  # noqa: B008  # the same
    exists: bool = True,
) -> Explanation:
    """Return why `pod` is Pending, or would be.

    `placed` are the pods that have a node; None if they are not known.

    `devices` reads what is known of devices; it is called only for a pod with claims, and for one
    that no node takes without the devices of a DeviceClass. Quotas and LimitRanges count only for a
    pod that does not exist yet.
    """
    admitted = Admitted(pod)
    if not exists:
        home = namespace.name or namespace_of(pod)
        admitted = admit(pod, home, namespace.limit_ranges, classes.runtime)
    listed = [*nodes]
    pods = placed or PlacedPods()
    of_pod = Volumes(admitted.pod, volumes, pods, exists=exists)
    context = _Context(admitted, listed, namespace, placed, classes, of_pod, devices, exists)
    found = _explained(context, {})
    names = [name for name in effective_requests(admitted.pod) if "/" in name]
    if names and not (found.fitting or found.hurdles or found.node) and (known := devices()):
        class_by_resource = {name: one for name in names if (one := known.class_of(name))}
        if class_by_resource:
            return _explained(context, class_by_resource)
    return found


class _Context(NamedTuple):
    admitted: Admitted
    nodes: list[Node]
    namespace: Namespace
    placed: PlacedPods | None
    classes: Classes
    volumes: Volumes
    devices: Callable[[], DeviceAllocator | None]
    exists: bool

    def devices_of(self, class_by_resource: Mapping[str, str]) -> PodDevices:
        """Return the pod's requests of drivers of devices."""
        pod, claims = self.admitted.pod, self.namespace.claims
        spec = as_object(pod.get("spec"))
        asks = (class_by_resource or spec.get("resourceClaims")) and not spec.get("nodeName")
        known = Claims(claims or {}, self.namespace.templates or {})
        return PodDevices(pod, known, self.devices() if asks else None, class_by_resource)


def _explained(context: _Context, class_by_resource: Mapping[str, str]) -> Explanation:
    admitted, listed, namespace, placed, classes, volumes, _, exists = context
    pod = admitted.pod
    other = _other_scheduler(pod)
    uncounted = uncounted_resources(pod, listed, class_by_resource, exists=exists)
    devices = context.devices_of(class_by_resource)
    features = NeededFeatures(as_object(pod.get("spec")), listed, exists=exists)
    wanted = Wanted(
        pod,
        uncounted,
        nodes=listed,
        placed=placed,
        volumes=volumes,
        ahead=nominated_ahead(pod, placed, classes),
        later=(devices.obstacles, features.obstacles),
        exists=exists,
    )
    claims = namespace.claims
    hurdles = [*admitted.hurdles]
    quotas = () if exists else namespace.quotas
    group = namespace.group.hurdles if namespace.group else ()
    hurdles += find_hurdles(pod, wanted.requests, claims, quotas, namespace.kueue, group)
    if not wanted.node_name:
        hurdles += [*volumes.hurdles, *devices.hurdles]
    else:
        hurdles += _named_node_is_missing(wanted.node_name, listed, exists=exists)
        listed = [node for node in listed if node.name == wanted.node_name]
    refused: list[tuple[Node, Refusals]] = []
    fitting: list[Node] = []
    for node in listed:
        if wanted.node_name:
            refusals = [] if exists else [*wanted.obstacles_of_kubelet(node)]
        else:
            refusals = [*wanted.obstacles(node)]
        if refusals:
            refused.append((node, refusals))
        else:
            fitting.append(node)
    if fitting and not wanted.node_name:
        unasked = frozenset(
            node.name for node, found in refused if not _is_asked_for_devices(found)
        )
        hurdles += devices.end_of_search(unasked, len(listed))
    evicting: tuple[str, ...] = ()
    if placed is not None and refused and not (fitting or hurdles or wanted.node_name):
        priority = priority_of(pod, classes.priority)
        evicting = tuple(sorted(nodes_with_victims(refused, placed, priority)))
    metadata = as_object(pod.get("metadata"))
    return Explanation(
        as_text(metadata.get("namespace")),
        as_text(metadata.get("name")) or as_text(metadata.get("generateName")),
        tuple(requests_text(wanted.requests)),
        wanted.node_name,
        tuple(hurdles),
        tuple(group_nodes(refused, wanted)),
        tuple(sorted(node.name for node in fitting)),
        len(listed),
        scheduler_message(pod),
        (*admitted.unknown, *features.unknown, *_unknown(context, wanted, fitting, devices)),
        other_scheduler="" if wanted.node_name else other,
        defaults=admitted.defaults,
        is_bound=bool(wanted.node_name) and exists,
        since=as_text(metadata.get("creationTimestamp")),
        evicting=evicting,
    )


def _is_asked_for_devices(refusals: Refusals) -> bool:
    """Return whether no filter before the one for devices refuses a node.

    Obstacles without a message are those of other programs, which come after kube-scheduler.
    """
    firsts = (found[0] for found in refusals)
    return all(one.plugin in _DEVICES_AND_LATER for one in firsts if one.message)


def _unknown(
    context: _Context,
    wanted: Wanted,
    fitting: Sequence[Node],
    devices: PodDevices,
) -> Iterator[str]:
    """Yield the things that also decide about a pod, and are not known here."""
    if wanted.node_name:
        if not context.exists:
            yield from _unknown_to_kubelet(wanted, fitting)
        return
    if context.namespace.group:
        yield from context.namespace.group.doubts
    elif (name := group_name(context.admitted.pod)) and not _other_scheduler(context.admitted.pod):
        yield f"whether its PodGroup {name} keeps it waiting"
    yield from context.volumes.unknown
    yield from devices.unknown
    if context.placed is None:
        yield from _of_other_pods(wanted.spec)
    elif wanted.pod_affinity.is_unsure:
        yield "the labels of namespaces, by which an affinity to pods selects them"
    yield from _counted_by_others(wanted, fitting)
    doubts = [(*wanted.doubts(node), *devices.doubts(node)) for node in fitting]
    if all(doubts):
        yield from dict.fromkeys(doubt for found in doubts for doubt in found)


def _other_scheduler(pod: Mapping[str, Any]) -> str:
    name = as_text(as_object(pod.get("spec")).get("schedulerName"))
    return "" if name == DEFAULT_SCHEDULER else name


def uncounted_resources(
    pod: Object, nodes: Iterable[Node], served: Iterable[str], *, exists: bool
) -> frozenset[str]:
    """The resources that a node need not offer for a pod to get them: some are `served` by classes.

    kube-scheduler counts all that its own pods ask for. Webhooks give a pod that does not exist yet
    to the scheduler that counts cards, if the nodes have such cards.
    """
    is_counted = exists and not _other_scheduler(pod)
    shared = frozenset[str]() if is_counted else COUNTED_BY_SCHEDULERS
    found = {name for node in nodes for name in node.rooms if name in shared}
    percentages = (percentage for name, percentage in PERCENTAGES.items() if name in found)
    return frozenset((*found, *percentages, *served))


def nominated_ahead(
    pod: Object, placed: PlacedPods | None, classes: Classes
) -> Mapping[str, Sequence[Nominated]]:
    """Return the pods that kube-scheduler has nominated for a node and that go before `pod`."""
    if placed is None or not placed.nominated:
        return {}
    name = f"{namespace_of(pod)}/{as_text(as_object(pod.get('metadata')).get('name'))}"
    return placed.ahead_of(priority_of(pod, classes.priority).value, name)


def _unknown_to_kubelet(wanted: Wanted, nodes: Iterable[Node]) -> Iterator[str]:
    for name in wanted.requests:
        if "/" in name and not any(name in node.devices for node in nodes):
            yield f"what the kubelet does about {name}, which its node does not offer"


def _counted_by_others(wanted: Wanted, nodes: Sequence[Node]) -> Iterator[str]:
    for name in wanted.requests:
        is_offered = any(name in node.devices for node in nodes)
        is_counted = name in COUNTED_BY_SCHEDULERS and not _other_scheduler(wanted.pod)
        if is_counted and not is_offered:
            yield f"whether a webhook gives it to the scheduler that counts {name}"


def _named_node_is_missing(name: str, nodes: Iterable[Node], *, exists: bool) -> Iterator[Hurdle]:
    if all(node.name != name for node in nodes):
        yield Hurdle(
            f"it has the node {name}, which does not exist"
            if exists
            else f"it names the node {name}, which does not exist",
            "delete the pod" if exists else "leave nodeName out, and select nodes by their labels",
        )


def to_document(found: Explanation) -> dict[str, Any]:
    """An explanation as plain data."""
    return {
        "version": 1,
        "namespace": found.namespace,
        "name": found.name,
        "asks": list(found.asks),
        "defaults": list(found.defaults),
        "node": found.node or None,
        "answer": found.answer.value,
        "verdict": found.verdict,
        "summary": found.summary,
        "hurdles": [hurdle._asdict() for hurdle in found.hurdles],
        "groups": [
            {
                "model": group.model,
                "count": len(group.names),
                "nodes": list(group.names),
                "reasons": list(group.reasons),
                "messages": list(group.messages),
                "remedies": list(group.remedies),
                "further": list(group.further),
            }
            for group in found.groups
        ],
        "fitting": list(found.fitting),
        "nodes": found.nodes,
        "scheduler": found.scheduler,
        "unchecked": list(found.unchecked),
        "wanted": found.wanted,
        "placed": found.placed,
        "group": found.group or None,
        "since": found.since or None,
        "evicting": list(found.evicting),
    }


def _nodes(count: int) -> str:
    return f"{count:,} node" if count == 1 else f"{count:,} nodes"


def scheduler_message(pod: Object) -> str:
    """Return the last message of kube-scheduler about a pod; empty if there is none."""
    for _, condition in as_objects(as_object(pod.get("status")).get("conditions")):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return as_text(condition.get("message"))
    return ""


def _of_other_pods(spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield the things that depend on pods that have a node."""
    affinity = as_object(spec.get("affinity"))
    if any(as_object(affinity.get(key)).get(_REQUIRED) for key in ("podAffinity", _AGAINST)):
        yield "affinity to other pods"
    constraints = as_objects(spec.get("topologySpreadConstraints"))
    if any(one.get("whenUnsatisfiable") == "DoNotSchedule" for _, one in constraints):
        yield "topology spread constraints"
    if any(host_ports(spec)):
        yield "ports of the node"

"""Why a pod is Pending: what is in its way before nodes, and at each group of nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from cluster.gpus.pod_requests import effective_requests
from cluster.source.objects import Object
from cluster.why.admission import Admitted, admit
from cluster.why.amounts import requests_text
from cluster.why.cards import COUNTED_BY_SCHEDULERS
from cluster.why.filters import Obstacle, Uncounted, Wanted
from cluster.why.groups import NodeGroup, Refusals, group_nodes
from cluster.why.hurdles import Hurdle, claim_names, find_hurdles
from cluster.why.nodes import Node
from cluster.why.placed.pods import PlacedPods, host_ports, namespace_of
from cluster.why.placed.preemption import nodes_with_victims, priority_of
from cluster.why.volumes import KnownVolumes, Volumes
from reports.formats import some
from rules.base.json_values import as_object, as_objects, as_text

_DEFAULT = "default-scheduler"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_AGAINST = "podAntiAffinity"


class Answer(StrEnum):
    """Whether a pod can run."""

    CAN = "can"
    CANNOT = "cannot"
    NOT_KNOWN = "not known"


class Explanation(NamedTuple):
    """Why a pod has no node.

    - `asks`: what it asks for, such as `4 nvidia.com/gpu`; `defaults` is what its namespace adds.
    - `node`: the node that it has, or that it names itself; empty if it has none.
    - `hurdles`: what is in its way before nodes are looked at.
    - `groups`: the nodes that cannot take it, those first that come nearest to it; `fitting` are
      those that can.
    - `other_scheduler`: the scheduler that decides about it, if that is not kube-scheduler.
    - `wanted`, `placed`: of how many equal pods this is one, and for how many there is room; None
      if nobody asked. With too little room, the explanation is that of the next pod.
    - `since`: when it was created.
    - `evicting`: the nodes from which kube-scheduler may evict pods of lower priority for it.
    - `scheduler`: what kube-scheduler has said last, if the pod has it.
    - `unchecked`: what may keep nodes from it as well, and is not known here.
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

    @property
    def answer(self) -> Answer:
        """Whether it can run: not known rather than surer than those who decide."""
        if self.hurdles:
            return Answer.CANNOT
        if self.is_bound:
            return Answer.CAN
        if self.other_scheduler:
            return Answer.NOT_KNOWN
        if not self.fitting:
            return Answer.NOT_KNOWN if self.evicting else Answer.CANNOT
        return Answer.NOT_KNOWN if self.unchecked else Answer.CAN

    @property
    def summary(self) -> str:
        """What an event of kube-scheduler says about the nodes: a node may count several times.

        Empty if kube-scheduler does not decide, others refuse what it would allow, or nobody knows.
        """
        is_refused_later = any(not all(group.messages) for group in self.groups)
        is_unsure = bool(self.fitting and self.unchecked)
        if self.node or self.other_scheduler or is_refused_later or is_unsure:
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
        if self.other_scheduler:
            who = f"the scheduler {self.other_scheduler} decides about it"
            return f"{who}; by what is known here {self._nodes_verdict}"
        return self._nodes_verdict

    @property
    def _nodes_verdict(self) -> str:
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
        return f"none of {_nodes(self.nodes)} can take it{self._now}: {reasons}"

    @property
    def _now(self) -> str:
        return " as it is now" if self.evicting else ""


class Namespace(NamedTuple):
    """What counts of the namespace of a pod.

    - `claims`: by name; None if they are not known.
    - `quotas`, `limit_ranges`: what the API server looks at as it creates a pod.
    - `name`: where a pod is created that names no namespace itself.
    """

    claims: Mapping[str, Object] | None = None
    quotas: tuple[Object, ...] = ()
    limit_ranges: tuple[Object, ...] = ()
    name: str = ""


def _no_classes() -> Mapping[str, Object]:
    return {}


class Classes(NamedTuple):
    """Functions that return the classes of a cluster by name."""

    runtime: Callable[[], Mapping[str, Object]] = _no_classes
    priority: Callable[[], Mapping[str, Object]] = _no_classes


class Served(NamedTuple):
    """The DeviceClass that serves an extended resource, and the nodes with devices of drivers.

    Without `nodes` it is not known which these are.
    """

    device_class: str
    nodes: frozenset[str] | None = None


def explain(
    pod: Object,
    nodes: Iterable[Node],
    *,
    namespace: Namespace = Namespace(),  # noqa: B008  # it cannot be changed
    served: Callable[[], Mapping[str, Served]] = dict,
    placed: PlacedPods | None = None,
    classes: Classes = Classes(),  # noqa: B008  # the same
    volumes: KnownVolumes = KnownVolumes(),  # noqa: B008  # the same
    exists: bool = True,
) -> Explanation:
    """Why `pod` is Pending, or would be.

    `placed` are the pods that have a node; None if they are not known.

    `served` reads the resources that DeviceClasses serve; it is called only if no node takes the
    pod without them. Quotas and LimitRanges count only for a pod that does not exist yet.
    """
    admitted = Admitted(pod)
    if not exists:
        home = namespace.name or namespace_of(pod)
        admitted = admit(pod, home, namespace.limit_ranges, classes.runtime)
    listed = [*nodes]
    pods = placed or PlacedPods()
    of_pod = Volumes(admitted.pod, volumes, pods, exists=exists)
    context = _Context(admitted, listed, namespace, placed, classes, of_pod, exists)
    found = _explained(context, {})
    devices = {name for name in effective_requests(admitted.pod) if "/" in name}
    if devices and not (found.fitting or found.hurdles or found.node):
        by_classes = {name: one for name, one in served().items() if name in devices}
        if by_classes:
            return _explained(context, by_classes)
    return found


class _Context(NamedTuple):
    admitted: Admitted
    nodes: list[Node]
    namespace: Namespace
    placed: PlacedPods | None
    classes: Classes
    volumes: Volumes
    exists: bool


def _explained(context: _Context, served: Mapping[str, Served]) -> Explanation:
    admitted, listed, namespace, placed, classes, volumes, exists = context
    pod = admitted.pod
    other = _other_scheduler(pod)
    uncounted = uncounted_resources(pod, listed, served, exists=exists)
    wanted = Wanted(pod, uncounted, nodes=listed, placed=placed, volumes=volumes)
    claims = namespace.claims
    allocated = _places_of_claims(pod, claims or {})
    hurdles = [*admitted.hurdles]
    hurdles += find_hurdles(pod, wanted.requests, claims, () if exists else namespace.quotas)
    if not wanted.node_name:
        hurdles += volumes.hurdles
    else:
        hurdles += _named_node_is_missing(wanted.node_name, listed, exists=exists)
        listed = [node for node in listed if node.name == wanted.node_name]
    refused: list[tuple[Node, Refusals]] = []
    fitting: list[Node] = []
    for node in listed:
        if wanted.node_name:
            refusals = [] if exists else [*wanted.obstacles_of_kubelet(node)]
        else:
            refusals = [*wanted.obstacles(node), *_other_claims(allocated, node)]
        if refusals:
            refused.append((node, refusals))
        else:
            fitting.append(node)
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
        (*admitted.unknown, *_unknown(context, wanted, fitting, allocated, served)),
        other_scheduler="" if wanted.node_name else other,
        defaults=admitted.defaults,
        is_bound=bool(wanted.node_name) and exists,
        evicting=evicting,
    )


def _unknown(
    context: _Context,
    wanted: Wanted,
    fitting: Sequence[Node],
    allocated: Sequence[Any],
    served: Mapping[str, Served],
) -> Iterator[str]:
    """What decides about a pod as well, and is not known here."""
    if wanted.node_name:
        if not context.exists:
            yield from _unknown_to_kubelet(wanted, fitting)
        return
    yield from context.volumes.unknown
    if len(allocated) < len([*as_objects(wanted.spec.get("resourceClaims"))]):
        yield "which devices are free for its claims: gpuward gpus -d shows them"
    if context.placed is None:
        yield from _of_other_pods(wanted.spec)
    elif wanted.pod_affinity.is_unsure:
        yield "the labels of namespaces, by which an affinity to pods selects them"
    yield from _served_by_others(wanted, fitting, served)
    doubts = [tuple(wanted.doubts(node)) for node in fitting]
    if all(doubts):
        yield from dict.fromkeys(doubt for found in doubts for doubt in found)


def _other_scheduler(pod: Mapping[str, Any]) -> str:
    name = as_text(as_object(pod.get("spec")).get("schedulerName"))
    return "" if name == _DEFAULT else name


def uncounted_resources(
    pod: Object, nodes: Iterable[Node], served: Mapping[str, Served], *, exists: bool
) -> Uncounted:
    """The resources that a node need not offer for a pod to get them.

    kube-scheduler counts all that its own pods ask for. Webhooks give a pod that does not exist yet
    to the scheduler that counts cards, if the nodes have such cards.
    """
    is_counted = exists and not _other_scheduler(pod)
    shared = frozenset[str]() if is_counted else COUNTED_BY_SCHEDULERS
    found: dict[str, frozenset[str] | None] = {
        name: None for node in nodes for name in node.rooms if name in shared
    }
    return {**found, **{name: one.nodes for name, one in served.items()}}


def _unknown_to_kubelet(wanted: Wanted, nodes: Iterable[Node]) -> Iterator[str]:
    for name in wanted.requests:
        if "/" in name and not any(name in node.devices for node in nodes):
            yield f"what the kubelet does about {name}, which its node does not offer"


def _served_by_others(
    wanted: Wanted, nodes: Sequence[Node], served: Mapping[str, Served]
) -> Iterator[str]:
    for name in wanted.requests:
        if any(name in node.devices for node in nodes):
            continue
        if name in served:
            device_class = served[name].device_class
            yield f"which devices are free for {name}, of the DeviceClass {device_class}"
        elif name in COUNTED_BY_SCHEDULERS and not _other_scheduler(wanted.pod):
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
        "since": found.since or None,
        "evicting": list(found.evicting),
    }


def _nodes(count: int) -> str:
    return f"{count:,} node" if count == 1 else f"{count:,} nodes"


def _places_of_claims(pod: Object, claims: Mapping[str, Object]) -> list[tuple[str, Any]]:
    """Each claim of the pod that has its devices, with the nodes that can reach them."""
    found = []
    for _, name in claim_names(pod):
        status = as_object(as_object(claims.get(name)).get("status"))
        allocation = as_object(status.get("allocation"))
        if allocation.get("nodeSelector"):
            found.append((name, allocation["nodeSelector"]))
    return found


def _other_claims(placed: Iterable[tuple[str, Any]], node: Node) -> Iterator[tuple[Obstacle, ...]]:
    for name, selector in placed:
        affinity = {"requiredDuringSchedulingIgnoredDuringExecution": selector}
        only = Wanted({"spec": {"affinity": {"nodeAffinity": affinity}}})
        bare = node._replace(is_cordoned=False, taints=(), allocatable={"pods": 1 << 62})
        if any(only.obstacles(bare)):
            message = "resourceclaim not available on the node"
            yield (Obstacle("DynamicResources", message, name),)
            return


def scheduler_message(pod: Object) -> str:
    """What kube-scheduler has said last about a pod; empty if it has said nothing."""
    for _, condition in as_objects(as_object(pod.get("status")).get("conditions")):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return as_text(condition.get("message"))
    return ""


def _of_other_pods(spec: Mapping[str, Any]) -> Iterator[str]:
    """What depends on pods that have a node."""
    affinity = as_object(spec.get("affinity"))
    if any(as_object(affinity.get(key)).get(_REQUIRED) for key in ("podAffinity", _AGAINST)):
        yield "affinity to other pods"
    constraints = as_objects(spec.get("topologySpreadConstraints"))
    if any(one.get("whenUnsatisfiable") == "DoNotSchedule" for _, one in constraints):
        yield "topology spread constraints"
    if any(host_ports(spec)):
        yield "ports of the node"

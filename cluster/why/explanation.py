"""Why a pod is Pending: what is in its way before nodes, and at each group of nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

from cluster.gpus.pod_requests import Requests, amount_of
from cluster.gpus.tables import text
from cluster.source.objects import Object
from cluster.why.filters import Node, Obstacle, Wanted
from reports.formats import some
from rules.base.json_values import as_object, as_objects, as_text

_NANO = 10**9
_DEFAULT = "default-scheduler"
_UNITS = ((2**40, "Ti"), (2**30, "Gi"), (2**20, "Mi"))


class Hurdle(NamedTuple):
    """What keeps a pod from being tried on any node, or makes another program decide."""

    what: str
    remedy: str


class NodeGroup(NamedTuple):
    """Nodes of one model that refuse a pod for the same reasons, with what would change it.

    `reasons` and `messages` are those of the first filter that refuses them, in plain words and in
    those of kube-scheduler; `further` is what would refuse the pod after that.
    """

    model: str
    names: tuple[str, ...]
    reasons: tuple[str, ...]
    messages: tuple[str, ...]
    remedies: tuple[str, ...]
    further: tuple[str, ...] = ()


class Explanation(NamedTuple):
    """Why a pod has no node.

    - `asks`: what it asks for, such as `4 nvidia.com/gpu`.
    - `node`: the node that it has; empty if it has none.
    - `hurdles`: what is in its way before nodes are looked at.
    - `groups`: the nodes that cannot take it, those first that come nearest to it; `fitting` are
      those that can.
    - `scheduler`: what kube-scheduler has said last, if the pod has it.
    - `unchecked`: what may keep nodes from it as well, and is not looked at here.
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

    @property
    def summary(self) -> str:
        """What an event of kube-scheduler says about the nodes: a node may count several times."""
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
        if self.node:
            return f"it has the node {self.node}"
        if self.hurdles:
            return self.hurdles[0].what
        if self.fitting:
            return f"{_nodes(len(self.fitting))} can take it: {some(self.fitting)}"
        if not self.nodes:
            return "there is no node"
        # Of the nodes that come nearest to it.
        reasons = "; ".join(self.groups[0].reasons)
        return f"none of {_nodes(self.nodes)} can take it: {reasons}"


def explain(
    pod: Object,
    nodes: Iterable[Node],
    *,
    claims: Mapping[str, Object] | None = None,
    quotas: Iterable[Object] = (),
    exists: bool = True,
) -> Explanation:
    """Why `pod` is Pending, or would be.

    `claims` are those of its namespace by name, None if they are not known. `quotas` are those of
    the namespace: they refuse a pod as it is created, so they count only if it does not exist yet.
    """
    metadata = as_object(pod.get("metadata"))
    wanted = Wanted(pod)
    listed = [*nodes]
    by_reason: dict[tuple[Any, ...], list[tuple[Node, Refusals]]] = {}
    fitting = []
    placed = _places_of_claims(pod, claims or {})
    for node in listed:
        refusals = [*wanted.obstacles(node), *_other_claims(placed, node)]
        if not refusals:
            fitting.append(node.name)
            continue
        key = node.model, tuple((o.message, _subject(o)) for found in refusals for o in found)
        by_reason.setdefault(key, []).append((node, refusals))
    groups = [_group(members, wanted) for members in by_reason.values()]
    groups.sort(key=_order)
    return Explanation(
        as_text(metadata.get("namespace")),
        as_text(metadata.get("name")) or as_text(metadata.get("generateName")),
        tuple(_asks(wanted.requests)),
        wanted.node_name,
        tuple(_hurdles(pod, wanted, claims, quotas if not exists else ())),
        tuple(groups),
        tuple(sorted(fitting)),
        len(listed),
        _said(pod),
        tuple(_unchecked(wanted.spec, placed)),
    )


def to_document(found: Explanation) -> dict[str, Any]:
    """An explanation as plain data."""
    return {
        "version": 1,
        "namespace": found.namespace,
        "name": found.name,
        "asks": list(found.asks),
        "node": found.node or None,
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
    }


def _subject(obstacle: Obstacle) -> str:
    """What tells groups apart: how much is free differs from node to node, and does not."""
    if obstacle.asked:
        return "offered" if obstacle.total else "not offered"
    return obstacle.subject


Refusals: TypeAlias = Sequence[Sequence[Obstacle]]
"""What each filter says that refuses a node."""


def _group(members: Sequence[tuple[Node, Refusals]], wanted: Wanted) -> NodeGroup:
    node, refusals = members[0]
    first, *others = refusals
    reasons, remedies = [], []
    for index, obstacle in enumerate(first):
        same = [found[0][index] for _, found in members]
        reasons.append(_reason(obstacle, same))
        remedies.append(_remedy(obstacle, same, members, wanted))
    if lacking := [o for o in first if _is_lacking(o)]:
        # Nothing else about such nodes would help.
        reasons = [_reason(obstacle, [obstacle]) for obstacle in lacking]
        remedies = [_offer(node)]
    further = [
        _reason(obstacle, [found[number][index] for _, found in members])
        for number, later in enumerate(others, 1)
        for index, obstacle in enumerate(later)
    ]
    return NodeGroup(
        node.model,
        tuple(sorted(node.name for node, _ in members)),
        tuple(reasons),
        tuple(obstacle.message for obstacle in first),
        tuple(dict.fromkeys(filter(None, remedies))),
        tuple(further),
    )


def _order(group: NodeGroup) -> tuple[Any, ...]:
    """Nodes that could take the pod first: those where a single thing is in its way."""
    is_for_others = any(_NOT_OFFERED in reason for reason in (*group.reasons, *group.further))
    return is_for_others, bool(group.further), -len(group.names), group.model, group.messages


def _is_lacking(obstacle: Obstacle) -> bool:
    """Whether a node does not offer a device at all."""
    return bool(obstacle.asked) and not obstacle.total and "/" in obstacle.subject


_NOT_OFFERED = "which the nodes do not offer"


def _reason(obstacle: Obstacle, same: Sequence[Obstacle]) -> str:
    match obstacle.plugin:
        case "NodeUnschedulable":
            return "the nodes are cordoned"
        case "TaintToleration":
            return f"the pod does not tolerate the taint {obstacle.subject}"
        case "NodeAffinity":
            return (
                f"the pod selects {obstacle.subject}"
                if obstacle.subject
                else "the pod names other nodes"
            )
        case "NodeResourcesFit":
            most = max(same, key=lambda one: one.total)
            is_too_small = most.asked > most.total
            return _shortage(most if is_too_small else max(same, key=lambda one: one.free))
    if obstacle.plugin == "DynamicResources":
        return f"its claim {obstacle.subject} has devices elsewhere"
    return obstacle.message


def _shortage(best: Obstacle) -> str:
    name = best.subject
    if name == "pods":
        return f"no room for one more pod: at most {text(best.total // _NANO)} run there"
    asked, free, total = (amount_text(name, n) for n in (best.asked, best.free, best.total))
    if not best.total:
        return f"the pod asks for {asked} {name}, {_NOT_OFFERED}"
    if best.asked > best.total:
        return f"the pod asks for {asked} {name}, and a node has at most {total}"
    return f"the pod asks for {asked} {name}, and at most {free} of {total} are free on one node"


def _remedy(
    obstacle: Obstacle,
    same: Sequence[Obstacle],
    members: Sequence[tuple[Node, Refusals]],
    wanted: Wanted,
) -> str:
    match obstacle.plugin:
        case "NodeUnschedulable":
            return f"if they may take pods again: kubectl uncordon {members[0][0].name}"
        case "TaintToleration":
            if obstacle.subject.startswith("node.kubernetes.io/"):
                return "wait until the node is well: Kubernetes itself has set the taint"
            return f"add a toleration for {obstacle.subject}, if the pod may run there"
        case "NodeAffinity":
            return "change nodeSelector or node affinity, or label nodes that should take it"
        case "NodeResourcesFit":
            return _remedy_of_shortage(obstacle, same, members, wanted)
    return ""


def _remedy_of_shortage(
    obstacle: Obstacle,
    same: Sequence[Obstacle],
    members: Sequence[tuple[Node, Refusals]],
    wanted: Wanted,
) -> str:
    name = obstacle.subject
    most = max(one.total for one in same)
    if name != "pods" and obstacle.asked > most:
        return f"ask for at most {amount_text(name, most)} {name} in one pod, and use several pods"
    free = max(one.free for one in same)
    gpus = [key for key in wanted.requests if "/" in key]
    short = {other.subject for _, found in members for other in found[0]}
    if name in {"cpu", "memory"} and gpus and not short.intersection(gpus):
        stranded = f"the {gpus[0]} there is free, and stranded by too little {name} beside it"
        if free:
            return f"ask for at most {amount_text(name, free)} {name}: {stranded}"
        return f"move pods without GPUs elsewhere: {stranded}"
    if name == "pods":
        return "wait until a pod there ends"
    return f"wait until {amount_text(name, obstacle.asked - free)} more {name} is released there"


def _offer(node: Node) -> str:
    """What to ask for on a node that does not offer what a pod asks for; empty without devices."""
    names = [name for name, amount in node.allocatable.items() if "/" in name and amount]
    return f"ask for what these nodes offer: {some(names)}" if names else ""


def amount_text(name: str, amount: int) -> str:
    """An amount, in units of 1e-9, in the unit in which people write it."""
    if name == "cpu":
        return text(Decimal(amount) / _NANO)
    if name in {"memory", "ephemeral-storage"} or name.startswith("hugepages-"):
        value = Decimal(amount) / _NANO
        for size, unit in _UNITS:
            if value >= size:
                return f"{text(round(value / size, 1))}{unit}"
        return text(value)
    return text(-(-amount // _NANO))


def _asks(requests: Requests) -> Iterator[str]:
    for name in sorted(requests, key=lambda key: ("/" not in key, key)):
        yield f"{amount_text(name, requests[name])} {name}"


def _nodes(count: int) -> str:
    return f"{count:,} node" if count == 1 else f"{count:,} nodes"


# What is in the way before nodes are looked at.


def _hurdles(
    pod: Object, wanted: Wanted, claims: Mapping[str, Object] | None, quotas: Iterable[Object]
) -> Iterator[Hurdle]:
    spec = wanted.spec
    if wanted.node_name:
        return
    gates = [as_text(gate.get("name")) for _, gate in as_objects(spec.get("schedulingGates"))]
    if gates:
        names = some(gates)
        yield Hurdle(
            f"it waits for the scheduling gates {names}",
            "whoever has set them removes them: of Kueue, admission to a queue does",
        )
    for quota in quotas:
        yield from _exceeded(quota, wanted.requests)
    if claims is not None:
        yield from _missing_claims(pod, claims)
    scheduler = as_text(spec.get("schedulerName"))
    if scheduler not in {"", _DEFAULT}:
        yield Hurdle(
            f"the scheduler {scheduler} decides about it, which may count otherwise than here",
            f"look at the events of the pod, and at the log of {scheduler}",
        )


def _exceeded(quota: Object, requests: Requests) -> Iterator[Hurdle]:
    """What the API server refuses because of a quota, which has no scopes."""
    spec, status = as_object(quota.get("spec")), as_object(quota.get("status"))
    if spec.get("scopes") or spec.get("scopeSelector"):
        return
    used = as_object(status.get("used"))
    name = as_text(as_object(quota.get("metadata")).get("name"))
    for key, hard in as_object(spec.get("hard")).items():
        resource = key.removeprefix("requests.")
        is_counted = key.startswith("requests.") or resource in {"cpu", "memory"}
        asked = requests.get(resource, 0) if is_counted else 10**9 if key == "pods" else 0
        left = amount_of(hard) - amount_of(used.get(key))
        if asked and asked > left:
            yield Hurdle(
                f"the quota {name} refuses it: it asks for {amount_text(resource, asked)} of "
                f"{key}, and {amount_text(resource, max(left, 0))} of "
                f"{amount_text(resource, amount_of(hard))} are left",
                "release what others of the namespace have, or raise the quota",
            )


def _claim_names(pod: Object) -> Iterator[tuple[str, str]]:
    """Each claim of the pod by its entry in the spec; without a name if it is not made yet."""
    statuses = {
        as_text(one.get("name")): as_text(one.get("resourceClaimName"))
        for _, one in as_objects(as_object(pod.get("status")).get("resourceClaimStatuses"))
    }
    for _, claim in as_objects(as_object(pod.get("spec")).get("resourceClaims")):
        entry = as_text(claim.get("name"))
        yield entry, as_text(claim.get("resourceClaimName")) or statuses.get(entry, "")


def _missing_claims(pod: Object, claims: Mapping[str, Object]) -> Iterator[Hurdle]:
    for entry, name in _claim_names(pod):
        if name and name not in claims:
            yield Hurdle(
                f"the claim {name} does not exist", "create it, or use a template of claims"
            )
        elif not name and as_object(pod.get("metadata")).get("uid"):
            yield Hurdle(
                f"its claim {entry} is not made from the template yet",
                "look for the template: a controller makes the claim as soon as there is one",
            )


def _places_of_claims(pod: Object, claims: Mapping[str, Object]) -> list[tuple[str, Any]]:
    """Each claim of the pod that has its devices, with the nodes that can reach them."""
    found = []
    for _, name in _claim_names(pod):
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


def _said(pod: Object) -> str:
    for _, condition in as_objects(as_object(pod.get("status")).get("conditions")):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return as_text(condition.get("message"))
    return ""


def _unchecked(spec: Mapping[str, Any], placed: Sequence[Any]) -> Iterator[str]:
    affinity = as_object(spec.get("affinity"))
    if affinity.get("podAffinity") or affinity.get("podAntiAffinity"):
        yield "affinity to other pods"
    if spec.get("topologySpreadConstraints"):
        yield "topology spread constraints"
    if any(volume.get("persistentVolumeClaim") for _, volume in as_objects(spec.get("volumes"))):
        yield "where its persistent volumes are"
    ports = (
        port
        for _, container in as_objects(spec.get("containers"))
        for _, port in as_objects(container.get("ports"))
    )
    if any(port.get("hostPort") for port in ports):
        yield "ports of the node"
    if len(placed) < len([*as_objects(spec.get("resourceClaims"))]):
        yield "which devices are free for its claims: gpuward gpus -d shows them"

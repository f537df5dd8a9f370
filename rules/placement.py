"""Where the scheduler may put a pod: node labels, schedulers, and what the user has decided.

The semantics are those of Kubernetes' component-helpers (`MatchNodeSelectorTerms`). Taints
have a module of their own, `tolerations`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from rules.devices import held_by, pod_holds_gpu
from rules.document import Path
from rules.layout import POD_SPEC
from rules.patterns import matches_any
from rules.pod import DEFAULT_SCHEDULER, Pod
from rules.profile import NodeAffinity, Profile, Scheduler, Taint
from rules.reading import items, mapping, text

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_AT_MOST_ONE = re.compile(r"-[0-9]+|\+?0*[01]", re.ASCII)
ANYWAY = "ScheduleAnyway"
NOTHING: Mapping[str, Any] = MappingProxyType({})
NODE_AFFINITY: Path = ("affinity", "nodeAffinity")
# Every node of some estate has these, whatever it is: only by their values GPU nodes are told.
OF_EVERY_NODE = frozenset(
    {
        *("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"),
        *("karpenter.k8s.aws/instance-family", "karpenter.k8s.aws/instance-category"),
        *("eks.amazonaws.com/instance-family", "eks.amazonaws.com/instance-category"),
        *("cloud.google.com/machine-family", "karpenter.azure.com/sku-family"),
    }
)

# Volcano's jobs name their scheduler once for all tasks; Knative refuses fields of placement
# unless an administrator has allowed them.
PLACES_ITSELF = frozenset({"batch.volcano.sh", "serving.knative.dev"})


def need(pod: Pod, fact: Taint | NodeAffinity | Scheduler) -> str | None:
    """The resource, or else the annotation, by which `fact` of the profile concerns the pod."""
    for name in held_by(pod):
        if matches_any(fact.resources, name):
            return name
    annotations = fact.annotations if isinstance(fact, Scheduler) else ()
    return next((key for key in annotations if key in pod.annotations), None)


def is_open(value: str) -> bool:
    """Whether `value` is yet to be filled in, as `${POOL}` or `{{ .Values.pool }}` is."""
    return "$" in value or "{{" in value


def node_affinity(pod: Pod) -> Mapping[str, Any]:
    """`affinity.nodeAffinity`."""
    affinity = pod.spec.get("affinity")
    return mapping(affinity.get("nodeAffinity")) if isinstance(affinity, dict) else NOTHING


def is_writable(pod: Pod) -> bool:
    """Whether everything in the node affinity that an edit may go through is what it should be."""
    affinity = pod.spec.get("affinity")
    if affinity is None:
        return True
    node = mapping(affinity).get("nodeAffinity")
    required, preferred = mapping(node).get(REQUIRED), mapping(node).get(PREFERRED)
    terms = mapping(required).get("nodeSelectorTerms")
    inner = [term.get("matchExpressions") for _, term in items(terms)]
    objects, lists = (affinity, node, required), (preferred, terms, *inner)
    return all(isinstance(value, dict | None) for value in objects) and all(
        isinstance(value, list | None) for value in lists
    )


def required_terms(pod: Pod) -> list[tuple[Path, Mapping[str, Any]]]:
    """The terms of the required node affinity with their paths; any one of them suffices."""
    required = node_affinity(pod).get(REQUIRED)
    if required is None:
        return []
    terms = mapping(required).get("nodeSelectorTerms")
    base = (*pod.path, *NODE_AFFINITY, REQUIRED, "nodeSelectorTerms")
    return [((*base, index), term) for index, term in items(terms)]


def expressions(term: Mapping[str, Any]) -> list[tuple[int, Mapping[str, Any]]]:
    """The `matchExpressions` of one term with their indices; all of them must hold."""
    return items(term.get("matchExpressions"))


def is_empty(term: Mapping[str, Any]) -> bool:
    """Whether `term` says nothing; such a term matches no node at all."""
    return not term.get("matchExpressions") and not term.get("matchFields")


def requirement(affinity: NodeAffinity) -> dict[str, Any]:
    """The expression that nodes must match to satisfy `affinity`."""
    if not affinity.values:
        return {"key": affinity.key, "operator": "Exists"}
    return {"key": affinity.key, "operator": "In", "values": list(affinity.values)}


def known_labels(pod: Pod) -> list[dict[str, Any]]:
    """What is known of the labels of the nodes with the GPUs that the pod asks for.

    An affinity may prefer some GPU nodes to others; all values that mean a GPU will do.
    """
    known = []
    for fact in pod.profile.affinities:
        if need(pod, fact) is not None:
            values = pod.profile.node_labels.get(fact.key, ())
            if values and not any("*" in value for value in values):
                known.append({"key": fact.key, "operator": "In", "values": [*values, *fact.values]})
            else:
                known.append({"key": fact.key, "operator": "Exists"})
    return known


def impossible_label(demands: Iterable[Mapping[str, Any]]) -> str | None:
    """The first label of which `demands`, all taken together, want the impossible.

    `NotIn` also fits a node without the label. `Gt` and `Lt` only say that it must exist.
    """
    absent: set[str] = set()
    present: dict[str, None] = {}  # in the order of the text, so that the answer has one too
    allowed: dict[str, set[str]] = {}
    refused: dict[str, set[str]] = {}
    for demand in demands:
        key, operator = text(demand.get("key")), text(demand.get("operator"))
        values = _values(demand)
        if operator == "In" and values is not None:
            allowed[key] = allowed.get(key, values) & values
        elif operator == "NotIn" and values is not None:
            refused.setdefault(key, set()).update(values)
        elif operator == "DoesNotExist":
            absent.add(key)
        elif operator in {"In", "Exists", "Gt", "Lt"}:
            present[key] = None
    for key in filter(None, (*allowed, *present)):
        if key in absent or (key in allowed and not allowed[key] - refused.get(key, set())):
            return key
    return None


def _values(asked: Mapping[str, Any]) -> set[str] | None:
    """The values of an expression; None where one cannot be known yet."""
    values = asked.get("values")
    known = [] if values is None else values
    if not isinstance(known, list) or any(not isinstance(v, str) or is_open(v) for v in known):
        return None
    return set(known)


def is_gpu_label(profile: Profile, key: str, value: str | None = None) -> bool:
    """Whether nodes that carry the label `key` (with `value`, if given) are GPU nodes."""
    values = profile.label_values(key)
    return values is not None and (value is None or not values or matches_any(values, value))


def targets_gpu_nodes(pod: Pod) -> bool:
    """Whether a demand of the pod leads it to GPU nodes: on their labels, or on their topology.

    A toleration does not: node agents tolerate everything.
    """
    if pod.targets is None:
        pod.targets = (
            any(is_gpu_label(pod.profile, k, text(v)) for k, v in pod.node_selector.items())
            or any(
                _selects_gpu(pod.profile, expression)
                for _, term in required_terms(pod)
                for _, expression in expressions(term)
            )
            or any(_has_only_gpu_nodes(pod.profile, key) for key in _topology_keys(pod))
        )
    return pod.targets


def _topology_keys(pod: Pod) -> Iterator[str]:
    """The labels that a node must have, with whatever value, for the pod to be spread or gathered.

    Where a spread or an affinity to pods is only preferred, and for an anti-affinity, a node
    without the label will do.
    """
    for _, spread in items(pod.spec.get("topologySpreadConstraints")):
        if spread.get("whenUnsatisfiable") != ANYWAY:
            yield text(spread.get("topologyKey"))
    pods = mapping(mapping(pod.spec.get("affinity")).get("podAffinity"))
    for _, term in items(pods.get(REQUIRED)):
        yield text(term.get("topologyKey"))


def is_for_gpus(pod: Pod) -> bool:
    """Whether the pod holds a GPU or is led to GPU nodes."""
    return pod_holds_gpu(pod) or targets_gpu_nodes(pod)


def _selects_gpu(profile: Profile, expression: Mapping[str, Any]) -> bool:
    key, values = text(expression.get("key")), expression.get("values")
    operator = text(expression.get("operator"))
    if operator == "In" and isinstance(values, list):
        return any(is_gpu_label(profile, key, text(value)) for value in values)
    if operator == "Lt" and _leaves_none(values):
        return False
    return operator in {"Exists", "Gt", "Lt"} and _has_only_gpu_nodes(profile, key)


def _has_only_gpu_nodes(profile: Profile, key: str) -> bool:
    return key not in OF_EVERY_NODE and is_gpu_label(profile, key)


def _leaves_none(values: Any) -> bool:
    """Whether a number of cards, or of anything else, below `values` is no card at all."""
    (bound,) = values if isinstance(values, list) and len(values) == 1 else ("",)
    return isinstance(bound, str) and _AT_MOST_ONE.fullmatch(bound) is not None


def mentioned_labels(pod: Pod) -> Iterator[str]:
    """The label keys in nodeSelector and in the node affinity, required or preferred."""
    yield from pod.node_selector
    preferred = items(node_affinity(pod).get(PREFERRED))
    preferences = [mapping(choice.get("preference")) for _, choice in preferred]
    for term in (*(term for _, term in required_terms(pod)), *preferences):
        for _, expression in expressions(term):
            yield text(expression.get("key"))


def left_alone(pod: Pod) -> str | None:
    """Why nothing may be added to the pod's placement, or None if it may.

    This switches off the scheduling defaults only, never another rule.
    """
    if pod.layout is not POD_SPEC or pod.object.group in PLACES_ITSELF:
        return "its kind may keep placement elsewhere"
    if pod.spec.get("nodeName"):
        return "it names its node"
    if pod.is_daemon or _pinned_by_daemon_set(pod):
        return "a DaemonSet chooses its node"
    if pod.spec.get("schedulingGates"):
        return "a scheduling gate holds it"
    if pod.scheduler != DEFAULT_SCHEDULER and pod.scheduler not in pod.profile.scheduler_names:
        return f"the scheduler {pod.scheduler} decides"
    return None


def _pinned_by_daemon_set(pod: Pod) -> bool:
    return any(
        field.get("key") == "metadata.name"
        for _, term in required_terms(pod)
        for _, field in items(term.get("matchFields"))
    )

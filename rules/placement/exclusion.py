"""Keeping pods off GPU nodes: by demands in the required node affinity, and fewer tolerations."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from rules.base.json_values import Edit, Path, append, as_text, put, remove
from rules.inventory.inventory import SURVEY_NAME, Inventory, NodeGroup, NodeSurvey
from rules.objects.pod import Pod
from rules.placement.gpu_nodes import LABELS_OF_EVERY_NODE
from rules.placement.node_affinity import (
    NODE_AFFINITY,
    REQUIRED_AFFINITY,
    expressions,
    is_empty_term,
    node_affinity,
    node_selection,
    required_terms,
    selector_expressions,
)
from rules.placement.tolerations import tolerates
from rules.profile.profile import Profile

NodeLabels: TypeAlias = Mapping[str, tuple[str, ...]]
"""Labels of GPU nodes, each with the values that mean one; without any, every value does."""

# The taints that Kubernetes and kubeadm set
# (https://kubernetes.io/docs/reference/labels-annotations-taints/).
KUBERNETES_TAINTS = (
    *("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"),
    *("node.kubernetes.io/memory-pressure", "node.kubernetes.io/disk-pressure"),
    *("node.kubernetes.io/pid-pressure", "node.kubernetes.io/network-unavailable"),
    *("node.kubernetes.io/unschedulable", "node.kubernetes.io/out-of-service"),
    *("node.cloudprovider.kubernetes.io/uninitialized", "node-role.kubernetes.io/control-plane"),
)


# Labels that nodes without GPUs have as well.
COMMON_LABELS = LABELS_OF_EVERY_NODE | {
    *("kubernetes.io/os", "kubernetes.io/arch", "kubernetes.io/hostname"),
    *("beta.kubernetes.io/os", "beta.kubernetes.io/arch"),
    *("topology.kubernetes.io/zone", "topology.kubernetes.io/region"),
}


def labels_of_gpu_nodes(profile: Profile, listed: Sequence[str]) -> NodeLabels:
    """Return the labels `listed` as `key` or `key=value`, or else those of the profile.

    Of the profile, those that nodes without GPUs have as well do not count.
    """
    given = [(a.key, a.values) for a in profile.affinities if a.key not in COMMON_LABELS]
    if listed:
        pairs = (text.partition("=") for text in listed)
        given = [(key, tuple(filter(None, [value]))) for key, _, value in pairs]
    found: dict[str, tuple[str, ...]] = {}
    for key, values in given:
        before = found.get(key, values)
        found[key] = tuple(dict.fromkeys((*before, *values))) if before and values else ()
    return found


def label_texts(labels: NodeLabels) -> str:
    """Return the labels for a message, as kubectl writes them."""
    texts = (f"{key}={' or '.join(values)}" if values else key for key, values in labels.items())
    return ", ".join(texts)


def is_gpu_node(given: Mapping[str, Any], labels: NodeLabels) -> bool:
    """Return whether a node with the labels `given` has one of `labels`."""
    return any(
        key in given and (not values or given[key] in values) for key, values in labels.items()
    )


def exclusion(key: str, values: Sequence[str]) -> dict[str, Any]:
    """Return the match expression that only nodes without the label meet."""
    if not values:
        return {"key": key, "operator": "DoesNotExist"}
    return {"key": key, "operator": "NotIn", "values": list(values)}


def demanded_label(pod: Pod, labels: NodeLabels) -> tuple[Path, str] | None:
    """Return the place where the pod demands one of `labels`, and its key; None if it does not."""
    selected = [((*pod.path, "nodeSelector", d["key"]), d) for d in selector_expressions(pod)]
    of_terms = [
        ((*path, "matchExpressions", index), demand)
        for path, term in required_terms(pod)
        for index, demand in expressions(term)
    ]
    for path, demand in (*selected, *of_terms):
        key = as_text(demand.get("key"))
        if key in labels and _demands(demand, labels[key]):
            return path, key
    return None


def _demands(demand: Mapping[str, Any], values: Sequence[str]) -> bool:
    """Return whether every node that meets `demand` has the label, with one of `values`."""
    if not values:
        return demand.get("operator") in {"In", "Exists", "Gt", "Lt"}
    given = demand.get("values")
    is_listed = isinstance(given, list) and bool(given) and all(value in values for value in given)
    return demand.get("operator") == "In" and is_listed


def exclusion_edits(pod: Pod, labels: NodeLabels) -> tuple[Edit, ...]:
    """Return edits after which the required affinity excludes nodes with one of `labels`.

    The terms are alternatives, so each gets what it lacks; an empty one matches no node.
    """
    selected = selector_expressions(pod)
    wanted = {k: v for k, v in labels.items() if not any(_excludes(d, k, v) for d in selected)}
    base = (*pod.path, *NODE_AFFINITY, REQUIRED_AFFINITY)
    if node_affinity(pod).get(REQUIRED_AFFINITY) is None:
        added = [exclusion(key, values) for key, values in wanted.items()]
        edit = put((*base, "nodeSelectorTerms"), [{"matchExpressions": added}])
        return (edit,) if added else ()
    return tuple(
        append((*path, "matchExpressions"), exclusion(key, values))
        for path, term in required_terms(pod)
        if not is_empty_term(term)
        for key, values in wanted.items()
        if not any(_excludes(demand, key, values) for _, demand in expressions(term))
    )


def _excludes(demand: Mapping[str, Any], key: str, values: Sequence[str]) -> bool:
    """Return whether no node that meets `demand` has the label `key` with one of `values`."""
    if demand.get("key") != key:
        return False
    given, operator = demand.get("values"), demand.get("operator")
    if operator == "DoesNotExist":
        return True
    if not values or not isinstance(given, list) or not given:
        return False
    if operator == "NotIn":
        return all(value in given for value in values)
    return operator == "In" and not any(value in values for value in given)


def wide_tolerations(pod: Pod) -> list[tuple[int, Mapping[str, Any]]]:
    """Return the tolerations of taints of GPU nodes, or of every taint, with their indices."""
    return [pair for pair in pod.tolerations if _is_wide(pair[1], pod.profile)]


def fully_excluded_nodes(pod: Pod, labels: NodeLabels, inventory: Inventory) -> str:
    """Return words for the nodes, if all on which the pod may run have one of `labels`.

    Empty if one is left, if none was before, or if the nodes are not known. Compared are the labels
    that the inventory keeps; what else the pod selects may leave less. An autoscaler may add nodes
    at any time, so nothing is said about those that do not exist.
    """
    survey = inventory.find(NodeSurvey, SURVEY_NAME)
    wanted = node_selection(pod, survey) if survey else None
    if survey is None or wanted is None:
        return ""
    groups = inventory.all_in(NodeGroup, None).values()
    fitting = [group.labels for group in groups if wanted.is_met(group.labels)]
    if not fitting or not all(is_gpu_node(given, labels) for given in fitting):
        return ""
    return "today's nodes" if survey.has_all else "the known nodes"


EFFECTS_OF_WILDCARDS = ("", "NoSchedule")
"""The effects with which a toleration of every taint is wide whatever taints the profile names."""


def _is_wide(toleration: Mapping[str, Any], profile: Profile) -> bool:
    is_wildcard = not as_text(toleration.get("key")) and toleration.get("operator") == "Exists"
    if is_wildcard and as_text(toleration.get("effect")) in EFFECTS_OF_WILDCARDS:
        return True
    return any(tolerates(toleration, taint) for taint in profile.taints)


def narrowing_edits(pod: Pod, wide: Sequence[tuple[int, Mapping[str, Any]]]) -> Iterator[Edit]:
    """Yield edits that remove the tolerations `wide`.

    In place of those of every taint come those of KUBERNETES_TAINTS, once for each effect.
    """
    path, effects = (*pod.path, "tolerations"), set[str]()
    for index, toleration in wide:
        effect = as_text(toleration.get("effect"))
        if as_text(toleration.get("key")) or effect in effects:
            yield remove((*path, index))
            continue
        effects.add(effect)
        seconds = {k: toleration[k] for k in ("tolerationSeconds",) if k in toleration}
        first, *others = ({**toleration_of(k, effect), **seconds} for k in KUBERNETES_TAINTS)
        yield put((*path, index), first)
        yield from (append(path, other) for other in others)


def toleration_of(key: str, effect: str) -> dict[str, str]:
    """Return a toleration of the taints `key` with `effect`, or with any if that is empty."""
    return {"key": key, "operator": "Exists", **({"effect": effect} if effect else {})}

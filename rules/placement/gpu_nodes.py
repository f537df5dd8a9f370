"""Whether a pod is for GPU nodes, and what the profile says about the nodes with its GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from rules.base.json_access import as_object, as_objects, as_text
from rules.base.words import matches_any
from rules.gpu.devices import pod_requests_gpu, requested_resources
from rules.objects.pod import DEFAULT_SCHEDULER, Pod
from rules.objects.pod_layout import POD_SPEC
from rules.placement.node_affinity import REQUIRED, expressions, preferred_terms, required_terms
from rules.placement.tolerations import tolerates
from rules.profile.profile import Profile
from rules.profile.records import NodeAffinity, Scheduler, Taint

SCHEDULE_ANYWAY = "ScheduleAnyway"
_AT_MOST_ONE = r"-[0-9]+|\+?0*[01]"
# All nodes of some platform have these labels; only their values distinguish GPU nodes.
LABELS_OF_EVERY_NODE = frozenset(
    {
        *("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"),
        *("karpenter.k8s.aws/instance-family", "karpenter.k8s.aws/instance-category"),
        *("eks.amazonaws.com/instance-family", "eks.amazonaws.com/instance-category"),
        *("cloud.google.com/machine-family", "karpenter.azure.com/sku-family"),
    }
)

# A Volcano job names its scheduler once for all tasks. Knative refuses placement fields unless an
# administrator allows them.
GROUPS_WITH_OWN_PLACEMENT = frozenset({"batch.volcano.sh", "serving.knative.dev"})


def matching_resource(pod: Pod, fact: Taint | NodeAffinity | Scheduler) -> str | None:
    """The first resource that `pod` requests and `fact` of the profile applies to.

    If there is none, the first such annotation of a scheduler; None if there is none either.
    """
    for name in requested_resources(pod):
        if matches_any(fact.resources, name):
            return name
    annotations = fact.annotations if isinstance(fact, Scheduler) else ()
    return next((key for key in annotations if key in pod.annotations), None)


def gpu_node_expressions(pod: Pod) -> list[dict[str, Any]]:
    """Node selector expressions that every node with the GPUs requested by `pod` meets.

    They come from the affinities of the profile. An affinity may prefer some GPU nodes to others,
    so each expression accepts all values of the label that GPU nodes have.
    """
    demands = []
    for fact in pod.profile.affinities:
        if matching_resource(pod, fact) is not None:
            values = pod.profile.node_labels.get(fact.key, ())
            if values and not any("*" in value for value in values):
                accepted = [*values, *fact.values]
                demands.append({"key": fact.key, "operator": "In", "values": accepted})
            else:
                demands.append({"key": fact.key, "operator": "Exists"})
    return demands


def is_gpu_label(profile: Profile, key: str, value: str | None = None) -> bool:
    """Whether nodes that carry the label `key` (with `value`, if given) are GPU nodes."""
    values = profile.label_values(key)
    return values is not None and (value is None or not values or matches_any(values, value))


def targets_gpu_nodes(pod: Pod) -> bool:
    """Whether the pod selects GPU nodes by their labels."""
    return bool(gpu_node_label(pod))


def gpu_node_label(pod: Pod) -> str:
    """The key of the label by which the pod selects GPU nodes; empty if it does not.

    `nodeSelector`, the required node affinity, and the topology keys of required spreads and pod
    affinities count. A toleration does not: node agents tolerate every taint.
    """
    if pod.gpu_node_label is None:
        pod.gpu_node_label = next(filter(None, _gpu_node_labels(pod)), "")
    return pod.gpu_node_label


def _gpu_node_labels(pod: Pod) -> Iterator[str]:
    for key, value in pod.node_selector.items():
        if is_gpu_label(pod.profile, key, as_text(value)):
            yield key
    yield from (selects_gpu_nodes(pod.profile, term) for _, term in required_terms(pod))
    yield from (key for key in _topology_keys(pod) if _has_only_gpu_nodes(pod.profile, key))


def selects_gpu_nodes(profile: Profile, term: Mapping[str, Any]) -> str:
    """The key of the label by which `term` of a node affinity selects GPU nodes; empty if none."""
    demands = (demand for _, demand in expressions(term) if _selects_gpu(profile, demand))
    return next((as_text(demand.get("key")) for demand in demands), "")


def _topology_keys(pod: Pod) -> Iterator[str]:
    """The keys of the labels that a node must have because of required spreads and pod affinities.

    Preferred spreads and pod affinities do not count, nor does pod anti-affinity: they also allow
    nodes without the label.
    """
    for _, spread in as_objects(pod.spec.get("topologySpreadConstraints")):
        if spread.get("whenUnsatisfiable") != SCHEDULE_ANYWAY:
            yield as_text(spread.get("topologyKey"))
    pods = as_object(as_object(pod.spec.get("affinity")).get("podAffinity"))
    for _, term in as_objects(pods.get(REQUIRED)):
        yield as_text(term.get("topologyKey"))


def is_for_gpus(pod: Pod) -> bool:
    """Whether the pod requests a GPU or selects GPU nodes."""
    return pod_requests_gpu(pod) or targets_gpu_nodes(pod)


def hint_of_gpu_nodes(pod: Pod) -> str:
    """The key of a preferred label or of a tolerated taint of GPU nodes; empty if there is none.

    The pod may also run elsewhere. A toleration of every taint is no hint: node agents have it.
    """
    for term in preferred_terms(pod):
        if key := selects_gpu_nodes(pod.profile, term):
            return key
    for _, toleration in pod.tolerations:
        key = as_text(toleration.get("key"))
        if key and (
            _has_only_gpu_nodes(pod.profile, key)
            or ("gpu" in key and pod.profile.resource(key) is not None)
            or any(tolerates(toleration, taint) for taint in pod.profile.taints)
        ):
            return key
    return ""


def _selects_gpu(profile: Profile, expression: Mapping[str, Any]) -> bool:
    key, values = as_text(expression.get("key")), expression.get("values")
    operator = as_text(expression.get("operator"))
    if operator == "In" and isinstance(values, list):
        return any(is_gpu_label(profile, key, as_text(value)) for value in values)
    if operator == "Lt" and _is_below_one_card(values):
        return False
    return operator in {"Exists", "Gt", "Lt"} and _has_only_gpu_nodes(profile, key)


def _has_only_gpu_nodes(profile: Profile, key: str) -> bool:
    return key not in LABELS_OF_EVERY_NODE and is_gpu_label(profile, key)


def _is_below_one_card(values: Any) -> bool:
    """Whether a number below the bound in `values` cannot be 1 or more."""
    (bound,) = values if isinstance(values, list) and len(values) == 1 else ("",)
    return isinstance(bound, str) and re.fullmatch(_AT_MOST_ONE, bound) is not None


def placement_skip_reason(pod: Pod) -> str | None:
    """Why gpuward must not add tolerations or affinities to the pod; None if it may.

    Only the rules that add scheduling defaults use this.
    """
    if reason := scheduler_skip_reason(pod):
        return reason
    if pod.is_daemon or _pinned_by_daemon_set(pod):
        return "a DaemonSet chooses its node"
    if pod.spec.get("schedulingGates"):
        return "a scheduling gate holds it"
    if pod.scheduler != DEFAULT_SCHEDULER and pod.scheduler not in pod.profile.scheduler_names:
        return f"the scheduler {pod.scheduler} decides"
    return None


def scheduler_skip_reason(pod: Pod) -> str | None:
    """Why gpuward must not name the pod's scheduler; None if it may.

    A scheduler places the pods of DaemonSets too. A pod that a scheduling gate holds must name its
    scheduler now: the name cannot change later.
    """
    if has_placement_elsewhere(pod):
        return "its placement may be elsewhere"
    if pod.spec.get("nodeName"):
        return "it names its node"
    return None


def has_placement_elsewhere(pod: Pod) -> bool:
    """Whether another object, or another part of it, may say where the pod runs."""
    is_custom = pod.layout is not POD_SPEC or pod.object.group in GROUPS_WITH_OWN_PLACEMENT
    return is_custom or pod.is_partial


def _pinned_by_daemon_set(pod: Pod) -> bool:
    return any(
        field.get("key") == "metadata.name"
        for _, term in required_terms(pod)
        for _, field in as_objects(term.get("matchFields"))
    )

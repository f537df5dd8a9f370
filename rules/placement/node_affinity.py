"""Node selectors and node affinity: read as the scheduler does, and compared with known nodes.

The semantics are those of Kubernetes' component-helpers (`MatchNodeSelectorTerms`).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from rules.base import traits
from rules.base.json_values import Path, as_object, as_objects, as_text
from rules.base.text_matching import has_placeholder, matches_any
from rules.inventory.inventory import NodeSurvey
from rules.objects.pod import Pod
from rules.profile.profile import NodeAffinity

REQUIRED_AFFINITY = traits.REQUIRED_AFFINITY
PREFERRED_AFFINITY = "preferredDuringSchedulingIgnoredDuringExecution"
NODE_AFFINITY: Path = ("affinity", "nodeAffinity")
# The label by which a platform marks nodes that it may take back at any time, and its values:
# cloud.google.com/kubernetes-engine/docs/concepts/spot-vms,
# learn.microsoft.com/azure/aks/spot-node-pool, karpenter.sh/docs/concepts/scheduling,
# docs.aws.amazon.com/eks/latest/userguide/managed-node-groups.html
SPOT_LABELS: Mapping[str, tuple[str, ...]] = {
    "cloud.google.com/gke-spot": ("true",),
    "cloud.google.com/gke-preemptible": ("true",),
    "cloud.google.com/gke-provisioning": ("spot", "preemptible"),
    "kubernetes.azure.com/scalesetpriority": ("spot",),
    "karpenter.sh/capacity-type": ("spot",),
    "eks.amazonaws.com/capacityType": ("SPOT",),
}
_NO_AFFINITY: Mapping[str, Any] = MappingProxyType({})


def node_affinity(pod: Pod) -> Mapping[str, Any]:
    """`affinity.nodeAffinity` of the pod spec; empty if it is absent or not an object."""
    affinity = pod.spec.get("affinity")
    return as_object(affinity.get("nodeAffinity")) if isinstance(affinity, dict) else _NO_AFFINITY


def has_writable_affinity(pod: Pod) -> bool:
    """Return whether all parts of the node affinity that edits may change have the right type."""
    affinity = pod.spec.get("affinity")
    if affinity is None:
        return True
    node = as_object(affinity).get("nodeAffinity")
    required, preferred = (
        as_object(node).get(REQUIRED_AFFINITY),
        as_object(node).get(PREFERRED_AFFINITY),
    )
    terms = as_object(required).get("nodeSelectorTerms")
    inner = [term.get("matchExpressions") for _, term in as_objects(terms)]
    objects, lists = (affinity, node, required), (preferred, terms, *inner)
    return all(isinstance(value, dict | None) for value in objects) and all(
        isinstance(value, list | None) for value in lists
    )


def required_terms(pod: Pod) -> list[tuple[Path, Mapping[str, Any]]]:
    """The terms of the required node affinity with their paths. A node must match one of them."""
    required = node_affinity(pod).get(REQUIRED_AFFINITY)
    if required is None:
        return []
    terms = as_object(required).get("nodeSelectorTerms")
    base = (*pod.path, *NODE_AFFINITY, REQUIRED_AFFINITY, "nodeSelectorTerms")
    return [((*base, index), term) for index, term in as_objects(terms)]


def preferred_terms(pod: Pod) -> list[Mapping[str, Any]]:
    """The terms of the preferred node affinity."""
    preferred = as_objects(node_affinity(pod).get(PREFERRED_AFFINITY))
    return [as_object(choice.get("preference")) for _, choice in preferred]


def expressions(term: Mapping[str, Any]) -> list[tuple[int, Mapping[str, Any]]]:
    """The `matchExpressions` of one term with their indices. A node must match all of them."""
    return as_objects(term.get("matchExpressions"))


def is_empty_term(term: Mapping[str, Any]) -> bool:
    """Return whether `term` has neither expressions nor fields. Such a term matches no node."""
    return not term.get("matchExpressions") and not term.get("matchFields")


def expression_for(affinity: NodeAffinity) -> dict[str, Any]:
    """The match expression for the label and the values of `affinity`."""
    if not affinity.values:
        return {"key": affinity.key, "operator": "Exists"}
    return {"key": affinity.key, "operator": "In", "values": list(affinity.values)}


def selector_expressions(pod: Pod) -> list[dict[str, Any]]:
    """`nodeSelector` as match expressions."""
    return [{"key": k, "operator": "In", "values": [v]} for k, v in pod.node_selector.items()]


def implies_affinity(demand: Mapping[str, Any], affinity: NodeAffinity) -> bool:
    """Return whether a node that meets `demand` has the label of `affinity` with one of its values.

    A placeholder may become one of them.
    """
    if demand.get("key") != affinity.key:
        return False
    if demand.get("operator") == "In":
        values = expression_values(demand)
        is_stricter = values is None or (bool(values) and values.issubset(affinity.values))
        return is_stricter or not affinity.values
    return not affinity.values and as_text(demand.get("operator")) in {"Exists", "Gt", "Lt"}


def impossible_label(demands: Iterable[Mapping[str, Any]]) -> str | None:
    """The key of the first label for which no node can match all of `demands`, or None.

    `demands` are match expressions. `NotIn` also matches a node without the label. For `Gt` and
    `Lt` only the existence of the label is checked, not the number.
    """
    absent: set[str] = set()
    present: dict[str, None] = {}  # a dict keeps the order of the manifest
    allowed: dict[str, set[str]] = {}
    refused: dict[str, set[str]] = {}
    for demand in demands:
        key, operator = as_text(demand.get("key")), as_text(demand.get("operator"))
        values = expression_values(demand)
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


def expression_values(expression: Mapping[str, Any]) -> set[str] | None:
    """The values of an expression; None if one is not a string or contains a placeholder."""
    values = expression.get("values")
    listed = [] if values is None else values
    if not isinstance(listed, list) or any(
        not isinstance(v, str) or has_placeholder(v) for v in listed
    ):
        return None
    return set(listed)


def referenced_label_keys(pod: Pod) -> Iterator[str]:
    """The label keys in nodeSelector and in the node affinity, required or preferred."""
    yield from pod.node_selector
    for term in (*(term for _, term in required_terms(pod)), *preferred_terms(pod)):
        for _, expression in expressions(term):
            yield as_text(expression.get("key"))


def spot_label(pod: Pod) -> str:
    """The key of the label by which the pod demands a spot node; empty if it does not.

    It demands one by its node selector, or if every term of its required node affinity does.
    """
    if label := _spot_label(selector_expressions(pod)):
        return label
    terms = [term for _, term in required_terms(pod) if not is_empty_term(term)]
    labels = [_spot_label(demand for _, demand in expressions(term)) for term in terms]
    return labels[0] if labels and all(labels) else ""


def _spot_label(demands: Iterable[Mapping[str, Any]]) -> str:
    return next((demand["key"] for demand in demands if _demands_spot(demand)), "")


def _demands_spot(demand: Mapping[str, Any]) -> bool:
    spot, values = SPOT_LABELS.get(as_text(demand.get("key"))), demand.get("values")
    if spot is None:
        return False
    if demand.get("operator") == "Exists":
        return spot == ("true",)  # such a label is on spot nodes alone, others are on all nodes
    is_listed = isinstance(values, list) and bool(values) and all(v in spot for v in values)
    return demand.get("operator") == "In" and is_listed


# The known nodes on which a pod may run, by its node selector and required node affinity. A term
# counts as met if it is not known, such as one about a label that the inventory does not keep.

# More than any pod needs: what has more is not compared, so that the comparison stays fast.
MAX_EXPRESSIONS, MAX_VALUES = 50, 500
_MAX_INT64, _MAX_DIGITS = 2**63 - 1, 63

Labels: TypeAlias = Mapping[str, str]


class Demand(NamedTuple):
    """A pod's demand of a label of its node: an operator of Kubernetes, and values."""

    key: str
    operator: str
    values: frozenset[str]

    def is_met(self, labels: Labels) -> bool:
        """Return whether a node with these labels meets it."""
        return meets(self.operator, labels.get(self.key), self.values)


class NodeSelection(NamedTuple):
    """A pod's demands of its node: everything in `always`, and in one of `alternatives`.

    These are the node selector, and the terms of the required node affinity, if it has any.
    """

    always: list[Demand]
    alternatives: list[list[Demand]]

    def is_met(self, labels: Labels) -> bool:
        """Return whether a node with these labels meets it."""
        if not _all_met(self.always, labels):
            return False
        return not self.alternatives or any(_all_met(a, labels) for a in self.alternatives)


def node_selection(pod: Pod, survey: NodeSurvey) -> NodeSelection | None:
    """Return the pod's demands of labels that `survey` keeps; None if there are too many."""
    terms = [term for _, term in required_terms(pod) if not is_empty_term(term)]
    return _selection(pod, terms, tuple(survey.labels))


def flavor_selection(pod: Pod, keys: tuple[str, ...]) -> NodeSelection | None:
    """Return the pod's demands of the labels `keys`, as Kueue compares them with its flavors.

    To Kueue a term that demands nothing of these labels is met by every flavor, also one without
    any expression; to kube-scheduler such a term is met by no node. None if there are too many.
    Source: kubernetes-sigs/kueue, `flavorassigner.go` (`flavorSelector`).
    """
    return _selection(pod, [term for _, term in required_terms(pod)], keys)


def _selection(
    pod: Pod, terms: Sequence[Mapping[str, Any]], keys: tuple[str, ...]
) -> NodeSelection | None:
    selector = selector_expressions(pod)
    alternatives = [[expression for _, expression in expressions(term)] for term in terms]
    everything = [*selector, *(e for term in alternatives for e in term)]
    values = sum(len(e["values"]) for e in everything if isinstance(e.get("values"), list))
    if len(everything) > MAX_EXPRESSIONS or values > MAX_VALUES:
        return None
    return NodeSelection(
        _demands_on_known_labels(selector, keys),
        [_demands_on_known_labels(term, keys) for term in alternatives],
    )


def _all_met(demands: Sequence[Demand], labels: Labels) -> bool:
    return all(demand.is_met(labels) for demand in demands)


def _demands_on_known_labels(
    listed: Sequence[Mapping[str, Any]], kept: tuple[str, ...]
) -> list[Demand]:
    found = []
    for expression in listed:
        key, operator = as_text(expression.get("key")), as_text(expression.get("operator"))
        values = expression_values(expression)
        is_known = matches_any(kept, key) and not has_placeholder(key)
        if is_known and values is not None and operator in OPERATORS:
            found.append(Demand(key, operator, frozenset(values)))
    return found


OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"})
"""The operators by which a pod may demand a label of its node."""


def meets(operator: object, value: str | None, values: Collection[str]) -> bool:
    """Return whether a label with `value`, None if a node lacks it, meets an operator and values.

    Source: Kubernetes, `staging/src/k8s.io/apimachinery/pkg/labels/selector.go`.
    """
    match operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    own, bounds = _integer(value or ""), [*map(_integer, values)]
    if own is None or len(bounds) != 1 or bounds[0] is None:
        return False
    return (operator == "Gt" and own > bounds[0]) or (operator == "Lt" and own < bounds[0])


def _integer(text: str) -> int | None:
    """A whole number of 64 bits, as Go's `strconv.ParseInt` reads it."""
    digits = text[1:] if text[:1] in {"-", "+"} else text
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= _MAX_DIGITS):
        return None
    number = int(text)
    return number if -_MAX_INT64 - 1 <= number <= _MAX_INT64 else None

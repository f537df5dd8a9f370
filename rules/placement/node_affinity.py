"""Read the node selector and node affinity of a pod, as the scheduler does.

The semantics are those of Kubernetes' component-helpers (`MatchNodeSelectorTerms`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from rules.base.json_access import as_object, as_objects, as_text
from rules.base.json_patch import Path
from rules.base.patterns import has_placeholder
from rules.objects.pod import Pod
from rules.profile.records import NodeAffinity

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
NODE_AFFINITY: Path = ("affinity", "nodeAffinity")
_NO_AFFINITY: Mapping[str, Any] = MappingProxyType({})


def node_affinity(pod: Pod) -> Mapping[str, Any]:
    """`affinity.nodeAffinity`."""
    affinity = pod.spec.get("affinity")
    return as_object(affinity.get("nodeAffinity")) if isinstance(affinity, dict) else _NO_AFFINITY


def is_writable(pod: Pod) -> bool:
    """Whether everything in the node affinity that an edit may go through is what it should be."""
    affinity = pod.spec.get("affinity")
    if affinity is None:
        return True
    node = as_object(affinity).get("nodeAffinity")
    required, preferred = as_object(node).get(REQUIRED), as_object(node).get(PREFERRED)
    terms = as_object(required).get("nodeSelectorTerms")
    inner = [term.get("matchExpressions") for _, term in as_objects(terms)]
    objects, lists = (affinity, node, required), (preferred, terms, *inner)
    return all(isinstance(value, dict | None) for value in objects) and all(
        isinstance(value, list | None) for value in lists
    )


def required_terms(pod: Pod) -> list[tuple[Path, Mapping[str, Any]]]:
    """The terms of the required node affinity with their paths; any one of them suffices."""
    required = node_affinity(pod).get(REQUIRED)
    if required is None:
        return []
    terms = as_object(required).get("nodeSelectorTerms")
    base = (*pod.path, *NODE_AFFINITY, REQUIRED, "nodeSelectorTerms")
    return [((*base, index), term) for index, term in as_objects(terms)]


def expressions(term: Mapping[str, Any]) -> list[tuple[int, Mapping[str, Any]]]:
    """The `matchExpressions` of one term with their indices; all of them must hold."""
    return as_objects(term.get("matchExpressions"))


def is_empty(term: Mapping[str, Any]) -> bool:
    """Whether `term` says nothing; such a term matches no node at all."""
    return not term.get("matchExpressions") and not term.get("matchFields")


def expression_for(affinity: NodeAffinity) -> dict[str, Any]:
    """The expression that nodes must match to satisfy `affinity`."""
    if not affinity.values:
        return {"key": affinity.key, "operator": "Exists"}
    return {"key": affinity.key, "operator": "In", "values": list(affinity.values)}


def impossible_label(demands: Iterable[Mapping[str, Any]]) -> str | None:
    """The first label of which `demands`, all taken together, want the impossible.

    `NotIn` also fits a node without the label. `Gt` and `Lt` only say that it must exist.
    """
    absent: set[str] = set()
    present: dict[str, None] = {}  # in the order of the text, so that the answer has one too
    allowed: dict[str, set[str]] = {}
    refused: dict[str, set[str]] = {}
    for demand in demands:
        key, operator = as_text(demand.get("key")), as_text(demand.get("operator"))
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
    if not isinstance(known, list) or any(
        not isinstance(v, str) or has_placeholder(v) for v in known
    ):
        return None
    return set(known)


def referenced_label_keys(pod: Pod) -> Iterator[str]:
    """The label keys in nodeSelector and in the node affinity, required or preferred."""
    yield from pod.node_selector
    preferred = as_objects(node_affinity(pod).get(PREFERRED))
    preferences = [as_object(choice.get("preference")) for _, choice in preferred]
    for term in (*(term for _, term in required_terms(pod)), *preferences):
        for _, expression in expressions(term):
            yield as_text(expression.get("key"))

"""The nodes that a pod selects by `nodeSelector` and node affinity.

Source: Kubernetes, `staging/src/k8s.io/component-helpers/scheduling/corev1/nodeaffinity`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from cluster.why.nodes import Node
from rules.base.json_values import as_object, as_objects, as_text, as_texts
from rules.placement.node_affinity import meets


class NodeAffinity:
    """The nodes that the `spec` of a pod selects."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self._selector = as_object(spec.get("nodeSelector"))
        affinity = as_object(as_object(spec.get("affinity")).get("nodeAffinity"))
        required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
        self._terms = (
            [term for _, term in as_objects(as_object(required).get("nodeSelectorTerms"))]
            if isinstance(required, dict)
            else None
        )

    def unmet(self, node: Node) -> str:
        """The first that `node` does not meet, such as `zone=a`; empty if it is selected."""
        for key, value in self._selector.items():
            if node.labels.get(key) != value:
                return f"{key}={value}"
        if self._terms is None:
            return ""
        unmet = [_unmet(term, node) for term in self._terms]
        if not unmet:
            return "a term of the node affinity"
        return "" if "" in unmet else " or ".join(dict.fromkeys(unmet))

    @cached_property
    def names(self) -> frozenset[str] | None:
        """The only nodes that kube-scheduler looks at, if every term names some; else None."""
        if not self._terms:
            return None
        names: set[str] = set()
        for term in self._terms:
            listed = [_named(field) for _, field in as_objects(term.get("matchFields"))]
            known = [found for found in listed if found is not None]
            if not known:
                return None
            names |= frozenset.intersection(*known)
        return frozenset(names)


def selects(selector: Mapping[str, Any], node: Node) -> bool:
    """Return whether a NodeSelector, such as that of a ResourceSlice, selects `node`."""
    terms = as_objects(selector.get("nodeSelectorTerms"))
    return any(not _unmet(term, node) for _, term in terms)


def _named(field: Mapping[str, Any]) -> frozenset[str] | None:
    """The names that a field selector allows; None if it is another one."""
    if field.get("key") != "metadata.name" or field.get("operator") != "In":
        return None
    values = field.get("values")
    return frozenset(map(as_text, values if isinstance(values, list) else ()))


def _unmet(term: Mapping[str, Any], node: Node) -> str:
    """The first requirement of a term that `node` does not meet; empty if it meets the term.

    A term without requirements is met by no node.
    """
    requirements = [found for _, found in as_objects(term.get("matchExpressions"))]
    fields = [found for _, found in as_objects(term.get("matchFields"))]
    if not (requirements or fields):
        return "an empty term"
    for requirement in requirements:
        if not _meets(requirement, node.labels):
            return _requirement_text(requirement)
    for field in fields:
        if not _meets(field, {"metadata.name": node.name}):
            return _requirement_text(field)
    return ""


def _meets(requirement: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value = labels.get(as_text(requirement.get("key")))
    return meets(requirement.get("operator"), value, as_texts(requirement.get("values")))


def _requirement_text(requirement: Mapping[str, Any]) -> str:
    key, operator = as_text(requirement.get("key")), as_text(requirement.get("operator"))
    listed = as_texts(requirement.get("values"))
    texts = {
        "In": f"{key}={listed[0]}" if len(listed) == 1 else f"{key} in ({', '.join(listed)})",
        "NotIn": f"{key} not in ({', '.join(listed)})",
        "Exists": key,
        "DoesNotExist": f"no label {key}",
    }
    return texts.get(operator, f"{key} {operator} {', '.join(listed)}")

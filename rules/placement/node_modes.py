"""How the nodes that a pod selects offer their GPUs, by the labels that tell it.

A profile lists these labels in `nodeModes`: for each value, the resources that nodes with it offer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rules.base.json_access import as_text
from rules.base.json_values import Path
from rules.base.words import has_placeholder, matches
from rules.objects.pod import Pod
from rules.placement.node_affinity import (
    expression_values,
    expressions,
    is_empty,
    required_terms,
)


def offered_resources(modes: Mapping[str, tuple[str, ...]], value: str) -> tuple[str, ...] | None:
    """The resources that nodes with `value` offer, by one label's `modes`; None if it is unknown.

    Empty if the profile does not say what they offer. A value of the profile may contain `*`.
    """
    if value in modes:
        return modes[value]
    return next((modes[known] for known in modes if "*" in known and matches(known, value)), None)


def stated_values(modes: Iterable[str]) -> list[str]:
    """The values of one label that a user can write: those without a `*`."""
    return [value for value in modes if "*" not in value]


def selected_modes(pod: Pod) -> Iterator[tuple[Path, str, str]]:
    """Yield the path, the label and the value of each mode that the pod selects.

    `nodeSelector` and the operator `In` of the required node affinity select one.
    """
    labels = pod.profile.node_modes
    if not labels:
        return
    for label, value in pod.node_selector.items():
        if label in labels:
            yield (*pod.path, "nodeSelector", label), label, as_text(value)
    for path, term in required_terms(pod):
        for index, expression in expressions(term):
            label, values = as_text(expression.get("key")), expression.get("values")
            if label in labels and expression.get("operator") == "In" and isinstance(values, list):
                place = (*path, "matchExpressions", index, "values")
                for position, value in enumerate(values):
                    yield (*place, position), label, as_text(value)


def allowed_values(pod: Pod, label: str) -> set[str] | None:
    """The values of `label` on the nodes that the pod may run on; None if they may be any.

    A node must meet `nodeSelector` and one of the terms of the required node affinity. Without a
    value, what the pod demands contradicts itself.
    """
    selected = pod.node_selector.get(label)
    known = isinstance(selected, str) and not has_placeholder(selected)
    by_selector = {as_text(selected)} if known else None
    terms = [term for _, term in required_terms(pod) if not is_empty(term)]
    if not terms:
        return by_selector
    allowed: set[str] = set()
    for term in terms:
        values = _allowed_in(term, label, by_selector)
        if values is None:
            return None
        allowed |= values
    return allowed


def _allowed_in(
    term: Mapping[str, Any], label: str, by_selector: set[str] | None
) -> set[str] | None:
    allowed, refused = by_selector, set()
    for _, expression in expressions(term):
        values = expression_values(expression)
        if as_text(expression.get("key")) != label or values is None:
            continue
        if expression.get("operator") == "In":
            allowed = values if allowed is None else allowed & values
        elif expression.get("operator") == "NotIn":
            refused |= values
    return None if allowed is None else allowed - refused

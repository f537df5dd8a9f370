"""Which of the known nodes a pod may run on, by its node selector and required node affinity.

The semantics are those of Kubernetes' component-helpers (`MatchNodeSelectorTerms`). What nobody
knows, such as a label that the inventory does not keep, counts as met.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from rules.base.json_access import as_text
from rules.base.words import has_placeholder, matches_any
from rules.inventory.records import NodeSurvey
from rules.objects.pod import Pod
from rules.placement.node_affinity import (
    expression_values,
    expressions,
    is_empty,
    required_terms,
    selector_expressions,
)

# More than any pod needs: what has more is not compared, so that the comparison stays fast.
MOST_EXPRESSIONS, MOST_VALUES = 50, 500
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)

Labels: TypeAlias = Mapping[str, str]


class Demand(NamedTuple):
    """What a pod demands of a label of its node: an operator of Kubernetes, and values."""

    key: str
    operator: str
    values: frozenset[str]

    def is_met(self, labels: Labels) -> bool:
        """Whether a node with these labels meets it."""
        return _OPERATORS[self.operator](labels.get(self.key), self.values)


class Selection(NamedTuple):
    """What a pod demands of its node: everything in `always`, and in one of `alternatives`.

    These are the node selector, and the terms of the required node affinity, if it has any.
    """

    always: list[Demand]
    alternatives: list[list[Demand]]

    def is_met(self, labels: Labels) -> bool:
        """Whether a node with these labels meets it."""
        if not _all_met(self.always, labels):
            return False
        return not self.alternatives or any(_all_met(a, labels) for a in self.alternatives)


def selection(pod: Pod, survey: NodeSurvey) -> Selection | None:
    """What the pod demands of the labels that `survey` keeps; None if it demands too much."""
    kept = tuple(survey.labels)
    selector = selector_expressions(pod)
    terms = [[e for _, e in expressions(t)] for _, t in required_terms(pod) if not is_empty(t)]
    everything = [*selector, *(e for term in terms for e in term)]
    values = sum(len(e["values"]) for e in everything if isinstance(e.get("values"), list))
    if len(everything) > MOST_EXPRESSIONS or values > MOST_VALUES:
        return None
    return Selection(_known(selector, kept), [_known(term, kept) for term in terms])


def _all_met(demands: Sequence[Demand], labels: Labels) -> bool:
    return all(demand.is_met(labels) for demand in demands)


def _known(listed: Sequence[Mapping[str, Any]], kept: tuple[str, ...]) -> list[Demand]:
    found = []
    for expression in listed:
        key, operator = as_text(expression.get("key")), as_text(expression.get("operator"))
        values = expression_values(expression)
        is_known = matches_any(kept, key) and not has_placeholder(key)
        if is_known and values is not None and operator in _OPERATORS:
            found.append(Demand(key, operator, frozenset(values)))
    return found


def _compare(value: str | None, values: frozenset[str], sign: int) -> bool:
    """Whether `value` is greater than the one of `values`, or less if `sign` is negative."""
    texts = (value or "", *values)
    if len(texts) != 2 or not all(map(_INTEGER.fullmatch, texts)):  # noqa: PLR2004
        return False
    return sign * int(texts[0]) > sign * int(texts[1])


_OPERATORS: Mapping[str, Callable[[str | None, frozenset[str]], bool]] = {
    "In": lambda value, values: value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": lambda value, values: _compare(value, values, 1),
    "Lt": lambda value, values: _compare(value, values, -1),
}

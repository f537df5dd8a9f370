"""Build the CEL tests of where a pod wants to run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain

from policies.profiles import built_in
from rules.base.traits import KEY_WORDS
from rules.placement.gpu_nodes import SCHEDULE_ANYWAY
from tools.cel import any_of, matches
from tools.match_bounds import MOST, MOST_PREFERRED
from tools.match_fields import (
    CONTAINERS,
    EXPRESSIONS,
    HOST_PROCESS,
    NEAR,
    PREFERENCES,
    SPREADS,
    TERMS,
    TOLERATIONS,
)
from tools.match_labels import is_label, is_label_of_gpu_nodes


def node_labels() -> Iterator[str]:
    """Yield tests of whether the pod requires a label of GPU nodes."""
    selector = "object.spec.?nodeSelector.orValue({})"
    yield f"{selector}.size() > {MOST['nodeSelector']}"
    label = any_of(is_label("key", "[object.spec.nodeSelector[key]]"))
    yield f"{selector}.exists(key, {label}%nodeSelector%)"
    yield f"[{TERMS}].exists(terms, {any_of(_terms(MOST))})"


def hints_of_gpu_nodes() -> str:
    """Return a test of whether a privileged pod prefers GPU nodes or tolerates their taints."""
    flag = "container.?securityContext.?privileged.orValue(false)"
    tests = any_of((flag, f"container.{HOST_PROCESS}"))
    privileged = f"object.spec.{HOST_PROCESS}\n|| ({CONTAINERS}).exists(container, {tests})"
    facts = chain.from_iterable(raw.get("taints", ()) for raw in built_in().values())
    taints = {taint["key"] for taint in facts}
    known = [*is_label_of_gpu_nodes("toleration.key")]
    unknown = {key for key in taints if not any(word in key for word in KEY_WORDS)}
    known += matches("toleration.key", unknown)
    key = f"toleration.?key.hasValue() && ({any_of(known)}%tolerations%)"
    hints = (
        f"{TOLERATIONS}.size() > {MOST['tolerations']}",
        f"{TOLERATIONS}.exists(toleration, {key})",
        f"[{PREFERENCES}].exists(terms, {any_of(_terms(MOST_PREFERRED))})",
    )
    return f"({privileged}) && ({any_of(hints)})"


def _terms(most: Mapping[str, int]) -> Iterator[str]:
    yield f"terms.size() > {most['terms']}"
    yield f"terms.map(term, {EXPRESSIONS}.size()).sum() > {most['expressions']}"
    values = "expression.?values.orValue([])"
    sizes = f"{EXPRESSIONS}.map(expression, {values}.size()).sum()"
    yield f"terms.map(term, {sizes}).sum() > {most['values']}"
    excludes = 'expression.operator in ["DoesNotExist", "NotIn"]'
    label = any_of(is_label("expression.key", values, 'expression.operator != "In" || '))
    requires = f"!({excludes}) && ({label}%nodeAffinity%)"
    yield f"terms.exists(term, {EXPRESSIONS}.exists(expression, {requires}))"


def topology_keys() -> Iterator[str]:
    """Yield tests of whether a required spread or affinity to pods has a label of GPU nodes."""
    yield f"{SPREADS}.size() > {MOST['topologySpreadConstraints']}"
    yield f"{NEAR}.size() > {MOST['podAffinity']}"
    spreads = f'{SPREADS}.filter(spread, spread.whenUnsatisfiable != "{SCHEDULE_ANYWAY}")'
    keys = f"({spreads}.map(spread, spread.topologyKey)\n  + {NEAR}.map(term, term.topologyKey))"
    yield f"{keys}.exists(key, {any_of(is_label_of_gpu_nodes('key'))}%nodeSelector%)"

"""CEL tests of whether a pod asks for GPU nodes, by the labels and taints that profiles name.

They are narrower than the traits, which say only that there is a selector, an affinity or a
toleration: `traits.py` has those. Where a trait is there and its test is false, rules find
something only in pods that have a GPU as well (`NOT_WITHOUT_A_GPU`).
"""

import json
from collections.abc import Collection, Iterator, Mapping

from rules.base.traits import (
    KEY_WORDS,
    KNOWN_GPU_NODES,
    NODE_CONSTRAINT,
    NODE_SELECTION,
    TOLERATION,
)
from rules.gpu.components import DAEMON_SET_CONTROLLERS
from rules.inventory.inventory import HOSTNAME_LABEL
from rules.placement.gpu_nodes import LABELS_OF_EVERY_NODE, SCHEDULE_ANYWAY
from rules.placement.named_nodes import NAME_FIELD
from rules.placement.node_affinity import PREFERRED_AFFINITY, REQUIRED_AFFINITY
from rules.relevance.expressions import (
    ADDED_CAPABILITIES,
    CONTAINERS,
    HOST_PROCESS,
    LONGEST,
    MOST,
    MOST_PREFERRED,
    PRIVILEGED_CONTAINER,
    Scope,
    TraitTests,
    any_of,
    contains,
    contains_one,
    leading_letters,
    matches,
    starts_with,
)

TERMS = f"""optional.ofNonZeroValue(object.spec.?affinity.?nodeAffinity
  .?{REQUIRED_AFFINITY}
  .?nodeSelectorTerms.orValue([])).orValue([])"""
PREFERENCES = f"""optional.ofNonZeroValue(object.spec.?affinity.?nodeAffinity
  .?{PREFERRED_AFFINITY}.orValue([])).orValue([]).map(choice, choice.preference)"""
TOLERATIONS = "object.spec.?tolerations.orValue([])"
SPREADS = "object.spec.?topologySpreadConstraints.orValue([])"
NEAR = f"object.spec.?affinity.?podAffinity.?{REQUIRED_AFFINITY}.orValue([])"
EXPRESSIONS = "term.?matchExpressions.orValue([])"
FIELDS = "term.?matchFields.orValue([])"
VALUES = "expression.?values.orValue([])"


def _node_labels(scope: Scope) -> Iterator[str]:
    """Yield tests of whether the pod requires a label of GPU nodes."""
    selector = "object.spec.?nodeSelector.orValue({})"
    yield f"{selector}.size() > {MOST['nodeSelector']}"
    label = any_of(_is_label(scope, "key", "[object.spec.nodeSelector[key]]"))
    yield f"{selector}.exists(key, {label}{scope.place('nodeSelector')})"
    yield f"[{TERMS}].exists(terms, {any_of(_terms(MOST, scope))})"


def _topology_keys(scope: Scope) -> Iterator[str]:
    """Yield tests of whether a required spread or affinity to pods has a label of GPU nodes."""
    yield f"{SPREADS}.size() > {MOST['topologySpreadConstraints']}"
    yield f"{NEAR}.size() > {MOST['podAffinity']}"
    spreads = f'{SPREADS}.filter(spread, spread.whenUnsatisfiable != "{SCHEDULE_ANYWAY}")'
    keys = f"({spreads}.map(spread, spread.topologyKey)\n  + {NEAR}.map(term, term.topologyKey))"
    label = any_of(_is_label_of_gpu_nodes(scope, "key")) + scope.place("nodeSelector")
    yield f"{keys}.exists(key, {label})"


def _hints_of_gpu_nodes(scope: Scope) -> Iterator[str]:
    """Yield a test of whether a pod with privileges prefers GPU nodes or tolerates their taints."""
    tests = any_of((PRIVILEGED_CONTAINER, f"container.{HOST_PROCESS}", ADDED_CAPABILITIES))
    privileged = f"object.spec.{HOST_PROCESS}\n|| ({CONTAINERS}).exists(container, {tests})"
    known = [*_is_label_of_gpu_nodes(scope, "toleration.key")]
    unknown = {key for key in scope.names.taints if not contains_one(key, KEY_WORDS)}
    known += matches("toleration.key", unknown)
    tests = any_of(known) + scope.place("tolerations")
    key = f"toleration.?key.hasValue() && ({tests})"
    hints = (
        f"{TOLERATIONS}.size() > {MOST['tolerations']}",
        f"{TOLERATIONS}.exists(toleration, {key})",
        f"[{PREFERENCES}].exists(terms, {any_of(_terms(MOST_PREFERRED, scope))})",
        *_names_of_nodes(scope),
    )
    yield f"({privileged}) && ({any_of(hints)})"


def _names_of_nodes(scope: Scope) -> Iterator[str]:
    """Yield a test of whether the pod selects a node by its name, where the webhook knows names.

    The controller of DaemonSets writes the name of a node into each of their pods.
    """
    if not scope.has_places:
        return
    host, name, agents = map(json.dumps, (HOSTNAME_LABEL, NAME_FIELD, DAEMON_SET_CONTROLLERS))
    terms = (
        f"{EXPRESSIONS}.exists(expression, expression.key == {host})",
        f"{FIELDS}.exists(field, field.key == {name})",
    )
    many = f"terms.map(term, {FIELDS}.size()).sum() > {MOST['expressions']}"
    tests = (
        'request.operation == "CREATE" && object.spec.?nodeName.orValue("") != ""',
        f"{host} in object.spec.?nodeSelector.orValue({{}})",
        f"[{TERMS}].exists(terms, {many} || terms.exists(term, {any_of(terms)}))",
    )
    is_agent = f"request.userInfo.username in {agents}"
    yield f"{scope.place('knowsNodes')} && !({is_agent}) && ({any_of(tests)})"


NOT_WITHOUT_A_GPU = NODE_CONSTRAINT | NODE_SELECTION | TOLERATION
LABEL_TESTS: TraitTests = (
    (NODE_CONSTRAINT | NODE_SELECTION, _node_labels),
    (NODE_CONSTRAINT | NODE_SELECTION, _topology_keys),
)
# In pods with privileges. Nodes are known by their names only where the webhook has an inventory.
HINT_TESTS: TraitTests = ((TOLERATION, _hints_of_gpu_nodes),)
COVERED_BY_HINTS = KNOWN_GPU_NODES


def sizes() -> Iterator[str]:
    """Yield tests of whether a pod has more tolerations, terms or labels than MOST."""
    yield f"object.spec.?nodeSelector.orValue({{}}).size() > {MOST['nodeSelector']}"
    yield f"{TOLERATIONS}.size() > {MOST['tolerations']}"
    for terms in (TERMS, PREFERENCES):
        yield f"[{terms}].exists(terms, {any_of(_sizes_of_terms(MOST))})"


def _sizes_of_terms(most: Mapping[str, int]) -> Iterator[str]:
    yield f"terms.size() > {most['terms']}"
    yield f"terms.map(term, {EXPRESSIONS}.size()).sum() > {most['expressions']}"
    values = f"{EXPRESSIONS}.map(expression, {VALUES}.size()).sum()"
    yield f"terms.map(term, {values}).sum() > {most['values']}"


def _terms(most: Mapping[str, int], scope: Scope) -> Iterator[str]:
    yield from _sizes_of_terms(most)
    excludes = 'expression.operator in ["DoesNotExist", "NotIn"]'
    is_label = _is_label(scope, "expression.key", VALUES, 'expression.operator != "In" || ')
    requires = f"!({excludes}) && ({any_of(is_label)}{scope.place('nodeAffinity')})"
    yield f"terms.exists(term, {EXPRESSIONS}.exists(expression, {requires}))"


def _is_label(scope: Scope, key: str, values: str, extra_test: str = "") -> Iterator[str]:
    """Yield tests of whether a condition on a node label asks for GPU nodes.

    `key` and `values` are CEL expressions: the label's key, and the list of values asked for. A
    label that other nodes have as well asks for GPU nodes by one of its values. `extra_test` is
    put in front of that test of the values; it must end with its operator.
    """
    known, shared = _known_labels(scope)
    yield from _of_gpu_nodes(key, known.keys() - shared)
    by_values: dict[frozenset[str], set[str]] = {}
    for name in shared:
        by_values.setdefault(
            frozenset(starts_with("value", leading_letters(known[name]))), set()
        ).add(name)
    for tests, labels in sorted(by_values.items(), key=lambda pair: sorted(pair[1])):
        test = any_of([f"value.size() > {LONGEST['value']}", *sorted(tests)])
        prefix = "" if labels <= LABELS_OF_EVERY_NODE else extra_test
        value = f"{values}.exists(value, {test})"
        yield f"{any_of(matches(key, labels))} && ({prefix}{value})"


def _is_label_of_gpu_nodes(scope: Scope, key: str) -> Iterator[str]:
    """Yield tests of whether only GPU nodes have the label; `key` is a CEL expression."""
    known, _ = _known_labels(scope)
    yield from _of_gpu_nodes(key, known.keys() - LABELS_OF_EVERY_NODE)


def _of_gpu_nodes(key: str, names: Collection[str]) -> Iterator[str]:
    yield f"{key}.size() > {LONGEST['key']}"
    yield from contains(key, KEY_WORDS)
    yield from matches(key, names)


def _known_labels(scope: Scope) -> tuple[dict[str, Collection[str]], set[str]]:
    """Return the labels of GPU nodes with their values, and those that other nodes have as well.

    Labels that contain one of `KEY_WORDS` are left out, because those words have their own test.
    """
    labels = scope.names.node_labels
    known = {name: values for name, values in labels.items() if not contains_one(name, KEY_WORDS)}
    shared = {
        name
        for name, values in known.items()
        if any("*" in value for value in values) and "" not in leading_letters(values)
    }
    return known, shared | (known.keys() & LABELS_OF_EVERY_NODE)

"""A pod that asks for a GPU wants a node that cannot exist.

What it does
------------
Checks `nodeSelector` and the required node affinity of pods that request a GPU. Finds an empty
term, a term whose expressions exclude each other, and expressions that cannot be met together
with `nodeSelector` or with the label that the profile gives to the nodes with that GPU (such as
`nvidia.com/gpu.present DoesNotExist`). Labels of single models or features are the user's choice
and are not compared with the profile. Not reported: pods that have their node.

Why it matters
--------------
The terms are alternatives, and inside one term every expression must be met. A term that is empty
or contradicts itself matches no node. If no term matches a node, the pod stays Pending forever.

References
----------
- https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#node-affinity
- Kubernetes, `component-helpers/scheduling/corev1/nodeaffinity`
"""

from collections.abc import Mapping
from itertools import chain
from typing import Any, TypeAlias

from rules.base.json_values import Path, as_text, display
from rules.base.traits import GPU, NODE_SELECTION
from rules.gpu.devices import pod_requests_gpu
from rules.placement.gpu_nodes import gpu_node_expressions
from rules.placement.node_affinity import (
    NODE_AFFINITY,
    REQUIRED_AFFINITY,
    expressions,
    impossible_label,
    is_empty_term,
    node_affinity,
    required_terms,
    selector_expressions,
)
from rules.rule import Action, Context, Finding, Findings, Pod, define_rule

AFFINITY_WORDS = "the required node affinity"
EMPTY_TERM_FAULT = "has an empty term, which matches no node"
NO_TERM_FAULT = "has no term that says anything, so the pod fits no node"
TermWithPath: TypeAlias = tuple[Path, Mapping[str, Any]]


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each constraint on the node that no node can meet."""
    has_affinity = node_affinity(pod).get(REQUIRED_AFFINITY) is not None
    is_choosy = has_affinity or bool(pod.node_selector)
    if not is_choosy or pod.is_placed or not pod_requests_gpu(pod):
        return
    terms = required_terms(pod)
    empty = [path for path, term in terms if is_empty_term(term)]
    if empty or (has_affinity and not terms):
        path = empty[0] if empty else (*pod.path, *NODE_AFFINITY, REQUIRED_AFFINITY)
        message = (
            f"{AFFINITY_WORDS} {EMPTY_TERM_FAULT if len(empty) < len(terms) else NO_TERM_FAULT}"
        )
        yield Finding(
            path=path,
            key="nodeSelectorTerms",
            message=message,
            help="fill in the term or remove it",
        )
    possible: list[TermWithPath] = []
    reported: set[str] = set()
    for path, term in terms:
        label = impossible_label(demand for _, demand in expressions(term))
        if label is None and not is_empty_term(term):
            possible.append((path, term))
        elif label is not None and label not in reported:
            reported.add(label)
            key = f"nodeSelectorTerms.{label}"
            yield _finding_about((path, term), label, key, "in one term, which no node can meet")
    yield from _conflicts(pod, possible)


def _conflicts(pod: Pod, terms: list[TermWithPath]) -> Findings:
    """Yield conflicts between nodeSelector, `terms`, and the label of the nodes with the GPU."""
    base = [*gpu_node_expressions(pod), *selector_expressions(pod)]
    label = impossible_label(base)
    if label is not None and label in pod.node_selector:
        what = f"nodeSelector {display(label)}: {display(pod.node_selector[label])}"
        message = f"{what} excludes the nodes with the GPU that the pod asks for"
        path = (*pod.path, "nodeSelector", label)
        yield Finding(
            path=path, key=f"nodeSelector.{label}", message=message, help=f"remove {label} from it"
        )
    if label is not None:
        return
    by_key: dict[str, list[Mapping[str, Any]]] = {}
    for demand in base:
        by_key.setdefault(demand["key"], []).append(demand)
    labels = [_contradicted_label(by_key, [e for _, e in expressions(term)]) for _, term in terms]
    if labels and labels[0] is not None and None not in labels:
        demanded = labels[0] in pod.node_selector
        other = "what nodeSelector demands" if demanded else "a node with the GPU asked for"
        yield _finding_about(terms[0], labels[0], "nodeAffinity", f"and in no term allows {other}")


def _contradicted_label(
    base: Mapping[str, list[Mapping[str, Any]]], demands: list[Mapping[str, Any]]
) -> str | None:
    """The label for which no node can meet both `demands` and `base`; None if there is none.

    A node can meet `base` alone. A tenant may write thousands of terms and labels, so only labels
    in both are compared.
    """
    keys = dict.fromkeys(as_text(demand.get("key")) for demand in demands)
    return impossible_label([*chain.from_iterable(base.get(key, ()) for key in keys), *demands])


def _finding_about(where: TermWithPath, label: str, key: str, why: str) -> Finding:
    """A finding at the last expression about `label` in the term `where` (its path and content)."""
    path, term = where
    matching = [(index, each) for index, each in expressions(term) if each.get("key") == label]
    demands = (f"{each.get('operator')} {display(each.get('values', ''))}" for _, each in matching)
    listed = " and ".join(demand.removesuffix(' ""') for demand in demands)
    message = f"{AFFINITY_WORDS} demands {display(label)} {listed} {why}"
    advice = f"change or remove what the term demands of {label}"
    return Finding(
        path=(*path, "matchExpressions", matching[-1][0]), key=key, message=message, help=advice
    )


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(NODE_SELECTION, GPU))

"""A GPU pod may run on nodes without the label that the profile enforces.

What it does
------------
Checks pods that request a resource for which the profile names a node label with `enforce: true`.
Finds those that a scheduler may place on a node without the label, whatever other labels of GPU
nodes they name; and those that name their node themselves, which no affinity stops.

A pod of a DaemonSet is bound to a node by a term of its own, which gets the requirement as well.
Name the label in the template of the DaemonSet: otherwise its pods for other nodes stay Pending.
Kinds that keep placement elsewhere, such as Volcano's Job and Knative's Service, are checked when
their pods are created.

Why it matters
--------------
The administrator has decided that these pods belong on these nodes, for example because others pay
for the rest. A default that stands back before every choice of a user does not keep them there.

Fix safety
----------
The fix adds the requirement by default, as the administrator has asked. The terms of a required
affinity are alternatives, so it adds the requirement to each that lacks it: in only one term, or as
a new term, it would allow more nodes. An empty term matches no node and stays empty. If the pod
demands another value of the label in `nodeSelector`, or in every term, no fix would leave it a
node: the pod is refused.

References
----------
- https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#node-affinity
- Kubernetes, `component-helpers/scheduling/corev1/nodeaffinity`
"""

from collections.abc import Iterator, Mapping
from typing import Any

from rules.base.json_values import Edit, Path, append, display, put
from rules.base.traits import GPU_ANNOTATION, GPU_RESOURCE, PROFILE_ENFORCED_LABELS
from rules.placement.gpu_nodes import matching_resource, may_be_placed_elsewhere
from rules.placement.node_affinity import (
    NODE_AFFINITY,
    REQUIRED_AFFINITY,
    expression_for,
    expressions,
    has_writable_affinity,
    implies_affinity,
    impossible_label,
    is_empty_term,
    node_affinity,
    required_terms,
    selector_expressions,
)
from rules.profile.profile import NodeAffinity
from rules.rule import Action, Context, Finding, Findings, Fix, Pod, define_rule


def check(pod: Pod, _context: Context) -> Findings:
    """Yield the pod if it may run where an enforced affinity does not allow it."""
    wanted = [a for a in pod.profile.affinities if a.enforce and matching_resource(pod, a)]
    if not wanted or pod.exists or may_be_placed_elsewhere(pod) or not has_writable_affinity(pod):
        return
    if pod.spec.get("nodeName"):
        yield _finding(
            pod, wanted, (*pod.path, "nodeName"), "names its node itself", "remove nodeName"
        )
        return
    open_terms: dict[Path, list[NodeAffinity]] = {}
    for affinity in wanted:
        conflict = _conflicting_path(pod, affinity)
        if conflict is not None:
            label = f"demands another {display(affinity.key)}"
            yield _finding(
                pod, [affinity], conflict, label, f"remove what it says of {affinity.key}"
            )
            return
        if not any(implies_affinity(demand, affinity) for demand in selector_expressions(pod)):
            for path in _paths_of_open_terms(pod, affinity):
                open_terms.setdefault(path, []).append(affinity)
    if open_terms:
        existing = NODE_AFFINITY if pod.spec.get("affinity") is not None else NODE_AFFINITY[:1]
        fix = Fix(
            f"require {_labels_with_commas(wanted)} of the node",
            tuple(_edits(pod, open_terms)),
            safe=True,
        )
        where, advice = (
            (*pod.path, *existing),
            f"require {_labels_with_commas(wanted)} in every term",
        )
        yield _finding(pod, wanted, where, "may run on other nodes", advice, fix)


def _paths_of_open_terms(pod: Pod, affinity: NodeAffinity) -> list[Path]:
    """The paths of the terms that also match nodes without the label of `affinity`.

    If there is no required affinity, that of the affinity itself.
    """
    if node_affinity(pod).get(REQUIRED_AFFINITY) is None:
        return [_required_terms_path(pod)]
    return [
        path
        for path, term in required_terms(pod)
        if not is_empty_term(term)
        and not any(implies_affinity(e, affinity) for _, e in expressions(term))
    ]


def _required_terms_path(pod: Pod) -> Path:
    return (*pod.path, *NODE_AFFINITY, REQUIRED_AFFINITY)


def _edits(pod: Pod, open_terms: Mapping[Path, list[NodeAffinity]]) -> Iterator[Edit]:
    for path, affinities in open_terms.items():
        added = [expression_for(affinity) for affinity in affinities]
        if path == _required_terms_path(pod):
            yield put((*path, "nodeSelectorTerms"), [{"matchExpressions": added}])
        else:
            yield from (append((*path, "matchExpressions"), expression) for expression in added)


def _conflicting_path(pod: Pod, affinity: NodeAffinity) -> Path | None:
    """The path of what excludes every node with the label of `affinity`; None if nothing does."""
    wanted = expression_for(affinity)
    for demand in selector_expressions(pod):
        if demand["key"] == affinity.key and impossible_label([wanted, demand]) is not None:
            return (*pod.path, "nodeSelector", affinity.key)
    terms = [(path, term) for path, term in required_terms(pod) if not is_empty_term(term)]
    if terms and all(_excludes(term, wanted) for _, term in terms):
        return (*terms[0][0], "matchExpressions")
    return None


def _excludes(term: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    about = [demand for _, demand in expressions(term) if demand.get("key") == wanted["key"]]
    return impossible_label([wanted, *about]) is not None


def _labels_with_commas(affinities: list[NodeAffinity]) -> str:
    return ", ".join(dict.fromkeys(affinity.label for affinity in affinities))


def _finding(
    pod: Pod,
    wanted: list[NodeAffinity],
    path: Path,
    fault: str,
    advice: str,
    fix: Fix | None = None,
) -> Finding:
    return Finding(
        path=path,
        key="affinity.enforced",
        message=f"the pod asks for {display(matching_resource(pod, wanted[0]))}, which belongs on "
        f"nodes with {_labels_with_and(wanted)}, and {fault}",
        help=advice,
        fix=fix,
    )


def _labels_with_and(affinities: list[NodeAffinity]) -> str:
    return " and ".join(dict.fromkeys(affinity.label for affinity in affinities))


RULE = define_rule(
    check,
    action=Action.DENY,
    since="0.1",
    needs=(GPU_RESOURCE | GPU_ANNOTATION, PROFILE_ENFORCED_LABELS),
)

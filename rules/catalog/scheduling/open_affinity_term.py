"""Only some terms of a required node affinity name the GPU.

What it does
------------
Checks pods that request a GPU and whose required node affinity has several terms. If one of them
names a label of GPU nodes, such as `nvidia.com/gpu.product`, finds those that say nothing about
the hardware: every label in them is about something else, such as the zone, the architecture or the
price of the node, or is only excluded. A term with any other label, such as the name of a node or
one of the cluster's own, may mean a GPU and is not reported. Nor are pods whose `nodeSelector`
names a label of GPU nodes, which a node must have besides. A label that every node with the
requested GPUs has, such as `nvidia.com/gpu.present: "true"`, narrows nothing and does not count.

Why it matters
--------------
The terms are alternatives: a node needs to match one of them. Written as a second term, a zone
does not narrow the choice of the GPU but opens it: every GPU in that zone will do. Expressions that
belong together belong in one term.

References
----------
- https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#node-affinity
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rules.base.json_values import as_text, display
from rules.base.traits import GPU, NODE_SELECTION
from rules.gpu.devices import pod_requests_gpu
from rules.placement.gpu_nodes import gpu_node_expressions, selected_gpu_label
from rules.placement.node_affinity import (
    SPOT_LABELS,
    expression_values,
    expressions,
    is_empty_term,
    required_terms,
    selector_expressions,
)
from rules.profile.profile import Profile
from rules.rule import Action, Context, Finding, Findings, Pod, define_rule

# Labels that nodes with and without GPUs, and with every kind of GPU, have.
LABELS_WITHOUT_GPUS = frozenset(
    {
        *("topology.kubernetes.io/zone", "topology.kubernetes.io/region"),
        *("failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"),
        *("kubernetes.io/arch", "beta.kubernetes.io/arch"),
        *("kubernetes.io/os", "beta.kubernetes.io/os"),
        *SPOT_LABELS,
    }
)
EXCLUDING_OPERATORS = frozenset({"NotIn", "DoesNotExist"})
Demand = Mapping[str, Any]


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each term that allows any GPU, if another one names the GPU."""
    terms = [(path, term) for path, term in required_terms(pod) if not is_empty_term(term)]
    if len(terms) < 2 or not pod_requests_gpu(pod):  # noqa: PLR2004  # one term has no alternative
        return
    everywhere = gpu_node_expressions(pod)
    if _gpu_label(pod.profile, selector_expressions(pod), everywhere):
        return
    demands = [[demand for _, demand in expressions(term)] for _, term in terms]
    named = next(filter(None, (_gpu_label(pod.profile, each, everywhere) for each in demands)), "")
    if not named:
        return
    reported: set[str] = set()
    for path, term in terms:
        key = _key_of_term(term)
        if key not in reported and _says_nothing_about_gpus(pod.profile, term, everywhere):
            reported.add(key)
            labels = ", ".join(display(e.get("key", "")) for _, e in expressions(term)[:3])
            yield Finding(
                path=path,
                key=key,
                message=f"one term of the required node affinity names {display(named)}, and "
                f"another one only {labels}: terms are alternatives, so any GPU there will do",
                help=f"say in every term what {named} should be, or put it in nodeSelector",
            )


def _key_of_term(term: Demand) -> str:
    """Return what tells `term` from others, wherever it is in the list."""
    demands = []
    for _, demand in expressions(term):
        values = demand.get("values")
        listed = values if isinstance(values, list) else ()
        demands.append(",".join(map(as_text, (demand.get("key"), demand.get("operator"), *listed))))
    return ".".join(("nodeSelectorTerms.open", *demands))


def _gpu_label(profile: Profile, demands: Iterable[Demand], everywhere: Sequence[Demand]) -> str:
    """The key of the label by which `demands` choose among the requested GPUs; empty if none."""
    narrower = [demand for demand in demands if not _is_already_demanded(demand, everywhere)]
    return selected_gpu_label(profile, {"matchExpressions": narrower}).partition(": ")[0]


def _says_nothing_about_gpus(profile: Profile, term: Demand, everywhere: Sequence[Demand]) -> bool:
    """Return whether no label that `term` demands says which of the requested GPUs the node has."""
    return not term.get("matchFields") and all(
        _is_already_demanded(demand, everywhere) or _is_about_something_else(profile, demand)
        for _, demand in expressions(term)
    )


def _is_already_demanded(demand: Demand, everywhere: Sequence[Demand]) -> bool:
    """Return whether every node that meets the expressions `everywhere` meets `demand`."""
    operator, values = demand.get("operator"), expression_values(demand) or set()
    return any(
        operator == "Exists"
        or (operator == known["operator"] == "In" and values.issuperset(known["values"]))
        for known in everywhere
        if known["key"] == demand.get("key")
    )


def _is_about_something_else(profile: Profile, demand: Demand) -> bool:
    key = as_text(demand.get("key"))
    if profile.is_gpu_label(key):
        return False
    return key in LABELS_WITHOUT_GPUS or as_text(demand.get("operator")) in EXCLUDING_OPERATORS


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(NODE_SELECTION, GPU))

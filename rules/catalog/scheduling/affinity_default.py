"""A pod asks for GPUs and says nothing about which nodes it should be drawn to.

What it does
------------
Finds pods that request a resource for which the profile names a node label, and that name no
label of GPU nodes in `nodeSelector` or in the node affinity. Not reported: a pod that names its
node, belongs to a DaemonSet, has a scheduling gate, or uses a scheduler that the profile does
not name; and kinds that keep placement elsewhere, such as Volcano's Job and Knative's Service.
`enforced-affinity` is about labels that the profile enforces.

Why it matters
--------------
The label leads a GPU pod to the nodes that the administrators meant for it.

Fix safety
----------
The fix adds the profile's node affinity by default. The terms of a required affinity are
alternatives, so the fix adds a required label to each of them: in only one term, or as a new
term, it would allow more nodes. A preferred label becomes one more preference with the least
possible weight, so that it outweighs none of the user's own. If every required term is empty, the
pod fits no node: the fix adds nothing, and `affinity-contradiction` reports the pod.

References
----------
- https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#node-affinity
- Why not in a DaemonSet: https://github.com/liangrog/admission-webhook-server/issues/3
"""

from collections.abc import Iterable, Mapping
from typing import Any

from rules.base.json_values import Edit, append, display, put
from rules.base.traits import GPU_ANNOTATION, GPU_RESOURCE
from rules.in_process.expression import (
    OBJECT,
    Expression,
    all_of,
    any_of,
    choose,
    concat,
    dyn,
    get,
    has,
    is_in,
    not_,
    optional,
    string,
)
from rules.in_process.statement import Mutation, add, created, dynamic
from rules.placement.gpu_nodes import matching_resource, placement_skip_reason
from rules.placement.node_affinity import (
    NODE_AFFINITY,
    PREFERRED_AFFINITY,
    REQUIRED_AFFINITY,
    expression_for,
    has_writable_affinity,
    is_empty_term,
    node_affinity,
    referenced_label_keys,
    required_terms,
)
from rules.profile.profile import NodeAffinity, Profile
from rules.rule import Action, Context, Finding, Findings, Fix, Pod, define_rule

PREFERENCE_WEIGHT = 1


def check(pod: Pod, _context: Context) -> Findings:
    """Yield the pod if the profile names labels for its GPUs and the pod names none."""
    wanted = [
        affinity
        for affinity in pod.profile.affinities
        if not affinity.enforce and matching_resource(pod, affinity) is not None
    ]
    if not wanted:
        return
    keys = {affinity.key for affinity in wanted}
    if any(key in keys or pod.profile.is_gpu_label(key) for key in referenced_label_keys(pod)):
        return
    if not has_writable_affinity(pod) or placement_skip_reason(pod) is not None:
        return
    if edits := _edits(pod, wanted):
        labels = ", ".join(dict.fromkeys(affinity.label for affinity in wanted))
        existing = NODE_AFFINITY if pod.spec.get("affinity") is not None else NODE_AFFINITY[:1]
        yield Finding(
            path=(*pod.path, *existing),
            key="affinity.nodeAffinity",
            message=f"the pod asks for {display(matching_resource(pod, wanted[0]))} and does not "
            f"choose its nodes by {labels}, which the profile names for it",
            help=f"add a nodeSelector or a node affinity for {labels}",
            fix=Fix(f"add a node affinity for {labels}", edits, safe=True),
        )


def _edits(pod: Pod, wanted: list[NodeAffinity]) -> tuple[Edit, ...]:
    """Edits that add the wanted labels; none if every required term is empty."""
    base = (*pod.path, *NODE_AFFINITY)
    required = [affinity for affinity in wanted if affinity.required]
    edits = [append((*base, PREFERRED_AFFINITY), _preference(a)) for a in wanted if not a.required]
    if node_affinity(pod).get(REQUIRED_AFFINITY) is None:
        terms = [{"matchExpressions": [expression_for(affinity) for affinity in required]}]
        new = [put((*base, REQUIRED_AFFINITY, "nodeSelectorTerms"), terms)] if required else []
        return (*edits, *new)
    filled = [path for path, term in required_terms(pod) if not is_empty_term(term)]
    edits += [append((*p, "matchExpressions"), expression_for(a)) for p in filled for a in required]
    return tuple(edits) if filled else ()


def _preference(affinity: NodeAffinity) -> dict[str, Any]:
    return {
        "weight": PREFERENCE_WEIGHT,
        "preference": {"matchExpressions": [expression_for(affinity)]},
    }


def in_process_fix(_options: Mapping[str, Any], profile: Profile) -> tuple[Mutation, ...]:
    """The fix in CEL."""
    from rules.in_process import mutation, nodes  # noqa: PLC0415  # no linter needs them

    known = [affinity for affinity in profile.affinities if not affinity.enforce]
    if not known:
        return ()

    def wanted(values: Iterable[tuple[NodeAffinity, Any]]) -> Expression:
        return concat(
            [choose((mutation.is_about(a), [dynamic(v)]), otherwise=[]) for a, v in values]
        )

    def is_filled(t: Expression) -> Expression:
        return any_of(
            get(t, "matchExpressions", []).size() > 0, get(t, "matchFields", []).size() > 0
        )

    words = {
        "preferences": wanted((a, _preference(a)) for a in known if not a.required),
        "requirements": wanted((a, expression_for(a)) for a in known if a.required),
        "wantedKeys": wanted((a, a.key) for a in known),
        "filledTerms": nodes.REQUIRED_TERMS.transformList(
            lambda i, t: (is_filled(t), {"index": dyn(string(i)), "term": dyn(t)})
        ),
    }
    chooses_nodes = mutation.label_keys().exists(
        lambda k: any_of(is_in(k, OBJECT.wantedKeys), nodes.label_values(k).size() > 0)
    )
    where = all_of(
        OBJECT.mayBePlaced,
        OBJECT.wantedKeys.size() > 0,
        not_(chooses_nodes),
        any_of(not_(_REQUIRED.hasValue()), OBJECT.filledTerms.size() > 0),
    )
    return (Mutation("pod", where, _change(), words=words),)


_NODE_AFFINITY = optional(OBJECT.spec, "affinity.nodeAffinity")
_REQUIRED = optional(OBJECT.spec, f"affinity.nodeAffinity.{REQUIRED_AFFINITY}")
_PREFERRED = optional(OBJECT.spec, f"affinity.nodeAffinity.{PREFERRED_AFFINITY}")


def _change() -> Expression:
    """`_edits` in CEL."""
    path = "/spec/affinity/nodeAffinity"
    required, preferred = f"{path}/{REQUIRED_AFFINITY}", f"{path}/{PREFERRED_AFFINITY}"
    preferences, requirements = OBJECT.preferences, OBJECT.requirements

    def to_term(f: Expression) -> Expression:
        at = f"{required}/nodeSelectorTerms/" + f.index + "/matchExpressions"
        new = choose((has(f.term, "matchExpressions"), []), otherwise=[add(at, [])])
        return new + requirements.map(lambda r: add(at + "/-", r))

    to_terms = OBJECT.filledTerms.map(to_term).flatten()
    whole = {"nodeSelectorTerms": [{"matchExpressions": requirements}]}
    return concat(
        [
            created(optional(OBJECT.spec, "affinity"), "/spec/affinity", {}),
            created(_NODE_AFFINITY, path, {}),
            choose((preferences.size() == 0, []), otherwise=created(_PREFERRED, preferred, [])),
            preferences.map(lambda p: add(f"{preferred}/-", p)),
            choose(
                (requirements.size() == 0, []),
                (_REQUIRED.hasValue(), to_terms),
                otherwise=[add(required, whole)],
            ),
        ]
    )


RULE = define_rule(check, action=Action.AUDIT, since="0.1", needs=(GPU_RESOURCE | GPU_ANNOTATION,))

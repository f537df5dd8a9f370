"""A pod asks for GPUs and does not tolerate the taint of the nodes that have them.

What it does
------------
Finds the taints that the profile states for the resources a pod requests and that no toleration
of the pod tolerates. Annotations by which a scheduler gives a part of a GPU, such as KAI's
`gpu-fraction` and TensorFusion's `tensor-fusion.ai/vram-request`, count as a request for the
resource of the nodes with such parts. An empty key, an empty effect and every operator count as in
Kubernetes.
Nodes with MIG devices or shared GPUs have the taint of their vendor, so the fix tolerates that
one. Not reported: a taint that the platform itself tolerates in pods that request the resource, as
GKE does; a pod that names its node, belongs to a DaemonSet, has a scheduling gate, or
uses a scheduler that the profile does not name; and kinds that keep placement elsewhere, such as
Volcano's Job and Knative's Service.

Why it matters
--------------
GPU nodes are tainted to keep other pods away. A pod that requests a GPU and does not tolerate the
taint stays Pending although cards are free.

Fix safety
----------
The fix adds the toleration for the profile's taint by default and leaves the pod's other
tolerations as they are. If one of them was meant for this taint and does not fit it,
`toleration-mismatch` reports it, and this rule does not.

References
----------
- https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/
- Kubernetes, `plugin/pkg/admission/extendedresourcetoleration`
"""

from collections.abc import Mapping
from typing import Any

from rules.base.json_values import append, display
from rules.base.traits import GPU_ANNOTATION, GPU_RESOURCE
from rules.in_process.expression import (
    OBJECT,
    Expression,
    all_of,
    any_of,
    choose,
    concat,
    get,
    not_,
    optional,
)
from rules.in_process.statement import Mutation, add, created, dynamic
from rules.placement.gpu_nodes import matching_resource, placement_skip_reason
from rules.placement.tolerations import (
    display_taint,
    misspelt_toleration,
    toleration_for,
    untolerated_taints,
)
from rules.profile.profile import Profile, Taint
from rules.rule import Action, Context, Finding, Findings, Fix, Pod, define_rule


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each taint of its GPU nodes that the pod neither tolerates nor nearly tolerates."""
    taints = [taint for taint in pod.profile.taints if matching_resource(pod, taint) is not None]
    readable = isinstance(pod.spec.get("tolerations", []), list | None)
    untolerated = untolerated_taints(pod, taints) if taints and readable else ()
    if untolerated and placement_skip_reason(pod) is None:
        for taint in untolerated:
            if misspelt_toleration(pod, taint) is None:
                yield _finding(pod, taint)


def _finding(pod: Pod, taint: Taint) -> Finding:
    path, name, right = (*pod.path, "tolerations"), display_taint(taint), toleration_for(taint)
    lines = ", ".join(f"{key}: {value}" for key, value in right.items())
    return Finding(
        path=path,
        key=f"tolerations.{name}",
        message=f"the pod asks for {display(matching_resource(pod, taint))} and does not "
        f"tolerate the taint {name} of the nodes that have it",
        help=f"add {{{lines}}} to the pod's tolerations",
        fix=Fix(f"tolerate {name}", (append(path, right),), safe=True),
    )


def in_process_fix(_options: Mapping[str, Any], profile: Profile) -> tuple[Mutation, ...]:
    """The fix in CEL."""
    from rules.in_process import mutation as words  # noqa: PLC0415  # no linter needs it

    by_identity: dict[tuple[str, str, str], list[Taint]] = {}
    for taint in profile.taints:
        by_identity.setdefault((taint.key, taint.effect, taint.value or ""), []).append(taint)
    if not by_identity:
        return ()

    def missing(same: list[Taint]) -> Expression:
        """Return the toleration of taints that differ in resources alone, if it is missing."""
        taint = same[-1]
        is_wanted = any_of(
            *(all_of(words.is_about(t), not_(words.requests_any(t.tolerated_for))) for t in same)
        )
        is_there = OBJECT.tolerations.exists(lambda t: words.is_meant_for(t, taint))
        return choose(
            (all_of(is_wanted, not_(is_there)), [dynamic(toleration_for(taint))]), otherwise=[]
        )

    variables = {
        "tolerations": get(OBJECT.spec, "tolerations", []),
        "missingTolerations": concat([missing(same) for _, same in sorted(by_identity.items())]),
    }
    added = OBJECT.missingTolerations.map(lambda t: add("/spec/tolerations/-", t))
    change = created(optional(OBJECT.spec, "tolerations"), "/spec/tolerations", []) + added
    where = all_of(OBJECT.mayBePlaced, OBJECT.missingTolerations.size() > 0)
    return (Mutation("pod", where, change, words=variables),)


RULE = define_rule(check, action=Action.AUDIT, since="0.1", needs=(GPU_RESOURCE | GPU_ANNOTATION,))

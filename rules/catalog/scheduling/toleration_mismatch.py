"""A toleration was meant for the taint of GPU nodes and does not fit it.

What it does
------------
Checks pods that request a GPU or select GPU nodes, and the taints that the profile states for
those nodes. Finds a toleration with the key of such a taint and another effect or value, or with
a key that differs from it only in case, punctuation, an `s` or a missing `.com` (`nvidia/gpu`,
`nvidia.com/gpus`, `NVIDIA.com/gpu`). If another toleration of the pod tolerates the taint, or one
that the platform itself adds, nothing is reported.

Why it matters
--------------
Kubernetes compares taints letter by letter. It accepts a toleration that nearly fits without a
warning, and the pod stays Pending although GPUs are free.

Fix safety
----------
The fix adds the right toleration by default and keeps the old one, which may be there for other
nodes. If only the value or the operator differs, the old one may be the user's choice among the
nodes: then the fix is made only if the policy says `fix: true`, and so it is in pods that
`toleration-default` leaves alone. That rule adds a toleration only if the pod has none that was
meant for the taint, so it never reports a taint that this rule reports.

References
----------
- https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/
- A real `nvidia/gpu`: GoogleCloudPlatform/accelerated-platforms, `it-model-deployment.yaml`
"""

from collections.abc import Mapping
from typing import Any

from rules.base.json_values import Edit, Path, append, as_text, display, put
from rules.base.traits import GPU_ANNOTATION, GPU_RESOURCE, NODE_CONSTRAINT, TOLERATION
from rules.placement.gpu_nodes import (
    matching_resource,
    placement_skip_reason,
    targets_gpu_nodes,
)
from rules.placement.tolerations import (
    display_taint,
    is_tolerated,
    misspelt_toleration,
    toleration_for,
    untolerated_taints,
)
from rules.profile.profile import Taint
from rules.rule import Action, Context, Finding, Findings, Fix, Pod, define_rule


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each taint of the pod's GPU nodes that a toleration was meant for and does not fit."""
    if not pod.tolerations:
        return
    taints = [taint for taint in pod.profile.taints if not is_tolerated(pod, taint)]
    if taints and not targets_gpu_nodes(pod):
        taints = [taint for taint in taints if matching_resource(pod, taint) is not None]
    for taint in untolerated_taints(pod, taints):
        near_miss = misspelt_toleration(pod, taint)
        if near_miss is not None:
            yield _finding(pod, taint, *near_miss)


def _finding(pod: Pod, taint: Taint, index: int, toleration: Mapping[str, Any]) -> Finding:
    field, wanted = _wrong_field_and_right_value(toleration, taint)
    base = (*pod.path, "tolerations")
    right = toleration_for(taint)
    lines = ", ".join(f"{key}: {value}" for key, value in right.items())
    return Finding(
        path=(*base, index, field),
        key=f"tolerations.{display_taint(taint)}",
        message=f"the toleration with the {field} {display(toleration.get(field) or '')} does not "
        f"fit the taint {display_taint(taint)} of GPU nodes: the {field} "
        f"should be {display(wanted)}",
        help=f"tolerate the taint with {{{lines}}}",
        fix=Fix(
            f"tolerate {display_taint(taint)}",
            (_edit(base, index, toleration, taint),),
            safe=field in ("key", "effect") and _gets_toleration_for_gpu(pod, taint),
        ),
    )


def _edit(base: Path, index: int, toleration: Mapping[str, Any], taint: Taint) -> Edit:
    key = as_text(toleration.get("key"))
    if key != taint.key and key.lower() == taint.key.lower():
        # The API server refuses capitals in the domain of a key: beside it the right one is no use.
        return put((*base, index, "key"), taint.key)
    return append(base, toleration_for(taint))


def _gets_toleration_for_gpu(pod: Pod, taint: Taint) -> bool:
    """Return whether `toleration-default` would add the toleration if the pod had none."""
    return matching_resource(pod, taint) is not None and placement_skip_reason(pod) is None


def _wrong_field_and_right_value(toleration: Mapping[str, Any], taint: Taint) -> tuple[str, str]:
    """The field for which the toleration does not fit, and the value that it should have."""
    if toleration.get("key") != taint.key:
        return "key", taint.key
    if as_text(toleration.get("effect")) not in {"", taint.effect}:
        return "effect", taint.effect
    if as_text(toleration.get("operator")) not in {"", "Equal"}:
        return "operator", str(toleration_for(taint)["operator"])
    return "value", taint.value or ""


RULE = define_rule(
    check,
    action=Action.WARN,
    since="0.1",
    needs=(TOLERATION, GPU_RESOURCE | GPU_ANNOTATION | NODE_CONSTRAINT),
)

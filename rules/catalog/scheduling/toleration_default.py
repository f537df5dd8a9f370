"""A pod asks for GPUs and does not tolerate the taint of the nodes that have them.

What it does
------------
Looks up the taints that the profile states for the resources a pod asks for, and finds
those that no toleration of the pod tolerates. An empty key, an empty effect and every
operator count as Kubernetes counts them. MIG devices and shared GPUs carry the taint of
their vendor, so it is that one which is added. A pod that names its node, belongs to a
DaemonSet, waits at a scheduling gate or has a scheduler of its own is left alone.

Why it matters
--------------
GPU nodes are tainted to keep other pods away. A pod that asks for a GPU and does not
tolerate the taint stays Pending although cards are free.

Fix safety
----------
The toleration that the profile's taint needs is appended unasked; what the pod tolerates
already stays as it is. Where a toleration was meant for this taint and misses it, the pod
has said something about the taint: `toleration-mismatch` speaks then, and this rule is
silent.

References
----------
- https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/
- Kubernetes, `plugin/pkg/admission/extendedresourcetoleration`
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.base.json_access import display
from rules.base.json_patch import append
from rules.finding import Action, Finding, Fix
from rules.objects.pod import Pod
from rules.placement.gpu_nodes import matching_resource, placement_skip_reason
from rules.placement.tolerations import (
    display_taint,
    near_miss_toleration,
    toleration_for,
    untolerated_taints,
)
from rules.profile.context import Context
from rules.profile.records import Taint
from rules.rule import define_rule
from rules.traits.bits import GPU_RESOURCE


def check(pod: Pod, _context: Context) -> Iterator[Finding]:
    """Yield each taint of the nodes with the pod's GPUs that it says nothing about."""
    taints = [taint for taint in pod.profile.taints if matching_resource(pod, taint) is not None]
    readable = isinstance(pod.spec.get("tolerations", []), list | None)
    open_ones = untolerated_taints(pod, taints) if taints and readable else ()
    if open_ones and placement_skip_reason(pod) is None:
        for taint in open_ones:
            if near_miss_toleration(pod, taint) is None:
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


RULE = define_rule(check, action=Action.AUDIT, since="0.1", needs=(GPU_RESOURCE,))

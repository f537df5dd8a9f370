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

from rules.context import Context
from rules.document import append
from rules.placement import left_alone, need
from rules.pod import Pod
from rules.profile import Taint
from rules.reading import shown
from rules.rule import Action, Finding, Fix, Rule
from rules.tolerations import meant_for, spelled, toleration, untolerated
from rules.traits import DEVICE


def check(pod: Pod, _context: Context) -> Iterator[Finding]:
    """Yield each taint of the nodes with the pod's GPUs that it says nothing about."""
    taints = [taint for taint in pod.profile.taints if need(pod, taint) is not None]
    readable = isinstance(pod.spec.get("tolerations", []), list | None)
    open_ones = untolerated(pod, taints) if taints and readable else ()
    if open_ones and left_alone(pod) is None:
        for taint in open_ones:
            if meant_for(pod, taint) is None:
                yield _finding(pod, taint)


def _finding(pod: Pod, taint: Taint) -> Finding:
    path, told, right = (*pod.path, "tolerations"), spelled(taint), toleration(taint)
    lines = ", ".join(f"{key}: {value}" for key, value in right.items())
    return Finding(
        path,
        f"tolerations.{told}",
        f"the pod asks for {shown(need(pod, taint))} and does not tolerate the taint "
        f"{told} of the nodes that have it",
        help=f"add {{{lines}}} to the pod's tolerations",
        fix=Fix(f"tolerate {told}", (append(path, right),), safe=True),
    )


RULE = Rule(
    name="toleration-default",
    subject=Pod,
    action=Action.AUDIT,
    since="0.1",
    summary="a pod asks for GPUs and does not tolerate the taint of the nodes that have them",
    check=check,
    needs=(DEVICE,),
)

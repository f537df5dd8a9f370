"""A pod asks for GPUs and says nothing about which nodes it should be drawn to.

What it does
------------
Finds pods that ask for a resource for which the profile names a node label, and that name
no label of GPU nodes in `nodeSelector` or in the node affinity. A pod that names its node,
belongs to a DaemonSet, waits at a gate or has a scheduler of its own is left alone.

Why it matters
--------------
The label draws a GPU pod to the nodes that the administrators meant for it.

Fix safety
----------
The node affinity that the profile states is added unasked. The terms of a required one are
alternatives, so a required label goes into each of them: in one alone, or as one term
more, it would widen the choice. A preferred label becomes one more preference, of the
least weight there is, so that it outweighs none of the user's own. Where no required term
says anything the pod fits no node: nothing is added and `affinity-contradiction` speaks.

References
----------
- https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#node-affinity
- Why not in a DaemonSet: https://github.com/liangrog/admission-webhook-server/issues/3
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rules.base.json_access import display
from rules.base.json_patch import Edit, append, put
from rules.finding import Action, Finding, Fix
from rules.objects.pod import Pod
from rules.placement.gpu_nodes import is_gpu_label, matching_resource, placement_skip_reason
from rules.placement.node_affinity import (
    NODE_AFFINITY,
    PREFERRED,
    REQUIRED,
    expression_for,
    is_empty,
    is_writable,
    node_affinity,
    referenced_label_keys,
    required_terms,
)
from rules.profile.context import Context
from rules.profile.records import NodeAffinity
from rules.rule import define_rule
from rules.traits.bits import GPU_RESOURCE

WEIGHT = 1


def check(pod: Pod, _context: Context) -> Iterator[Finding]:
    """Yield the pod if the profile names labels for its GPUs and it mentions none itself."""
    wanted = [
        affinity
        for affinity in pod.profile.affinities
        if matching_resource(pod, affinity) is not None
    ]
    if not wanted or not is_writable(pod):
        return
    own = {affinity.key for affinity in wanted}
    if any(key in own or is_gpu_label(pod.profile, key) for key in referenced_label_keys(pod)):
        return
    if placement_skip_reason(pod) is None and (edits := _edits(pod, wanted)):
        labels = ", ".join(dict.fromkeys(affinity.key for affinity in wanted))
        there = NODE_AFFINITY if pod.spec.get("affinity") is not None else NODE_AFFINITY[:1]
        yield Finding(
            path=(*pod.path, *there),
            key="affinity.nodeAffinity",
            message=f"the pod asks for {display(matching_resource(pod, wanted[0]))} and does not "
            f"choose its nodes by {labels}, which the profile names for it",
            help=f"add a nodeSelector or a node affinity for {labels}",
            fix=Fix(f"add a node affinity for {labels}", edits, safe=True),
        )


def _edits(pod: Pod, wanted: list[NodeAffinity]) -> tuple[Edit, ...]:
    """What adds the wanted labels; nothing where no required term says anything."""
    base = (*pod.path, *NODE_AFFINITY)
    required = [affinity for affinity in wanted if affinity.required]
    edits = [append((*base, PREFERRED), _preference(a)) for a in wanted if not a.required]
    if node_affinity(pod).get(REQUIRED) is None:
        terms = [{"matchExpressions": [expression_for(affinity) for affinity in required]}]
        created = [put((*base, REQUIRED, "nodeSelectorTerms"), terms)] if required else []
        return (*edits, *created)
    filled = [path for path, term in required_terms(pod) if not is_empty(term)]
    edits += [append((*p, "matchExpressions"), expression_for(a)) for p in filled for a in required]
    return tuple(edits) if filled else ()


def _preference(affinity: NodeAffinity) -> dict[str, Any]:
    return {"weight": WEIGHT, "preference": {"matchExpressions": [expression_for(affinity)]}}


RULE = define_rule(check, action=Action.AUDIT, since="0.1", needs=(GPU_RESOURCE,))

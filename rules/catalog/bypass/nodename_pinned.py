"""A pod that holds a GPU names its node itself.

What it does
------------
Finds pods that ask for a GPU and set `nodeName`. Pods of a DaemonSet and the mirrors of
static pods are left alone, and so is every update: that is how a scheduler assigns a node.

Why it matters
--------------
A pod with `nodeName` passes the scheduler by, and with it taints, quotas of a queue and
every scheduler that divides GPUs. If the node has no GPU free the kubelet refuses the pod,
and a controller may go on to create one after the other.

References
----------
- https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#nodename
- https://github.com/kubernetes/kubernetes/issues/113907
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.components import is_of_daemon_set
from rules.context import Context
from rules.devices import pod_holds_gpu
from rules.pod import Pod
from rules.reading import shown, text
from rules.rule import Action, Finding, Rule
from rules.traits import GPU, NODE_NAME

FIELD = "nodeName"


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield the node that a GPU pod names."""
    node = text(pod.spec.get(FIELD))
    settled = context.operation == "UPDATE" or is_of_daemon_set(pod, context)
    if node and not settled and pod_holds_gpu(pod):
        message = (
            f"the pod asks for a GPU and names its node {shown(node)} itself, "
            "so no scheduler makes sure that the GPU is free"
        )
        advice = f"replace nodeName by `nodeSelector: {{kubernetes.io/hostname: {shown(node)}}}`"
        yield Finding((*pod.path, FIELD), FIELD, message, help=advice)


RULE = Rule(
    name="nodename-pinned",
    subject=Pod,
    action=Action.WARN,
    since="0.1",
    summary="a pod that holds a GPU names its node itself",
    check=check,
    needs=(NODE_NAME, GPU),
)

"""A pod that requests a GPU names its node itself.

What it does
------------
Finds pods that request a GPU and set `nodeName`. Not reported: pods that a DaemonSet creates, the
mirror pods that kubelets create, and any pod that exists already, on an update or as read from a
cluster, because by then a scheduler may have assigned the node.

Why it matters
--------------
A pod with `nodeName` bypasses the scheduler, and with it taints, the quotas of queues and every
scheduler that divides GPUs. If the node has no free GPU, the kubelet refuses the pod, and a
controller may then create one pod after the other.

References
----------
- https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#nodename
- https://github.com/kubernetes/kubernetes/issues/113907
"""

from rules.base.json_values import as_text, display
from rules.base.traits import GPU, NODE_NAME
from rules.gpu.components import is_made_by_daemon_set
from rules.gpu.devices import pod_requests_gpu
from rules.in_process.expression import OBJECT, REQUEST, all_of, get, not_, text
from rules.in_process.statement import Statement, shown
from rules.rule import Action, Context, Finding, Findings, Pod, define_rule

FIELD = "nodeName"


def check(pod: Pod, context: Context) -> Findings:
    """Yield the node that a GPU pod names."""
    node = as_text(pod.spec.get(FIELD))
    is_allowed = pod.exists or is_made_by_daemon_set(pod, context)
    if node and not is_allowed and pod_requests_gpu(pod):
        message, advice = _message(display(node)), _advice(display(node))
        yield Finding(path=(*pod.path, FIELD), key=FIELD, message=message, help=advice)


def _message(node: object) -> str:
    return (
        f"the pod asks for a GPU and names its node {node} itself, "
        "so no scheduler makes sure that the GPU is free"
    )


def _advice(node: object) -> str:
    return f"replace nodeName by `nodeSelector: {{kubernetes.io/hostname: {node}}}`"


def in_process() -> tuple[Statement, ...]:
    """`check` in CEL."""
    node = get(OBJECT.spec, FIELD, "")
    is_new = all_of(REQUEST.operation == "CREATE", not_(OBJECT.isDaemon))
    where = all_of(node != "", is_new, OBJECT.requestsGpu)
    return (Statement("pod", where, text(_message(shown(node))), text(_advice(shown(node)))),)


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(NODE_NAME, GPU))

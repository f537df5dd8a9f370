"""A pod that asks for no GPU tolerates the taint of GPU nodes.

What it does
------------
Finds pods that request no GPU and have a toleration with the key of a taint that the profile names
for GPU nodes, such as `nvidia.com/gpu`. A toleration of all taints says nothing: node agents have
it.

Not reported: pods of DaemonSets, such as exporters and drivers; components of the platform; pods in
custom resources, whose controllers may add the GPU; and pods that select GPU nodes, as those of
operators and validators do on purpose. At admission nothing is said: API servers do not send pods
that have nothing else to do with GPUs. The linter and `gpuward audit` say it.

The rule is off by default: where every node has GPUs, every pod must tolerate the taint.

Why it matters
--------------
The taint keeps GPU nodes for pods that need them. A pod that tolerates it without need may take the
CPU and the memory there, so that the cards stay idle because nothing else fits beside it, and an
autoscaler keeps an expensive node for it. Most often the toleration was copied.

References
----------
- https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/#example-use-cases
"""

from rules.base.json_values import as_objects, as_text
from rules.base.traits import TOLERATION
from rules.gpu.components import is_made_by_daemon_set
from rules.gpu.devices import pod_requests_gpu
from rules.placement.gpu_nodes import gpu_node_label
from rules.placement.tolerations import display_taint, tolerates
from rules.rule import Action, Context, Finding, Findings, Pod, define_rule


def check(pod: Pod, context: Context) -> Findings:
    """Yield each such toleration, once for each taint."""
    if (
        context.operation
        or not pod.is_final
        or pod.is_partial
        or is_made_by_daemon_set(pod, context)
    ):
        return
    if pod_requests_gpu(pod) or gpu_node_label(pod):
        return
    tolerations = list(as_objects(pod.spec.get("tolerations")))
    for taint in dict.fromkeys(pod.profile.taints):
        for index, toleration in tolerations:
            if as_text(toleration.get("key")) == taint.key and tolerates(toleration, taint):
                yield Finding(
                    path=(*pod.path, "tolerations", index),
                    key=f"tolerations.{display_taint(taint)}.unused",
                    message=f"the pod asks for no GPU and tolerates the taint "
                    f"{display_taint(taint)}, which keeps GPU nodes for those that do",
                    help="remove the toleration",
                )
                break


RULE = define_rule(check, action=Action.OFF, since="0.1", needs=(TOLERATION,))

"""What messages advise users to do instead."""

from __future__ import annotations

from rules.objects.container import Container
from rules.objects.pod import Pod

REQUEST_IN_LIMITS = "ask for the GPU in resources.limits (such as nvidia.com/gpu: 1)"
"""Advice for messages that first say what to remove."""
_EXEC = (
    "an ephemeral container cannot ask for a GPU; use `kubectl exec` in the container that has one"
)
IN_NODE_DEBUGGER = (
    "`kubectl debug node/` shows the whole node: choose an image without CUDA, and use the node's "
    "own programs by `chroot /host`"
)
# What `kubectl debug node/` writes into its pods (kubernetes/kubectl pkg/cmd/debug/debug.go).
_DEBUGGER_LABEL = ("app.kubernetes.io/managed-by", "kubectl-debug")


def remove_and_request(
    container: Container, removal: str, request: str = REQUEST_IN_LIMITS, otherwise: str = ""
) -> str:
    """`removal`, such as `remove the mount`, and how `container` gets a GPU instead.

    `otherwise` is another way to remove the fault, such as `, or set the variable to void`.
    Kubernetes forbids `resources` in ephemeral containers.
    """
    if container.role == "ephemeral":
        return f"{removal}{otherwise}: {_EXEC}"
    return f"{removal} and {request}{otherwise}"


def is_node_debugger(pod: Pod) -> bool:
    """Whether the pod says that `kubectl debug node/` made it. Anybody can write that."""
    key, value = _DEBUGGER_LABEL
    return pod.labels.get(key) == value

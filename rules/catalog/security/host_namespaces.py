"""A pod that has to do with GPUs shares the processes or the memory of its node.

What it does
------------
Finds `hostPID: true` and `hostIPC: true` in pods that request a GPU or select GPU nodes.
`hostNetwork` is fine: NCCL uses it for fast networks.

Why it matters
--------------
In the node's namespaces a container sees the processes and the shared memory of all pods on the
node, so the GPU work of other tenants is not isolated from it.

Clients of an MPS daemon may need `hostIPC`, so the rule only warns.

Fix safety
----------
The fix sets the field to false only if the policy says `fix: true`: the program may need it.

References
----------
- https://kubernetes.io/docs/concepts/security/pod-security-standards/
- https://docs.nvidia.com/deploy/mps/
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.base.json_patch import put
from rules.finding import Action, Finding, Fix
from rules.objects.pod import Pod
from rules.placement.gpu_nodes import is_for_gpus
from rules.profile.context import Context
from rules.rule import define_rule
from rules.traits.bits import GPU_OR_NODE_CONSTRAINT, HOST_NAMESPACE

SHARED = {
    "hostPID": ("processes", "leave hostPID out"),
    "hostIPC": (
        "shared memory",
        "leave hostIPC out; for /dev/shm mount an `emptyDir: {medium: Memory}` instead",
    ),
}


def check(pod: Pod, _context: Context) -> Iterator[Finding]:
    """Yield each of the node's namespaces that the pod shares."""
    for field, (what, advice) in SHARED.items():
        if pod.spec.get(field) is True and is_for_gpus(pod):
            path = (*pod.path, field)
            message = (
                f"the pod is for GPUs and sets {field}: true, so it shares the {what} of its node"
            )
            fix = Fix(f"set {field}: false", (put(path, value=False),))
            yield Finding(path=path, key=field, message=message, help=advice, fix=fix)


RULE = define_rule(
    check, action=Action.WARN, since="0.1", needs=(HOST_NAMESPACE, GPU_OR_NODE_CONSTRAINT)
)

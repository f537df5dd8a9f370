"""A container is privileged in a pod that has to do with GPUs.

What it does
------------
Finds containers, including init and ephemeral ones, with `privileged: true` in a pod that
requests a GPU or selects GPU nodes. A pod selects GPU nodes by a label, or by a `topologyKey`
that only they have, in a required topology spread or a required pod affinity. A toleration
selects nothing: node agents tolerate every taint. A resource claim counts as a GPU, because the
pod does not show its class.

Why it matters
--------------
A privileged container sees every device file of its node. It can therefore use every GPU there,
whatever it was allocated, and read the data of other tenants in them.

Fast networks do not need it: RDMA needs the capability `IPC_LOCK` and its own device plugin.
Where a vendor's sample does need the privilege, write an exception for it.

Fix safety
----------
The fix sets `privileged` to false only if the policy says `fix: true`: the program may need it.

References
----------
- https://kubernetes.io/docs/concepts/security/pod-security-standards/
- NVIDIA container toolkit, `internal/config/image/privileged.go`
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.base.json_patch import put
from rules.finding import Action, Finding, Fix
from rules.gpu.devices import pod_requests_gpu, pod_uses_only_claims
from rules.objects.container import Container
from rules.objects.pod import Pod
from rules.placement.gpu_nodes import is_for_gpus
from rules.profile.context import Context
from rules.rule import define_rule
from rules.traits.bits import GPU_OR_NODE_CONSTRAINT, PRIVILEGED


def check(pod: Pod, _context: Context) -> Iterator[Finding]:
    """Yield each privileged container."""
    privileged = [container for container in pod.containers if container.privileged]
    if privileged:
        where = "a pod that holds a GPU"
        if pod_uses_only_claims(pod):
            where = "a pod with a resource claim, which may be for a GPU"
        elif not pod_requests_gpu(pod):
            where = "a pod for GPU nodes"
        if is_for_gpus(pod):
            yield from (_finding(container, where) for container in privileged)


def _finding(container: Container, where: str) -> Finding:
    path = (*container.path, "securityContext", "privileged")
    message = f"{container} is privileged in {where}: it can use every GPU of the node"
    advice = "remove `privileged: true`; RDMA needs no more than `capabilities: {add: [IPC_LOCK]}`"
    fix = Fix("set privileged: false", (put(path, value=False),))
    return Finding(
        path=path,
        key="securityContext.privileged",
        message=message,
        container=container,
        help=advice,
        fix=fix,
    )


RULE = define_rule(
    check, action=Action.DENY, since="0.1", needs=(PRIVILEGED, GPU_OR_NODE_CONSTRAINT)
)

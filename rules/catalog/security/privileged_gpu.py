"""A container is privileged in a pod that has to do with GPUs.

What it does
------------
Finds containers, init and ephemeral ones included, with `privileged: true` in a pod that
holds a GPU or selects GPU nodes: by a label, or by a `topologyKey` that only they have, in a
spread that must be kept or in a required affinity to pods. A toleration selects nothing: node
agents tolerate all. A resource claim counts as a GPU, because its class is not in the pod.

Why it matters
--------------
A privileged container sees every device file of its node, so it can use every GPU there,
whatever it was allocated, and read what other tenants keep in them.

Fast networks are no reason: RDMA needs the capability `IPC_LOCK` and its own device
plugin. Where a vendor's sample does need the privilege, write an exception for it.

Fix safety
----------
`privileged` is set to false only if the policy says `fix: true`: the program may need it.

References
----------
- https://kubernetes.io/docs/concepts/security/pod-security-standards/
- NVIDIA container toolkit, `internal/config/image/privileged.go`
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.container import Container
from rules.context import Context
from rules.devices import pod_holds_gpu, pod_only_claims
from rules.document import put
from rules.placement import is_for_gpus
from rules.pod import Pod
from rules.rule import Action, Finding, Fix, Rule
from rules.traits import ADMINISTRATOR, FOR_GPUS


def check(pod: Pod, _context: Context) -> Iterator[Finding]:
    """Yield each privileged container."""
    privileged = [container for container in pod.containers if container.privileged]
    if privileged:
        where = "a pod that holds a GPU"
        if pod_only_claims(pod):
            where = "a pod with a resource claim, which may be for a GPU"
        elif not pod_holds_gpu(pod):
            where = "a pod for GPU nodes"
        if is_for_gpus(pod):
            yield from (_finding(container, where) for container in privileged)


def _finding(container: Container, where: str) -> Finding:
    path = (*container.path, "securityContext", "privileged")
    message = f"{container} is privileged in {where}: it can use every GPU of the node"
    advice = "remove `privileged: true`; RDMA needs no more than `capabilities: {add: [IPC_LOCK]}`"
    fix = Fix("set privileged: false", (put(path, value=False),))
    return Finding(path, "securityContext.privileged", message, container, advice, fix)


RULE = Rule(
    name="privileged-gpu",
    subject=Pod,
    action=Action.DENY,
    since="0.1",
    summary="a container is privileged in a pod that has to do with GPUs",
    check=check,
    needs=(ADMINISTRATOR, FOR_GPUS),
)

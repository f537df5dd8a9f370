"""A GPU container asks for an RDMA device and may not lock memory.

What it does
------------
Finds containers that request a GPU and a device for RDMA (InfiniBand, RoCE, EFA, eRDMA), and that
neither add the capability `IPC_LOCK` nor are privileged. It knows the device by the words `rdma`,
`efa`, `roce`, `hca` and `infiniband` in the name of the resource.

Why it matters
--------------
RDMA needs memory that the kernel does not move or swap out. How much a process without `IPC_LOCK`
may lock is a setting of the node's container runtime (`RLIMIT_MEMLOCK`). Where that is low, NCCL
fails to register memory, or falls back to a network that is many times slower.

References
----------
- https://man7.org/linux/man-pages/man7/capabilities.7.html
- https://github.com/Mellanox/k8s-rdma-shared-dev-plugin
"""

from rules.base.json_values import display
from rules.base.traits import GPU_RESOURCE, UNKNOWN_RESOURCE
from rules.gpu.devices import requests_gpu
from rules.rule import Action, Container, Context, Finding, Findings, Pod, define_rule

_RDMA_PARTS = ("rdma", "infiniband")
_RDMA_WORDS = frozenset({"efa", "roce", "hca"})
_SEPARATORS_TO_BLANKS = str.maketrans("/._-", "    ")
_LOCKING_CAPABILITIES = frozenset({"IPC_LOCK", "ALL"})


def check(pod: Pod, _context: Context) -> Findings:
    """Yield the first RDMA device of each GPU container that may not lock memory."""
    if not pod.is_complete:
        return
    for container in pod.containers:
        name = _rdma_resource(container) if requests_gpu(container) else None
        if name is None or container.is_privileged:
            continue
        if any(added in _LOCKING_CAPABILITIES for _, added in container.added_capabilities):
            continue
        yield Finding(
            path=(*container.resources_path, "limits", name),
            key=f"rdma.{name}",
            message=f"{container} asks for {display(name)} and does not add the capability "
            "IPC_LOCK: it can lock only as much memory for RDMA as the node allows everybody",
            container=container,
            help="add IPC_LOCK under securityContext.capabilities.add",
        )


def _rdma_resource(container: Container) -> str | None:
    return min((name for name in container.limits if _is_rdma(name.lower())), default=None)


def _is_rdma(name: str) -> bool:
    words = name.translate(_SEPARATORS_TO_BLANKS).split()
    return any(part in name for part in _RDMA_PARTS) or not _RDMA_WORDS.isdisjoint(words)


RULE = define_rule(
    check,
    action=Action.OFF,
    since="0.1",
    needs=(GPU_RESOURCE, UNKNOWN_RESOURCE),
    needs_resources=True,
)

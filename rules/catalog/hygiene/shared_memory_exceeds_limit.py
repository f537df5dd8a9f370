"""A volume at /dev/shm may grow to the memory limit of its containers.

What it does
------------
Finds volumes in memory (`emptyDir` with `medium: Memory`) that containers of a GPU pod mount at
`/dev/shm`, with a `sizeLimit` that is not less than the memory limits of these containers together.
If one of the containers has no limit, nothing is reported.

Why it matters
--------------
What a container writes to such a volume counts as its memory. The kernel kills the container at its
memory limit, before the volume is full: the `sizeLimit` promises memory that nobody gets.

References
----------
- https://kubernetes.io/docs/concepts/storage/volumes/#emptydir
- https://github.com/kubernetes/enhancements/tree/master/keps/sig-node/1967-size-memory-backed-volumes
"""

from collections.abc import Iterable

from rules.base.json_values import as_text, display
from rules.base.quantity import Quantity, parse
from rules.base.traits import GPU_RESOURCE
from rules.gpu.devices import pod_requests_gpu
from rules.gpu.volumes import SHARED_MEMORY_PATH, memory_volumes, shared_memory_mount
from rules.rule import Action, Container, Context, Finding, Findings, Pod, define_rule


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each volume whose `sizeLimit` its containers can never reach."""
    volumes = list(memory_volumes(pod)) if pod_requests_gpu(pod) else []
    if not volumes:
        return
    containers: dict[str, list[Container]] = {}
    for container in pod.containers:
        mount = shared_memory_mount(container)
        if mount is not None and container.role != "ephemeral":
            containers.setdefault(as_text(mount.get("name")), []).append(container)
    for volume in volumes:
        mounting = containers.get(volume.name, ())
        size, limit = parse(volume.source.get("sizeLimit")), _memory_limit(mounting)
        if limit is None or not isinstance(size, Quantity) or not limit <= size.nano:
            continue
        yield Finding(
            path=(*pod.path, "volumes", volume.position, "emptyDir", "sizeLimit"),
            key=f"shm.{volume.name}",
            message=f"the volume {display(volume.name)} at {SHARED_MEMORY_PATH} may grow to "
            f"{display(size.text)}, and memory of its containers is limited to as much or less: "
            "they are killed before it is full",
            containers=tuple(mounting),
            help="make the sizeLimit less than the memory limit, or the limit greater",
        )


def _memory_limit(containers: Iterable[Container]) -> int | None:
    """The memory limits of all `containers` together, in nanos; None unless all have one."""
    limits = [parse(container.limits.get("memory", "")) for container in containers]
    known = [limit.nano for limit in limits if isinstance(limit, Quantity) and limit.nano > 0]
    return sum(known) if known and len(known) == len(limits) else None


RULE = define_rule(
    check, action=Action.OFF, since="0.1", needs=(GPU_RESOURCE,), needs_resources=True
)

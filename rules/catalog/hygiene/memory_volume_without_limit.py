"""A GPU pod has a volume in memory without a sizeLimit.

What it does
------------
Finds volumes in memory (`emptyDir` with `medium: Memory`) without a `sizeLimit` that a container
mounts, in pods that request a GPU resource.

Why it matters
--------------
Such a volume may grow to the memory limits of all containers together, and if one of them has no
limit, to all memory that the node gives to pods. A program that writes too much then takes memory
from the other pods of an expensive node, or is killed, where an error of the file system would have
said what is wrong.

References
----------
- https://kubernetes.io/docs/concepts/storage/volumes/#emptydir
- https://github.com/kubernetes/enhancements/tree/master/keps/sig-node/1967-size-memory-backed-volumes
"""

from rules.base.json_values import as_text, display
from rules.base.traits import GPU_RESOURCE
from rules.gpu.devices import pod_requests_gpu
from rules.gpu.volumes import memory_volumes
from rules.rule import Action, Container, Context, Finding, Findings, Pod, define_rule


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each volume in memory that has no `sizeLimit`."""
    if not pod_requests_gpu(pod):
        return
    unlimited = [v for v in memory_volumes(pod) if v.source.get("sizeLimit") is None]
    mounting = _containers_by_volume(pod) if unlimited else {}
    for volume in unlimited:
        if volume.name not in mounting:
            continue
        yield Finding(
            path=(*pod.path, "volumes", volume.position, "emptyDir", "sizeLimit"),
            key=f"sizeLimit.{volume.name}",
            message=f"the volume {display(volume.name)} is in memory and has no sizeLimit: it may "
            "take all memory that the pod, or without memory limits the node, has",
            containers=tuple(mounting[volume.name]),
            help="set emptyDir.sizeLimit to what the program needs",
        )


def _containers_by_volume(pod: Pod) -> dict[str, list[Container]]:
    found: dict[str, dict[int, Container]] = {}
    for number, container in enumerate(pod.containers):
        for _, mount in container.mounts:
            found.setdefault(as_text(mount.get("name")), {})[number] = container
    return {name: list(containers.values()) for name, containers in found.items()}


RULE = define_rule(check, action=Action.OFF, since="0.1", needs=(GPU_RESOURCE,))

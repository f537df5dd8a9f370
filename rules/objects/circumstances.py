"""What is known about a pod besides its own fields: whether it exists, and whether it is whole."""

from __future__ import annotations

from rules.objects.pod import Pod
from rules.objects.pod_layout import POD_SPEC
from rules.profile.context import Context

EVERY_CONTAINER = "*"


def set_circumstances(pod: Pod, context: Context) -> None:
    """Set `exists` and `is_partial` of `pod`.

    In a file, the fields that only an API server and its controllers write show that the pod was
    read from a cluster. A tenant can write them into a new pod, so at admission they mean nothing.
    """
    if context.operation is not None:
        pod.exists = context.operation == "UPDATE"
        return
    pod.exists = _was_read_from_a_cluster(pod)
    pod.is_partial = context.is_patch or _lacks_parts(pod)


def _was_read_from_a_cluster(pod: Pod) -> bool:
    is_bound = bool(pod.spec.get("nodeName"))
    return (
        pod.object.kind == "Pod" and bool(pod.metadata.get("uid")) and (is_bound or pod.has_status)
    )


def _lacks_parts(pod: Pod) -> bool:
    """Whether a container has no image, or stands for every container of another pod."""
    return pod.layout is POD_SPEC and any(
        not container.image or container.name == EVERY_CONTAINER for container in pod.containers
    )

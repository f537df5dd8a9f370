"""What the GPU requests of all containers together say about a pod."""

from __future__ import annotations

from rules.gpu.devices import request_of, requested_resources
from rules.objects.pod import Pod


def only_init_requests_gpu(pod: Pod) -> bool:
    """Whether init containers request GPU resources and no container that runs after them does.

    A sidecar, which is an init container that is restarted, runs as long as the pod.
    """
    requesting = [c for c in pod.containers if request_of(c).first or c.is_fraction_target]
    return bool(requesting) and all(
        c.role == "init" and c.raw.get("restartPolicy") != "Always" for c in requesting
    )


def excludes_nvidia(pod: Pod) -> bool:
    """Whether no node that can run `pod` has cards of NVIDIA, as with TPUs, Neuron and Gaudi.

    NVIDIA's variables mean nothing there.
    """
    known = (pod.profile.resource(name) for name in requested_resources(pod))
    return any(resource is not None and resource.exclusive for resource in known)

"""What the GPU requests of all containers together say about a pod."""

from __future__ import annotations

from rules.base.json_access import as_object
from rules.base.json_patch import Path
from rules.base.quantity import Quantity, parse
from rules.gpu.devices import devices, request_of, requested_resources
from rules.objects.pod import Pod


def only_init_requests_gpu(pod: Pod) -> bool:
    """Whether init containers request GPU resources and no container that runs after them does.

    A sidecar, which is an init container that is restarted, runs as long as the pod.
    """
    requested = False
    for container in pod.containers:
        if request_of(container).first or container.is_fraction_target:
            if container.role != "init" or container.raw.get("restartPolicy") == "Always":
                return False
            requested = True
    return requested


def excludes_nvidia(pod: Pod) -> bool:
    """Whether no node that can run `pod` has cards of NVIDIA, as with TPUs, Neuron and Gaudi.

    NVIDIA's variables mean nothing there.
    """
    known = (pod.profile.resource(name) for name in requested_resources(pod))
    return any(resource is not None and resource.exclusive for resource in known)


def effective_request(pod: Pod, name: str) -> int | None:
    """How much of the GPU resource `name` the scheduler and quotas count for `pod`.

    Containers that run at the same time add up; init containers run one after the other, beside the
    sidecars that were started before. The overhead of the pod is added. None if an amount is no
    number.
    """
    overhead = parse(as_object(pod.spec.get("overhead")).get(name, 0))
    if not isinstance(overhead, Quantity):
        return None
    highest = running = 0
    for container in pod.containers:
        device = devices(container).get(name)
        amount = device and (device.request if device.limit is None else device.limit)
        if amount is None:
            continue
        if not isinstance(amount, Quantity):
            return None
        if container.role == "init" and container.raw.get("restartPolicy") != "Always":
            highest = max(highest, running + amount.value)
        else:
            running += amount.value
    return max(highest, running) + overhead.value


def first_request(pod: Pod, name: str) -> Path:
    """The path of the amount of the GPU resource `name` in the first container that has one."""
    container = next(c for c in pod.containers if name in devices(c))
    field = "limits" if name in container.limits else "requests"
    return (*container.resources_path, field, name)

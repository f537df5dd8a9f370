"""What the GPU requests of all containers together say about a pod."""

from __future__ import annotations

from rules.base.json_access import as_object
from rules.base.json_values import Path
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


def effective_requests(pod: Pod) -> dict[str, int]:
    """How much of each GPU resource that it requests the scheduler and quotas count for `pod`.

    Containers that run at the same time add up; init containers run one after the other, beside the
    sidecars that were started before. The overhead of the pod is added. A resource with an amount
    that is no number is left out.
    """
    # All resources in one pass: each container may request other ones.
    highest: dict[str, int] = {}
    running: dict[str, int] = {}
    unknown: set[str] = set()
    for container in pod.containers:
        is_init = container.role == "init" and container.raw.get("restartPolicy") != "Always"
        for name, device in devices(container).items():
            amount = device.request if device.limit is None else device.limit
            if isinstance(amount, Quantity):
                total = running.get(name, 0) + amount.value
                highest[name] = max(highest.get(name, 0), total)
                if not is_init:
                    running[name] = total
            elif amount is not None:
                unknown.add(name)
    overhead = as_object(pod.spec.get("overhead"))
    found = {}
    for name in requested_resources(pod):
        more = parse(overhead.get(name, 0))
        if isinstance(more, Quantity) and name not in unknown:
            found[name] = highest.get(name, 0) + more.value
    return found


def first_request(pod: Pod, name: str) -> Path:
    """The path of the amount of the GPU resource `name` in the first container that has one."""
    container = next(c for c in pod.containers if name in devices(c))
    field = "limits" if name in container.limits else "requests"
    return (*container.resources_path, field, name)

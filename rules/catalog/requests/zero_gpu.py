"""A container asks for zero of a GPU resource.

What it does
------------
Finds GPU resources whose limit, or request if there is no limit, is zero. A share's zero
beside what it shares, such as `nvidia.com/gpucores: 0` beside `nvidia.com/gpu: 1`, only
says that this part is not limited and is fine.

Why it matters
--------------
Zero GPUs are no GPU, but they do not hide any either: in an image that sets
`NVIDIA_VISIBLE_DEVICES=all`, as NVIDIA's CUDA images do, the container may still see every
GPU of its node. Some tools also take the mere name of the resource for a GPU pod.

Fix safety
----------
The line is removed only if the policy says `fix: true`: a zero may be kept on purpose, for
another number to be patched in.

References
----------
- https://github.com/canonical/microk8s/issues/2160
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.base.json_access import display
from rules.base.json_patch import remove
from rules.base.patterns import matches_any
from rules.base.quantity import Quantity
from rules.finding import Action, Finding, Fix
from rules.gpu.devices import Device, devices
from rules.objects.container import Container
from rules.objects.pod import Pod
from rules.profile.context import Context
from rules.rule import define_rule
from rules.traits.bits import ODD_AMOUNT


def check(pod: Pod, _context: Context) -> Iterator[Finding]:
    """Yield each GPU resource of which a container asks for nothing."""
    for container in pod.containers:
        if container.role == "ephemeral":
            continue  # it may have no resources at all, which is told by another rule
        for device in devices(container).values():
            amount = device.request if device.limit is None else device.limit
            if _is_zero(amount) and not _tunes_another(device, container):
                yield _finding(container, device)


def _is_zero(amount: object) -> bool:
    return isinstance(amount, Quantity) and amount.nano == 0


def _tunes_another(device: Device, container: Container) -> bool:
    requested = (other.name for other in devices(container).values() if other.is_requested)
    return any(matches_any(device.resource.companions, name) for name in requested)


def _finding(container: Container, device: Device) -> Finding:
    name = device.name
    field = "requests" if device.limit is None else "limits"
    fields = [f for f, a in (("limits", device.limit), ("requests", device.request)) if a]
    message = f"{container} asks for zero of {display(name)}, which does not hide any GPU from it"
    advice = f"remove {name}, and set NVIDIA_VISIBLE_DEVICES=void where no GPU should be seen"
    root, fix = container.resources_path, None
    if device.request is None or _is_zero(device.request):  # else the request would stand alone
        fix = Fix(f"remove {name}", tuple(remove((*root, each, name)) for each in fields))
    return Finding(
        path=(*root, field, name),
        key=f"zero.{name}",
        message=message,
        container=container,
        help=advice,
        fix=fix,
    )


RULE = define_rule(
    check, action=Action.WARN, since="0.1", needs=(ODD_AMOUNT,), needs_resources=True
)

"""A GPU resource is asked for in an amount that is not a whole number.

What it does
------------
Finds limits and requests of GPU resources that are fractions (`0.5`, `500m`), negative, or no
quantities (`1GPU`). Every spelling of a whole number is fine: `2.0`, `1000m`, `1e0`.

Why it matters
--------------
GPUs are handed out whole, and the API server refuses anything else, except that `0.9999` passes
as 1, because it rounds up first. Less than a card takes the resource of a sharing system.

Fix safety
----------
A limit is rounded up, and its request with it, only if the policy says `fix: true`: whoever
writes `0.5` did not ask for a whole card.

References
----------
- Kubernetes, `pkg/apis/core/validation/validation.go` and `pkg/api/resource/quantity.go`
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.acceptance import is_no_count, is_refused
from rules.container import Container
from rules.context import Context
from rules.devices import Device, devices
from rules.document import put
from rules.pod import Pod
from rules.quantity import Quantity, not_whole
from rules.reading import shown
from rules.rule import Action, Finding, Fix, Rule
from rules.traits import ODD_AMOUNT


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield each amount that is no whole number; one finding if limit and request agree."""
    if pod.layout.gpu_field:
        return
    for container in pod.containers:
        for device in devices(container).values():
            if fault := not_whole(device.limit):
                yield _finding(container, device, "limits", fault, context)
            if (fault := not_whole(device.request)) and not _agree(device):
                yield _finding(container, device, "requests", fault, context)


def _agree(device: Device) -> bool:
    if isinstance(device.limit, Quantity) and isinstance(device.request, Quantity):
        return device.limit.equal_to(device.request)
    return device.limit == device.request


def _finding(c: Container, device: Device, field: str, fault: str, context: Context) -> Finding:
    name, amount = device.name, device.limit if field == "limits" else device.request
    refused = is_refused(name, c.limits, c.requests)
    if refused and not is_no_count(amount):
        fault = "a fraction, which the API server refuses without a limit that equals it"
    message = f"{c} sets {shown(f'{name}: {amount.text if amount else None}')} in {field}, {fault}"
    advice, fix = "write a whole number under resources.limits", None
    if isinstance(amount, Quantity) and amount.nano > 0:
        advice, fix = advice + _share(device, context), _rounding(c, device, field)
    path = (*c.resources_path, field, name)
    return Finding(path, f"{field}.{name}", message, c, advice, fix, api_refuses=refused)


def _rounding(container: Container, device: Device, field: str) -> Fix | None:
    """Round up the limit, and make the request what the limit is or becomes."""
    if not isinstance(device.limit, Quantity) or device.limit.nano <= 0 or device.limit.overflows:
        return None
    fields = ("limits", "requests") if field == "limits" and _agree(device) else (field,)
    root, name, whole = container.resources_path, device.name, device.limit.value
    return Fix(f"round {name} up to {whole}", tuple(put((*root, f, name), whole) for f in fields))


def _share(device: Device, context: Context) -> str:
    for resource in map(context.profile.resource, context.profile.active):
        if resource and resource.sharing == "share" and resource.vendor == device.resource.vendor:
            return f", or ask for a share by {resource.name} where the cluster offers it"
    return ""


RULE = Rule(
    name="fractional-gpu",
    subject=Pod,
    action=Action.DENY,
    since="0.1",
    summary="a GPU resource is asked for in an amount that is not a whole number",
    check=check,
    needs=(ODD_AMOUNT,),
)

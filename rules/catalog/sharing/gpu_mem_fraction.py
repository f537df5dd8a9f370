"""Shared GPU memory is asked for in a fraction of its unit.

What it does
------------
Finds limits and requests of `aliyun.com/gpu-mem` that are not whole numbers, such as `5.5`.

Why it matters
--------------
ACK counts the memory of shared GPUs in whole GiB, and Kubernetes demands whole numbers of
every such resource: the API server refuses `5.5`. `5.9999` passes, because the API server
rounds up before it looks, and takes 6.

Fix safety
----------
The amount is rounded up, and its request with it, only if the policy says `fix: true`: the
container then takes more of a card than its author asked for.

References
----------
- Alibaba Cloud, "Allocate computing power by scheduling shared GPU" (ACK)
- Kubernetes, `pkg/apis/core/validation/validation.go`
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.acceptance import is_refused
from rules.container import Container
from rules.context import Context
from rules.document import put
from rules.pod import Pod
from rules.quantity import Quantity, parse
from rules.reading import shown
from rules.rule import Action, Finding, Fix, Rule
from rules.traits import SHARE

GPU_MEM = "aliyun.com/gpu-mem"


def check(pod: Pod, _context: Context) -> Iterator[Finding]:
    """Yield each fraction; one finding if limit and request are the same."""
    if pod.layout.gpu_field:
        return
    for container in pod.containers:
        limit = _fraction(container.limits)
        request = _fraction(container.requests)
        if limit:
            yield _finding(container, "limits", limit)
        if request and not (limit and limit.equal_to(request)):
            yield _finding(container, "requests", request)


def _fraction(amounts: object) -> Quantity | None:
    amount = parse(amounts[GPU_MEM]) if isinstance(amounts, dict) and GPU_MEM in amounts else None
    is_fraction = isinstance(amount, Quantity) and amount.nano > 0 and not amount.is_integer
    return amount if isinstance(amount, Quantity) and is_fraction else None


def _finding(container: Container, field: str, amount: Quantity) -> Finding:
    refused = is_refused(GPU_MEM, container.limits, container.requests)
    outcome = "the API server refuses fractions"
    if not refused:
        outcome = f"the API server lets it through and takes {amount.value}"
    message = (
        f"{container} sets {shown(f'{GPU_MEM}: {amount.text}')} in {field}: "
        f"shared GPU memory comes in whole numbers, and {outcome}"
    )
    advice = f"write a whole number, such as {shown(f'{GPU_MEM}: {amount.value}')}"
    path = (*container.resources_path, field, GPU_MEM)
    fix = _rounding(container, field)
    key = f"{field}.{GPU_MEM}"
    return Finding(path, key, message, container, advice, fix, api_refuses=refused)


def _rounding(container: Container, field: str) -> Fix | None:
    """Round up the limit, and make the request what the limit is or becomes."""
    limit = parse(container.limits.get(GPU_MEM, ""))
    if not isinstance(limit, Quantity) or limit.nano <= 0:
        return None
    request = _fraction(container.requests)
    both = field == "limits" and request is not None and request.equal_to(limit)
    fields = ("limits", "requests") if both else (field,)
    edits = tuple(put((*container.resources_path, f, GPU_MEM), limit.value) for f in fields)
    return Fix(f"round {GPU_MEM} up to {limit.value}", edits)


RULE = Rule(
    name="gpu-mem-fraction",
    subject=Pod,
    action=Action.DENY,
    since="0.1",
    summary="shared GPU memory is asked for in a fraction of its unit",
    check=check,
    needs=(SHARE,),
    instead_of=("fractional-gpu",),
)

"""Shared GPU memory is asked for in a fraction of its unit.

What it does
------------
Finds limits and requests of `aliyun.com/gpu-mem` that are not whole numbers, such as `5.5`.

Why it matters
--------------
ACK counts the memory of shared GPUs in whole GiB, and Kubernetes requires whole numbers of every
such resource: the API server refuses `5.5`. It accepts `5.9999` as 6, because it rounds up before
it checks.

Fix safety
----------
The fix rounds a limit up, and its request with it, only if the policy says `fix: true`: the
container then gets more of a card than its author requested. A request without a limit is not
changed.

References
----------
- Alibaba Cloud, "Allocate computing power by scheduling shared GPU" (ACK)
- Kubernetes, `pkg/apis/core/validation/validation.go`
"""

from rules.base.json_values import display
from rules.base.quantity import Quantity, parse
from rules.base.traits import SHARE
from rules.gpu.amounts import api_refuses_amounts, round_up_fix
from rules.placement.node_labels import GPU_MEM
from rules.rule import Action, Container, Context, Finding, Findings, Pod, define_rule


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each fraction; one finding if limit and request are the same."""
    for container in pod.containers:
        limit = _fractional_amount(container.limits)
        request = _fractional_amount(container.requests)
        if limit:
            yield _finding(container, "limits", limit)
        if request and not (limit and limit.equal_to(request)):
            yield _finding(container, "requests", request)


def _fractional_amount(amounts: object) -> Quantity | None:
    amount = parse(amounts[GPU_MEM]) if isinstance(amounts, dict) and GPU_MEM in amounts else None
    is_fraction = isinstance(amount, Quantity) and amount.nano > 0 and not amount.is_integer
    return amount if isinstance(amount, Quantity) and is_fraction else None


def _finding(container: Container, field: str, amount: Quantity) -> Finding:
    refused = api_refuses_amounts(GPU_MEM, container.limits, container.requests)
    outcome = "the API server refuses fractions"
    if not refused:
        outcome = f"the API server lets it through and takes {amount.value}"
    limit, request = (parse(a.get(GPU_MEM, "")) for a in (container.limits, container.requests))
    return Finding(
        path=(*container.resources_path, field, GPU_MEM),
        key=f"{field}.{GPU_MEM}",
        message=(
            f"{container} sets {display(f'{GPU_MEM}: {amount.text}')} in {field}: "
            f"shared GPU memory comes in whole numbers, and {outcome}"
        ),
        container=container,
        help=f"write a whole number, such as {display(f'{GPU_MEM}: {amount.value}')}",
        fix=round_up_fix(container, GPU_MEM, field, limit=limit, request=request),
        api_refuses=refused,
    )


in_process = "API servers refuse such pods and templates before they ask policies"


RULE = define_rule(
    check,
    action=Action.DENY,
    since="0.1",
    needs=(SHARE,),
    needs_resources=True,
    supersedes=("fractional-gpu",),
)

"""The request of a GPU differs from its limit.

What it does
------------
Compares request and limit of each GPU resource as numbers, so that `1`, `"1.0"` and `1000m` are
equal. Other rules report amounts that are not whole numbers.

Why it matters
--------------
GPUs cannot be overcommitted: the API server refuses a container whose GPU request is not exactly
its limit, in a Pod as well as in the template of a Deployment or a Job.

Fix safety
----------
The fix sets the request to the limit only if the policy says `fix: true`: only the user knows
which of the two numbers was meant.

References
----------
- https://kubernetes.io/docs/tasks/manage-gpus/scheduling-gpus/
- Kubernetes, `pkg/apis/core/validation/validation.go`
"""

from typing import TypeGuard

from rules.base.json_values import display, put
from rules.base.quantity import Quantity
from rules.base.traits import UNUSUAL_AMOUNT
from rules.gpu.devices import devices
from rules.rule import Action, Context, Finding, Findings, Fix, Pod, define_rule


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each request that differs from its limit, if both are whole numbers."""
    for container in pod.containers:
        if not container.requests:
            continue
        for name, device in devices(container).items():
            limit, request = device.limit, device.request
            if not (_is_whole_number(limit) and _is_whole_number(request)) or limit.equal_to(
                request
            ):
                continue
            path = (*container.resources_path, "requests", name)
            yield Finding(
                path=path,
                key=f"requests.{name}",
                message=(
                    f"{container} requests {display(f'{name}: {request.text}')} and its limit is "
                    f"{display(limit.text)}: for GPUs the API server demands that both are equal"
                ),
                container=container,
                help=f"leave the request of {name} out, or make it equal to the limit",
                fix=Fix(
                    f"set the request of {name} to the limit", (put(path, container.limits[name]),)
                ),
                api_refuses=True,
            )


def _is_whole_number(amount: object) -> TypeGuard[Quantity]:
    return isinstance(amount, Quantity) and amount.is_integer and amount.nano >= 0


in_process = "API servers refuse such pods and templates before they ask policies"


RULE = define_rule(check, action=Action.DENY, since="0.1", needs=(UNUSUAL_AMOUNT,))

"""A container asks for more GPUs than any node has, or for more of a card than it has.

What it does
------------
Finds GPU resources that are counted in devices and of which one container requests more than
`max_devices`. Suffixes have their usual meaning: `1k` is a thousand GPUs. Also finds shares of
which a card has a known amount, such as HAMi's `nvidia.com/gpucores` of more than 100 percent.
Resources that are measured in memory are not evaluated.

Why it matters
--------------
A container runs on one node, so a request for a thousand GPUs is never placed: the pod waits
forever. The cause is usually a typing error, such as `1k` or `2Gi` copied from a line about
memory.

A share is a part of each requested card. HAMi places no container that wants more than 100 percent
of a card's memory, and silently takes 100 for any larger number of cores.

Options
-------
`max_devices`: the most devices that one container may request (default 16). Raise it for machines
with more GPUs, or with GPUs that are offered in many slices.

References
----------
- https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
"""

from rules.base.json_values import display
from rules.base.quantity import Quantity
from rules.base.traits import SEVERAL_GPUS
from rules.gpu.devices import devices
from rules.rule import Action, Context, Finding, Findings, Pod, define_rule

COUNTED = "device"


def check(pod: Pod, context: Context) -> Findings:
    """Yield each count of devices that is larger than any node is expected to have."""
    for container in pod.containers:
        for name, device in devices(container).items():
            field, amount = "limits", device.limit
            if amount is None:
                field, amount = "requests", device.request
            resource = device.resource
            maximum = resource.maximum
            if resource.unit == COUNTED:
                maximum = context.options["max_devices"]
            if maximum < 1 or not isinstance(amount, Quantity):
                continue
            if not amount.is_integer or amount.value <= maximum:
                continue
            if resource.unit == COUNTED:
                limit = f"a node is expected to have at most {maximum} devices"
                advice = _advice(amount, maximum)
            else:
                limit = f"it is a part of each card, and a card has {maximum}"
                advice = f"write at most {maximum}, and ask for more cards if one is not enough"
            message = (
                f"{container} asks for {display(f'{name}: {amount.text}')}{_meaning(amount)}: "
                f"{limit}"
            )
            path = (*container.resources_path, field, name)
            yield Finding(
                path=path, key=f"count.{name}", message=message, container=container, help=advice
            )


def _advice(amount: Quantity, maximum: int) -> str:
    if amount.suffix:
        return "write the number of GPUs without a unit"
    return (
        f"write at most {maximum}, and spread the work over several pods; where nodes have more "
        "devices, the administrator of gpuward allows more (option max_devices)"
    )


def _meaning(amount: Quantity) -> str:
    if amount.overflows:
        return ", which is more than Kubernetes can count"
    return f", which is {amount.value}" if amount.suffix else ""


RULE = define_rule(
    check,
    action=Action.WARN,
    since="0.1",
    needs=(SEVERAL_GPUS,),
    needs_resources=True,
    options={"max_devices": 16},
)

"""A container asks for more GPUs than any node has, or for more of a card than it has.

What it does
------------
Finds GPU resources that are counted in devices and of which one container requests more than
`max_devices`. Suffixes have their usual meaning: `1k` is a thousand GPUs.

Also finds more whole cards than the nodes have that the pod selects, by their instance type on AWS
and Google Cloud or by a label with their number (`nvidia.com/gpu.count`), and shares of which a
card has a known amount, such as HAMi's `nvidia.com/gpucores` of more than 100 percent. Resources
that are measured in memory are not evaluated.

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
from rules.placement.selected_cards import DeviceCount, selected_device_count
from rules.profile.profile import Resource
from rules.rule import Action, Context, Finding, Findings, Pod, define_rule

DEVICE_UNIT = "device"
NODE_FAULT = ": a node is expected to have at most "
SHARE_FAULT = ": it is a part of each card, and a card has "
UNIT_ADVICE, MOST_ADVICE = "write the number of GPUs without a unit", "write at most "
SPREAD_ADVICE = (
    ", and spread the work over several pods; where nodes have more devices, the administrator of "
    "gpuward allows more (option max_devices)"
)
CARDS_ADVICE = ", and ask for more cards if one is not enough"


def check(pod: Pod, context: Context) -> Findings:
    """Yield each count of devices that is larger than any node is expected to have."""
    selected = selected_device_count(pod)
    for container in pod.containers:
        for name, device in devices(container).items():
            amount = device.amount
            if not isinstance(amount, Quantity) or not amount.is_integer:
                continue
            exceeded = _exceeded_limit(
                device.resource, amount, context.options["max_devices"], selected
            )
            if exceeded is None:
                continue
            limit, advice = exceeded
            message = (
                f"{container} asks for {display(f'{name}: {amount.text}')}"
                f"{_value_of_amount_words(amount)}{limit}"
            )
            yield Finding(
                path=container.amount_path(name),
                key=f"count.{name}",
                message=message,
                container=container,
                help=advice,
            )


def _exceeded_limit(
    resource: Resource, amount: Quantity, max_devices: int, selected: DeviceCount | None
) -> tuple[str, str] | None:
    """Return the limit that `amount` of `resource` exceeds, and what to do; else None."""
    if resource.unit != DEVICE_UNIT:
        if 1 <= resource.maximum < amount.value:
            return (
                f"{SHARE_FAULT}{resource.maximum}",
                f"{MOST_ADVICE}{resource.maximum}{CARDS_ADVICE}",
            )
        return None
    if 1 <= max_devices < amount.value:
        limit = f"{NODE_FAULT}{max_devices} devices"
        return limit, _advice(amount, max_devices)
    if selected and resource.sharing == "whole" and selected.max_devices < amount.value:
        return (
            f": a node with {display(selected.label)} has {selected.max_devices}",
            f"ask for at most {selected.max_devices}, or select nodes with more",
        )
    return None


def _advice(amount: Quantity, maximum: int) -> str:
    if amount.suffix:
        return UNIT_ADVICE
    return f"{MOST_ADVICE}{maximum}{SPREAD_ADVICE}"


def _value_of_amount_words(amount: Quantity) -> str:
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

"""The amounts of a share by Tencent's gpu-manager do not fit together.

What it does
------------
Finds, in one container:

- more than 100 `tencent.com/vcuda-core` that are no multiple of 100, which is one card;
- fewer than 100 `tencent.com/vcuda-core` without `tencent.com/vcuda-memory`.

Memory without cores is reported by `share-without-card`.

Why it matters
--------------
The gpu-manager on the node refuses such amounts. The pod is scheduled, fails with
`UnexpectedAdmissionError`, and its controller creates the next one.

References
----------
- https://github.com/tkestack/gpu-manager
- tkestack/gpu-manager, `pkg/services/allocator/nvidia/allocator.go` (`Allocate`, `allocateOne`)
"""

from collections.abc import Mapping

from rules.base.quantity import Quantity
from rules.base.traits import SHARE
from rules.gpu.devices import Device, devices
from rules.rule import Action, Context, Finding, Findings, Pod, define_rule

CORE_RESOURCE, MEMORY_RESOURCE = "tencent.com/vcuda-core", "tencent.com/vcuda-memory"
CORES_PER_CARD = 100
WHOLE_CARDS_FAULT = ", and more than one card must be whole cards"
WHOLE_CARDS_ADVICE = f"write a multiple of {CORES_PER_CARD}, which is one card"
MEMORY_FAULT = f", a part of a card, and for no {MEMORY_RESOURCE}"
MEMORY_ADVICE = f"write {MEMORY_RESOURCE} (1 is 256 MiB) beside it under resources.limits"
END = "the gpu-manager refuses it on the node"


def check(pod: Pod, _context: Context) -> Findings:
    """Yield each number of cores that the gpu-manager refuses."""
    for container in pod.containers:
        fault, advice = _core_fault_and_remedy(devices(container))
        if fault:
            yield Finding(
                path=container.amount_path(CORE_RESOURCE),
                key=f"amounts.{CORE_RESOURCE}",
                message=f"{container} asks for {fault}: {END}",
                container=container,
                help=advice,
            )


def _core_fault_and_remedy(found: Mapping[str, Device]) -> tuple[str, str]:
    """Return the fault of the cores among `found`, and the remedy; empty if there is none."""
    device = found.get(CORE_RESOURCE)
    amount = device.amount if device else None
    if not isinstance(amount, Quantity) or not amount.is_integer or amount.value <= 0:
        return "", ""
    cores = amount.value
    if cores > CORES_PER_CARD and cores % CORES_PER_CARD:
        return f"{CORE_RESOURCE}: {cores}{WHOLE_CARDS_FAULT}", WHOLE_CARDS_ADVICE
    memory = found.get(MEMORY_RESOURCE)
    if cores < CORES_PER_CARD and not (memory and memory.is_requested):
        return f"{CORE_RESOURCE}: {cores}{MEMORY_FAULT}", MEMORY_ADVICE
    return "", ""


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(SHARE,), needs_resources=True)

"""A resource claim asks for more memory than any card has.

What it does
------------
Finds requests for NVIDIA's classes `gpu.nvidia.com` and `mig.nvidia.com` whose
`capacity.requests.memory` is more than the memory of the largest card that is
[known](../vendors/cards.md). It reads amounts, and no selectors in CEL.

Why it matters
--------------
The scheduler looks for one device with so much memory. There is none, so the pod stays Pending, and
no autoscaler can help. Of alternatives it takes another one. Memory of several cards is asked for
by `count`.

References
----------
- https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/#consumable-capacity
- KEP-5075, "DRA: Consumable Capacity"
"""

from rules.base.json_values import as_object, as_text, display
from rules.base.quantity import Quantity, parse
from rules.base.traits import CLAIM_OBJECT
from rules.profile.platforms.cards import LARGEST_MEMORY_GB
from rules.rule import Action, Context, DeviceClaim, Finding, Findings, define_rule

_NVIDIA_CLASSES = frozenset({"gpu.nvidia.com", "mig.nvidia.com"})
_MEMORY_CAPACITY_NAMES = ("memory", "gpu.nvidia.com/memory")
_GIB = 2**30


def check(claim: DeviceClaim, _context: Context) -> Findings:
    """Yield each request for more memory than the largest card has."""
    for request in claim.requests():
        if as_text(request.fields.get("deviceClassName")) not in _NVIDIA_CLASSES:
            continue
        amounts = as_object(as_object(request.fields.get("capacity")).get("requests"))
        for name in _MEMORY_CAPACITY_NAMES:
            amount = parse(amounts[name]) if name in amounts else None
            if isinstance(amount, Quantity) and amount.value > LARGEST_MEMORY_GB * _GIB:
                is_alternative = "firstAvailable" in request.path
                effect = "nobody gets this alternative" if is_alternative else "pods stay Pending"
                yield Finding(
                    path=(*request.path, "capacity", "requests", name),
                    key=f"capacity.{name}.{request.name}",
                    message=f"the request {display(request.name)} asks for "
                    f"{display(str(amounts[name]))} of memory of one device: the largest known "
                    f"card has {LARGEST_MEMORY_GB} GB, so {effect}",
                    help="ask for less, or for several devices by count",
                )


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(CLAIM_OBJECT,))

"""A resource claim asks for more memory than any card has.

What it does
------------
Finds requests for NVIDIA's classes `gpu.nvidia.com` and `mig.nvidia.com` whose
`capacity.requests.memory` is more than the memory of the largest card that is
[known](../vendors/cards.md). It finds selectors, of any class, that nothing passes for the same
reason: `device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("640Gi")) >= 0`, alone or
joined with other conditions by `&&`. Other expressions say nothing to it.

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

from itertools import islice

from rules.base.json_values import Path, as_object, as_text, display
from rules.base.quantity import Quantity, parse
from rules.base.traits import CLAIM_OBJECT
from rules.profile.platforms.cards import LARGEST_MEMORY_GB
from rules.rule import Action, Context, DeviceClaim, Finding, Findings, define_rule

_NVIDIA_CLASSES = frozenset({"gpu.nvidia.com", "mig.nvidia.com"})
_MEMORY_CAPACITY_NAMES = ("memory", "gpu.nvidia.com/memory")
_GIB = 2**30
# Selectors of one object that are read: 32 requests may have 32 each.
_MAX_SELECTORS = 50


def check(claim: DeviceClaim, _context: Context) -> Findings:
    """Yield each request, and each selector, for more memory than the largest card has."""
    for request in claim.requests():
        if as_text(request.fields.get("deviceClassName")) not in _NVIDIA_CLASSES:
            continue
        amounts = as_object(as_object(request.fields.get("capacity")).get("requests"))
        for name in _MEMORY_CAPACITY_NAMES:
            amount = parse(amounts[name]) if name in amounts else None
            if isinstance(amount, Quantity) and amount.value > LARGEST_MEMORY_GB * _GIB:
                yield _finding(
                    (*request.path, "capacity", "requests", name),
                    f"capacity.{name}.{request.name}",
                    f"the request {display(request.name)}",
                    str(amounts[name]),
                )
    yield from _check_selectors(claim)


def _check_selectors(claim: DeviceClaim) -> Findings:
    from rules.placement.memory_selectors import least_memory  # noqa: PLC0415  # rarely needed

    for selector in islice(claim.selectors(), _MAX_SELECTORS):
        text, amount = least_memory(selector.expression)
        if amount > LARGEST_MEMORY_GB * _GIB:
            request = display(selector.name.rpartition(".")[0])
            key = f"selectors.{selector.name}"
            yield _finding(selector.path, key, f"a selector of the request {request}", text)


def _finding(path: Path, key: str, what: str, amount: str) -> Finding:
    is_alternative = "firstAvailable" in path
    effect = "nobody gets this alternative" if is_alternative else "pods stay Pending"
    return Finding(
        path=path,
        key=key,
        message=f"{what} asks for {display(amount)} of memory of one device: the largest known "
        f"card has {LARGEST_MEMORY_GB} GB, so {effect}",
        help="ask for less, or for several devices by count",
    )


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(CLAIM_OBJECT,))

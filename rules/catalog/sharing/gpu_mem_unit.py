"""Shared GPU memory is written in bytes instead of GiB.

What it does
------------
Finds amounts of `aliyun.com/gpu-mem` from a million up, which only bytes can mean (`10G`,
`2Gi`), texts that are no quantities (`10GiB`), and in files also smaller amounts with a unit
(`16k`).

Why it matters
--------------
The number counts GiB, or MiB where the plugin is set so. `10G` means ten thousand million of
them: no card has that, and the pod waits forever. An amount such as `10GiB` is refused.

Fix safety
----------
`10G` and `10Gi` become `10` only if the policy says `fix: true`, because a cluster may count
in MiB, where 10 GiB are 10240.

References
----------
- https://github.com/AliyunContainerService/gpushare-scheduler-extender/issues/11
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.container import Container
from rules.context import Context
from rules.document import put
from rules.pod import Pod
from rules.quantity import Malformed, Placeholder, Quantity, parse
from rules.reading import shown
from rules.rule import Action, Finding, Fix, Rule
from rules.traits import SHARE

GPU_MEM = "aliyun.com/gpu-mem"
BYTES_FROM = 10**6
GIGA = (2**30, 10**9)
BYTE_UNITS = frozenset("kMGTPE") | frozenset(f"{letter}i" for letter in "KMGTPE")


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield each amount that is written in bytes; the request counts only without a limit."""
    if pod.layout.gpu_field:
        return
    for container in pod.containers:
        if GPU_MEM in container.limits:
            yield from _judged(container, "limits", context)
        elif GPU_MEM in container.requests:
            yield from _judged(container, "requests", context)


def _judged(container: Container, field: str, context: Context) -> Iterator[Finding]:
    amount = parse(getattr(container, field)[GPU_MEM])
    fault = _fault(amount, context)
    if fault is None:
        return
    message = f"{container} sets {shown(f'{GPU_MEM}: {amount.text}')} in {field}, {fault}"
    advice = f"write the number of GiB without a unit, such as {GPU_MEM}: 10"
    path = (*container.resources_path, field, GPU_MEM)
    # What is no quantity is told here instead of by the rule about fractions: same key.
    key = f"{field}.{GPU_MEM}" if isinstance(amount, Malformed) else f"unit.{GPU_MEM}"
    small = isinstance(amount, Quantity) and amount.value < BYTES_FROM
    action = Action.WARN if small else Action.DENY
    yield Finding(path, key, message, container, advice, _in_gib(container, amount), action)


def _fault(amount: Quantity | Placeholder | Malformed, context: Context) -> str | None:
    if isinstance(amount, Malformed):
        return f"which is not a quantity ({amount.why}): the API server refuses it"
    if not isinstance(amount, Quantity) or not amount.is_integer:
        return None
    if amount.value >= BYTES_FROM:
        return f"which is {amount.value} GiB: it looks like bytes"
    # At admission the API server has written 16000 as 16k itself.
    if context.operation is None and amount.suffix in BYTE_UNITS:
        return f"which is {amount.value} GiB or MiB: the unit belongs to a number of bytes"
    return None


def _in_gib(container: Container, amount: object) -> Fix | None:
    if not isinstance(amount, Quantity) or amount.value < BYTES_FROM:
        return None
    whole = next((amount.value // unit for unit in GIGA if amount.value % unit == 0), None)
    if whole is None or whole >= BYTES_FROM:
        return None
    fields = {"limits": container.limits, "requests": container.requests}
    alike = [f for f in fields if GPU_MEM in fields[f] and parse(fields[f][GPU_MEM]) == amount]
    edits = tuple(put((*container.resources_path, field, GPU_MEM), whole) for field in alike)
    return Fix(f"write {whole} for {GPU_MEM}", edits)


RULE = Rule(
    name="gpu-mem-unit",
    subject=Pod,
    action=Action.DENY,
    since="0.1",
    summary="shared GPU memory is written in bytes instead of GiB",
    check=check,
    needs=(SHARE,),
    instead_of=("fractional-gpu",),
)

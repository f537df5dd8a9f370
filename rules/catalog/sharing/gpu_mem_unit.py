"""Shared GPU memory is written in bytes instead of GiB.

What it does
------------
Finds amounts of `aliyun.com/gpu-mem` from a million up, which can only be meant as bytes (`10G`,
`2Gi`), and texts that are not quantities (`10GiB`). In files it also warns about smaller amounts
with a unit (`16k`).

Why it matters
--------------
The number counts GiB, or MiB if the plugin is configured so. `10G` means ten thousand million of
them: no card has that much, and the pod waits forever. The API server refuses an amount such as
`10GiB`.

Fix safety
----------
The fix changes `10G` and `10Gi` to `10` only if the policy says `fix: true`, because a cluster
may count in MiB, where 10 GiB are 10240.

References
----------
- https://github.com/AliyunContainerService/gpushare-scheduler-extender/issues/11
"""

import re

from rules.base.json_values import display
from rules.base.quantity import Malformed, Placeholder, Quantity, parse
from rules.base.traits import SHARE
from rules.gpu.amounts import rewrite_edits
from rules.placement.node_labels import GPU_MEM
from rules.rule import Action, Container, Context, Finding, Findings, Fix, Pod, define_rule

ADVICE = "write the number of GiB without a unit"
LEAST_BYTES = 10**6
BYTES_PER_GIGABYTE = (2**30, 10**9)
_WRITTEN_GIB_PATTERN = r"(?ai)\s*([0-9]{1,6})\s*gi?b?\s*"
BYTE_UNITS = frozenset("kMGTPE") | frozenset(f"{letter}i" for letter in "KMGTPE")


def check(pod: Pod, context: Context) -> Findings:
    """Yield each amount that is written in bytes; a request counts only without a limit."""
    for container in pod.containers:
        if GPU_MEM in container.limits:
            yield from _findings_of_amount(container, "limits", context)
        elif GPU_MEM in container.requests:
            yield from _findings_of_amount(container, "requests", context)


def _findings_of_amount(container: Container, field: str, context: Context) -> Findings:
    amount = parse(getattr(container, field)[GPU_MEM])
    fault = _fault(amount, context)
    if fault is None:
        return
    advice = ADVICE
    if meant := _meant_gib(amount):
        advice += f": {GPU_MEM}: {meant}"
    # `fractional-gpu` uses the same key for a text, so this finding supersedes that one.
    key = f"{field}.{GPU_MEM}" if isinstance(amount, Malformed) else f"unit.{GPU_MEM}"
    small = isinstance(amount, Quantity) and amount.value < LEAST_BYTES
    yield Finding(
        path=(*container.resources_path, field, GPU_MEM),
        key=key,
        message=f"{container} sets {display(f'{GPU_MEM}: {amount.text}')} in {field}, {fault}",
        container=container,
        help=advice,
        fix=_fix_in_gib(container, amount),
        action=Action.WARN if small else Action.DENY,
    )


def _fault(amount: Quantity | Placeholder | Malformed, context: Context) -> str | None:
    if isinstance(amount, Malformed):
        return f"which is not a quantity ({amount.why}): the API server refuses it"
    if not isinstance(amount, Quantity) or not amount.is_integer:
        return None
    if amount.value >= LEAST_BYTES:
        return f"which is {amount.value} GiB: it looks like bytes"
    # At admission the API server has rewritten a plain 16000 as 16k.
    if context.operation is None and amount.suffix in BYTE_UNITS:
        return f"which is {amount.value} GiB or MiB: the unit belongs to a number of bytes"
    return None


def _meant_gib(amount: Quantity | Placeholder | Malformed) -> int:
    """The number of GiB that was meant, 0 if that cannot be said."""
    if isinstance(amount, Malformed):
        written = re.fullmatch(_WRITTEN_GIB_PATTERN, amount.text)
        return int(written[1]) if written else 0
    if not isinstance(amount, Quantity) or amount.value < LEAST_BYTES:
        return 0
    exact = next(
        (amount.value // unit for unit in BYTES_PER_GIGABYTE if amount.value % unit == 0), None
    )
    if exact is None:  # a plain number may be kilobytes as well
        exact = -(-amount.value // BYTES_PER_GIGABYTE[0]) if amount.suffix in BYTE_UNITS else 0
    return exact if exact < LEAST_BYTES else 0


def _fix_in_gib(container: Container, amount: object) -> Fix | None:
    if not isinstance(amount, Quantity) or amount.value < LEAST_BYTES:
        return None
    whole = next(
        (amount.value // unit for unit in BYTES_PER_GIGABYTE if amount.value % unit == 0), None
    )
    if whole is None or whole >= LEAST_BYTES:
        return None
    edits = rewrite_edits(container, GPU_MEM, amount, whole)
    return Fix(f"write {whole} for {GPU_MEM}", edits)


RULE = define_rule(
    check,
    action=Action.DENY,
    since="0.1",
    needs=(SHARE,),
    needs_resources=True,
    supersedes=("fractional-gpu",),
)

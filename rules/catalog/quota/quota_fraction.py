"""A quota limits a device to a number that is not whole.

What it does
------------
Finds keys `requests.<extended resource>` in a ResourceQuota's `spec.hard` whose value is a
fraction, negative, or no quantity.

Why it matters
--------------
Devices are counted whole, and the API server refuses a quota of half a GPU. `3.9999` passes,
because the API server rounds up before it looks, and means four GPUs.

References
----------
- https://kubernetes.io/docs/concepts/policy/resource-quotas/#resource-quota-for-extended-resources
- Kubernetes, `pkg/apis/core/validation/validation.go`
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.context import Context
from rules.pod import Quota
from rules.quantity import not_whole, parse
from rules.reading import shown
from rules.rule import Action, Finding, Rule

REQUESTS = "requests."
NATIVE = "kubernetes.io/"


def check(quota: Quota, _context: Context) -> Iterator[Finding]:
    """Yield each limit of an extended resource that is no whole number."""
    for key, value in quota.hard.items():
        if not key.startswith(REQUESTS) or "/" not in key or NATIVE in key:
            continue
        amount = parse(value)
        if fault := not_whole(amount):
            message = f"the quota sets {shown(f'{key}: {amount.text}')}, {fault}"
            advice = "write a whole number of devices"
            yield Finding((*quota.path, key), f"hard.{key}", message, help=advice)


RULE = Rule(
    name="quota-fraction",
    subject=Quota,
    action=Action.WARN,
    since="0.1",
    summary="a quota limits a device to a number that is not whole",
    check=check,
)

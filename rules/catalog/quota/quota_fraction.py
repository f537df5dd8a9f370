"""A quota limits a device to a number that is not whole.

What it does
------------
Finds keys `requests.<extended resource>` in a ResourceQuota's `spec.hard` whose value is a
fraction, negative, or not a quantity.

Why it matters
--------------
Devices are counted whole. The API server accepts a quota of half a GPU, and no pod fits into it;
of 1.5 one can be used. `3.9999` becomes four, because the API server rounds up to a thousandth
before it stores the number. It refuses a value that is negative or not a quantity.

References
----------
- https://kubernetes.io/docs/concepts/policy/resource-quotas/#resource-quota-for-extended-resources
- Kubernetes, `pkg/apis/core/validation/validation.go`
"""

from rules.base.json_values import display
from rules.base.quantity import Malformed, Placeholder, Quantity, invalid_count_reason, parse
from rules.base.traits import QUOTA
from rules.objects.kubernetes_objects import REQUESTS_PREFIX
from rules.rule import Action, Context, Finding, Findings, Quota, define_rule

NATIVE_DOMAIN = "kubernetes.io/"
NANO_OF_ONE = 10**9


def check(quota: Quota, _context: Context) -> Findings:
    """Yield each limit of an extended resource that is not a whole number."""
    for key, value in quota.hard.items():
        if not key.startswith(REQUESTS_PREFIX) or "/" not in key or NATIVE_DOMAIN in key:
            continue
        amount = parse(value)
        if fault := _fault(amount):
            message = f"the quota sets {display(f'{key}: {amount.text}')}, {fault}"
            advice = "write a whole number of devices"
            is_bad = not isinstance(amount, Quantity) or amount.nano < 0
            refused = is_bad and quota.is_resource_quota
            path = (*quota.path, key)
            yield Finding(
                path=path, key=f"amount.{key}", message=message, help=advice, api_refuses=refused
            )


def _fault(amount: Quantity | Placeholder | Malformed) -> str | None:
    if not isinstance(amount, Quantity) or amount.nano < 0 or amount.is_accepted_as_integer:
        return invalid_count_reason(amount)
    usable = amount.nano // NANO_OF_ONE
    return f"a fraction, of which {usable} can be used: devices are counted whole"


RULE = define_rule(check, action=Action.WARN, since="0.1", needs=(QUOTA,))

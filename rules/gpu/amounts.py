"""Fixes of the amount of one resource, in the limits and the requests of a container."""

from __future__ import annotations

from rules.base.json_values import Edit, put
from rules.base.quantity import Quantity, parse
from rules.finding import Fix
from rules.gpu.devices import Amount
from rules.objects.container import Container


def rewrite_edits(
    container: Container, name: str, parsed: Quantity, value: int
) -> tuple[Edit, ...]:
    """Edits that set the resource `name` to `value` in limits and requests where it is `parsed`."""
    fields = {"limits": container.limits, "requests": container.requests}
    return tuple(
        put((*container.resources_path, field, name), value)
        for field, amounts in fields.items()
        if name in amounts and parse(amounts[name]) == parsed
    )


def round_up_fix(
    container: Container, name: str, field: str, *, limit: Amount, request: Amount, step: int = 1
) -> Fix | None:
    """A fix that rounds up the limit of `name` and sets the request to the same number.

    The number is a multiple of `step`.

    `field` is the field that the finding is about: `limits` or `requests`. For `limits` the request
    is changed only if it equals the limit; for `requests` only the request is changed. None if the
    limit is not a positive number that Kubernetes can count.
    """
    if not isinstance(limit, Quantity) or limit.nano <= 0 or limit.overflows:
        return None
    same = isinstance(request, Quantity) and request.equal_to(limit)
    fields = ("limits", "requests") if field == "limits" and same else (field,)
    rounded = -(-limit.value // step) * step
    edits = tuple(put((*container.resources_path, f, name), rounded) for f in fields)
    return Fix(f"round {name} up to {rounded}", edits)

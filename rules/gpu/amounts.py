"""Fixes of the amount of one resource, in a container's limits and requests alike."""

from __future__ import annotations

from rules.base.json_patch import Edit, put
from rules.base.quantity import Quantity, parse
from rules.finding import Fix
from rules.gpu.devices import Amount
from rules.objects.container import Container


def rewrite_edits(
    container: Container, name: str, parsed: Quantity, value: int
) -> tuple[Edit, ...]:
    """Edits that write `value` for the resource `name` wherever its amount is `parsed` now."""
    fields = {"limits": container.limits, "requests": container.requests}
    return tuple(
        put((*container.resources_path, field, name), value)
        for field, amounts in fields.items()
        if name in amounts and parse(amounts[name]) == parsed
    )


def round_up_fix(
    container: Container, name: str, field: str, *, limit: Amount, request: Amount
) -> Fix | None:
    """A fix that rounds up the limit of `name` and sets the request to the same number.

    `field` is where the finding is: `limits` or `requests`. In `requests` only the request is
    rewritten. None if the limit is no positive number that Kubernetes can count.
    """
    if not isinstance(limit, Quantity) or limit.nano <= 0 or limit.overflows:
        return None
    same = isinstance(request, Quantity) and request.equal_to(limit)
    fields = ("limits", "requests") if field == "limits" and same else (field,)
    edits = tuple(put((*container.resources_path, f, name), limit.value) for f in fields)
    return Fix(f"round {name} up to {limit.value}", edits)

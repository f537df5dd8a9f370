"""Amounts of one resource: which the API server refuses, and how to fix them."""

from collections.abc import Mapping
from typing import Any

from rules.base.json_values import Edit, put
from rules.base.quantity import Malformed, Quantity, parse
from rules.finding import Fix
from rules.gpu.devices import Amount
from rules.objects.container import Container


def rewrite_edits(
    container: Container, name: str, parsed: Quantity, value: int
) -> tuple[Edit, ...]:
    """Edits that set the resource `name` to `value` in limits and requests where it is `parsed`."""
    fields = {"limits": container.limits, "requests": container.requests}
    return tuple(
        put((*container.resources_path, field, name), _in_style_of(amounts[name], value))
        for field, amounts in fields.items()
        if name in amounts and parse(amounts[name]) == parsed
    )


def _in_style_of(written: object, value: int) -> int | str:
    """`value`, as a text if `written` is a text of digits, which YAML has in quotes only."""
    is_quoted = isinstance(written, str) and written.replace(".", "", 1).isdecimal()
    return str(value) if is_quoted else value


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
    written = {"limits": container.limits, "requests": container.requests}
    edits = tuple(
        put((*container.resources_path, f, name), _in_style_of(written[f].get(name), rounded))
        for f in fields
    )
    return Fix(f"round {name} up to {rounded}", edits)


# The API server's own validation of amounts, before it calls validating webhooks. Source:
# Kubernetes, `pkg/apis/core/validation/validation.go`; the tests compare with a real API server.


def api_refuses_amounts(name: str, limits: Mapping[str, Any], requests: Mapping[str, Any]) -> bool:
    """Return whether the API server refuses a container for its amounts of the device `name`.

    `limits` and `requests` are the container's, as written. The name must have a domain. The
    amounts must be whole after rounding up to thousandths. A request needs a limit that equals it.
    """
    if api_refuses_name(name):
        return True
    quantities = [parse(amounts[name]) for amounts in (limits, requests) if name in amounts]
    if any(api_refuses_count(amount) for amount in quantities):
        return True
    if name not in requests:
        return False
    rounded = {amount.thousandths for amount in quantities if isinstance(amount, Quantity)}
    return name not in limits or len(rounded) > 1


def api_refuses_name(name: str) -> bool:
    """Return whether the API server refuses a device named `name` in a container or LimitRange."""
    return "/" not in name or name.startswith("requests.")


def api_refuses_count(amount: object) -> bool:
    """Return whether the API server refuses `amount`, a result of `parse`, as a number of devices.

    False for a placeholder: its value is not known yet.
    """
    if isinstance(amount, Quantity):
        return amount.nano < 0 or not amount.is_accepted_as_integer
    return isinstance(amount, Malformed)

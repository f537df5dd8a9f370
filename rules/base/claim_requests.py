"""Read the requests for devices in claims, of every version of the API."""

from collections.abc import Mapping
from typing import Any

from rules.base.json_values import as_object, as_objects


def alternatives_of(request: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The alternatives of a request of a claim, in the order in which the scheduler tries them.

    A request without any is the only one: before version v1, what is in `exactly` was in the
    request itself.
    """
    found = [alternative for _, alternative in as_objects(request.get("firstAvailable"))]
    return found or [as_object(request.get("exactly")) or request]

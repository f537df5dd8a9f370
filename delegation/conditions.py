"""The condition `Accepted` of a GpuException."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

from cluster.protocols import Object
from policies.gpu_exceptions import Acceptance
from rules.base.json_access import as_object, as_objects

ACCEPTED = "Accepted"


def with_condition(
    raw: Mapping[str, Any], found: Acceptance, now: datetime.datetime
) -> list[Object] | None:
    """The conditions that the object should have; None if it has them.

    Conditions of other types stay. The time of the last transition changes only with the status.
    """
    present = [dict(each) for _, each in as_objects(as_object(raw.get("status")).get("conditions"))]
    others = [each for each in present if each.get("type") != ACCEPTED]
    before = next((each for each in present if each.get("type") == ACCEPTED), {})
    status = "True" if found.accepted else "False"
    since = before.get("lastTransitionTime") if before.get("status") == status else None
    condition = {
        "type": ACCEPTED,
        "status": status,
        "observedGeneration": as_object(raw.get("metadata")).get("generation", 0),
        "lastTransitionTime": since or now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "reason": found.reason.value,
        "message": found.message,
    }
    return None if condition == before else [*others, condition]

"""What the files that controllers write for the webhook have in common: JSON and a time."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from rules.base.json_access import as_object, as_text


class CheckedContent(NamedTuple):
    """The object in a file, and when a controller last compared it with the cluster, in UTC."""

    checked_at: datetime.datetime
    raw: Mapping[str, Any]


def parse_checked(content: bytes, most: int) -> CheckedContent:
    """The object in `content`, which may have `most` bytes. ValueError says what is wrong."""
    if len(content) > most:
        raise ValueError(f"it has more than {most:,} bytes")
    try:
        raw = as_object(json.loads(content))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is no JSON: {error}") from error
    try:
        checked = datetime.datetime.fromisoformat(as_text(raw.get("checkedAt")))
    except ValueError as error:
        raise ValueError("checkedAt is no time") from error
    if checked.tzinfo is None:
        raise ValueError("checkedAt has no time zone")
    return CheckedContent(checked, raw)


def format_time(checked_at: datetime.datetime) -> str:
    """The time as files have it under `checkedAt`."""
    return checked_at.astimezone(datetime.UTC).isoformat(timespec="seconds")

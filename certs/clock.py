"""The time of day."""

from __future__ import annotations

import datetime


def utc_now() -> datetime.datetime:
    """The time now, aware, in UTC."""
    return datetime.datetime.now(tz=datetime.UTC)

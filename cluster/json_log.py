"""The log of processes that run in a cluster: JSON lines with the fields of the webhook's log."""

from __future__ import annotations

import datetime
import sys

import structlog
from structlog.typing import EventDict


def log_as_json() -> None:
    """Log JSON lines to standard error: `time`, `level` and `event`, then all other fields."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            _order_fields,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
    )


def _order_fields(_logger: object, _method: str, entry: EventDict) -> EventDict:
    now = datetime.datetime.now(tz=datetime.UTC).isoformat(timespec="milliseconds")
    return {"time": now, "level": entry.pop("level"), "event": entry.pop("event"), **entry}

"""The cluster of `gpuward console --demo`, with times that are relative to now."""

from __future__ import annotations

import datetime
import io
import os
import re

from cluster.source.files import FileSource

DEMO = os.path.join(os.path.dirname(os.path.abspath(__file__)), "demo.yaml")
_LOG = f"{DEMO.removesuffix('.yaml')}.log"
_WRITTEN_AT = datetime.datetime(2026, 11, 26, 10, 5, tzinfo=datetime.UTC)
"""When somebody looks at the files as they are written."""
_TIME = re.compile(r"\b(\d{4}-\d\d-\d\d)(?:(T\d\d:\d\d:\d\d(?:\.\d+)?)(Z|\+00:00))?")
STANDARD_INPUT = "-"


def demo_source(now: datetime.datetime | None = None) -> FileSource:
    """The objects of the cluster. Raises SourceError."""
    text = _read(DEMO, now)
    return FileSource([STANDARD_INPUT], io.BytesIO(text.encode()))


def demo_log(now: datetime.datetime | None = None) -> str:
    """The log of a pod of its webhook."""
    return _read(_LOG, now)


def _read(file: str, now: datetime.datetime | None) -> str:
    with open(file, encoding="utf-8") as opened:
        return moved(opened.read(), now or datetime.datetime.now(tz=datetime.UTC))


def moved(text: str, now: datetime.datetime) -> str:
    """Return `text` with its times as long before or after `now` as they were when it was written.

    Days without a time move by whole days.
    """
    by = now.astimezone(datetime.UTC).replace(microsecond=0) - _WRITTEN_AT
    days = now.astimezone(datetime.UTC).date() - _WRITTEN_AT.date()

    def move(found: re.Match[str]) -> str:
        day, time, zone = found.groups()
        if time is None:
            return (datetime.date.fromisoformat(day) + days).isoformat()
        then = datetime.datetime.fromisoformat(f"{day}{time}+00:00") + by
        digits = "milliseconds" if "." in time else "seconds"
        return then.replace(tzinfo=None).isoformat(timespec=digits) + zone

    return _TIME.sub(move, text)

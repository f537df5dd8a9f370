"""The time in which objects were created that an audit is about."""

from __future__ import annotations

import argparse
import datetime
import re
from typing import NamedTuple

from cluster.source.objects import Object
from rules.base.json_values import as_object, as_text


class Period(NamedTuple):
    """The time in which objects were created: from `first` to `last`, both included."""

    first: datetime.datetime | None = None
    last: datetime.datetime | None = None

    def contains(self, raw: Object) -> bool:
        """Return whether an object was created in the period; also if it does not say when."""
        if self == ALWAYS:
            return True
        text = as_text(as_object(raw.get("metadata")).get("creationTimestamp"))
        try:
            created = _with_zone(datetime.datetime.fromisoformat(text))
        except ValueError:
            return True
        # API servers write whole seconds.
        is_late_enough = self.first is None or created >= self.first.replace(microsecond=0)
        return is_late_enough and (self.last is None or created <= self.last)


ALWAYS = Period()
_DURATION = re.compile(r"(?:([0-9]{1,6})h)?(?:([0-9]{1,6})m)?(?:([0-9]{1,6})s)?")


def duration(text: str) -> datetime.timedelta:
    """The time that `text` says, as kubectl reads it: `1h30m`; for argparse."""
    if not text or not (match := _DURATION.fullmatch(text)):
        raise argparse.ArgumentTypeError(f"{text}: expected hours, minutes and seconds: 1h30m, 45s")
    hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return datetime.timedelta(hours=hours, minutes=minutes, seconds=seconds)


def instant(text: str) -> datetime.datetime:
    """The time that `text` says, in UTC if it names no zone; for argparse."""
    try:
        return _with_zone(datetime.datetime.fromisoformat(text))
    except ValueError:
        why = f"{text}: expected a time: 2031-03-01T02:10:00Z"
        raise argparse.ArgumentTypeError(why) from None


def _with_zone(found: datetime.datetime) -> datetime.datetime:
    return found if found.tzinfo else found.replace(tzinfo=datetime.UTC)

"""The time at which a certificate expires or should have been replaced, and the time of day."""

from __future__ import annotations

import datetime

# As the alert GpuwardCertificateExpiresSoon: users who renew certificates by themselves do so when
# a third of the lifetime is left.
_SOON_PERIOD = datetime.timedelta(days=14)
_SOON_SHARE_OF_LIFETIME = 14 / 90
_SECONDS_BY_UNIT = (("days", 86_400), ("hours", 3600), ("minutes", 60), ("seconds", 1))


def expires_soon(start: datetime.datetime, end: datetime.datetime, now: datetime.datetime) -> bool:
    """Return whether a certificate valid from `start` until `end` should have been replaced.

    It is in its last 14 days, or the last 14 ninetieths of a lifetime of less than 90 days.
    """
    return end - now < min(_SOON_PERIOD, (end - start) * _SOON_SHARE_OF_LIFETIME)


def expiry_text(end: datetime.datetime, now: datetime.datetime) -> str:
    """Return when a certificate valid until `end` expires, as the end of a sentence about it."""
    seconds = int((end - now).total_seconds())
    if seconds < 0:
        return f"has expired at {end:%Y-%m-%d %H:%M} UTC"
    # At least two of a unit, so that it is never one.
    unit, size = next(
        ((u, s) for u, s in _SECONDS_BY_UNIT if seconds >= 2 * s), _SECONDS_BY_UNIT[-1]
    )
    return f"expires in {seconds // size} {unit}, at {end:%Y-%m-%d %H:%M} UTC"


def utc_now() -> datetime.datetime:
    """The time now, aware, in UTC."""
    return datetime.datetime.now(tz=datetime.UTC)

"""The time at which a certificate should have been replaced, in figures and in words."""

from __future__ import annotations

import datetime

import pytest

from certs.validity import expires_soon, expiry_text

START = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)
HOUR = datetime.timedelta(hours=1)


@pytest.mark.parametrize(
    ("lifetime", "left", "soon"),
    [
        (365 * DAY, 14 * DAY, False),
        (365 * DAY, 14 * DAY - HOUR, True),
        (90 * DAY, 14 * DAY, False),
        (90 * DAY, 13 * DAY, True),
        # One that lives a day is renewed when eight hours are left.
        (DAY, 4 * HOUR, False),
        (DAY, 3 * HOUR, True),
        (DAY, -HOUR, True),
    ],
)
def test_it_is_late_when_those_who_renew_in_time_have_renewed(
    lifetime: datetime.timedelta, left: datetime.timedelta, *, soon: bool
) -> None:
    end = START + lifetime
    assert expires_soon(START, end, end - left) is soon


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (13.5 * 86_400, "expires in 13 days, at 2030-01-01 00:00 UTC"),
        (2 * 86_400, "expires in 2 days, at 2030-01-01 00:00 UTC"),
        (2 * 86_400 - 1, "expires in 47 hours, at 2030-01-01 00:00 UTC"),
        (7199, "expires in 119 minutes, at 2030-01-01 00:00 UTC"),
        (119, "expires in 119 seconds, at 2030-01-01 00:00 UTC"),
        (0, "expires in 0 seconds, at 2030-01-01 00:00 UTC"),
        (-3600, "has expired at 2030-01-01 00:00 UTC"),
    ],
)
def test_the_time_that_is_left(seconds: float, text: str) -> None:
    assert expiry_text(START, START - datetime.timedelta(seconds=seconds)) == text

"""Marks in the body of a review, for what differs from one request to the next.

A replica of a pod has another uid, another name of the token's volume, and another time in its
managed fields. A new release has another tag in its images as well, and a new template other names
of its containers. Every value is as long as its mark. `replicas.lua` does for wrk what `varied`
does here.
"""

from __future__ import annotations

import string
from typing import NamedTuple

UID = "705ab4f5-6393-11e8-b7cc-uuuuuuuuuuuu"
VOLUME_SUFFIX = "ttttt"  # of the volume with the token
TIME = "10:mm:ssZ"
RELEASE = "rrrrrrrr"
TEMPLATE = "nnnnnnnn"
_ENDLESS = 1_000_000_000  # more than any benchmark sends


class Mix(NamedTuple):
    """How many requests come with one new template, and how many with one new release.

    0 for each template stands for requests that are all the same.
    """

    name: str
    requests_per_template: int
    requests_per_release: int = _ENDLESS


SAME = Mix("one body", 0)
REPLICAS = Mix("replicas", _ENDLESS)
NEW_RELEASES = Mix("new releases", _ENDLESS, 1)
NEW_IN_TEN, NEW_IN_THREE, ALL_NEW = Mix("1 new in 10", 10), Mix("1 new in 3", 3), Mix("all new", 1)
MIXES = (SAME, REPLICAS, NEW_RELEASES, NEW_IN_TEN, NEW_IN_THREE, ALL_NEW)


def varied(body: bytes, number: int, template: int, release: int) -> bytes:
    """The request with this `number`, of a pod with the template and release of these numbers."""
    minutes, seconds = divmod(number % 3600, 60)
    values = (
        (UID, f"{UID[:24]}{number:012}"),
        (f"access-{VOLUME_SUFFIX}", f"access-{_letters(number)}"),
        (TIME, f"10:{minutes:02}:{seconds:02}Z"),
        (RELEASE, f"{release:08}"),
        (TEMPLATE, f"{template:08}"),
    )
    for mark, value in values:
        body = body.replace(mark.encode(), value.encode())
    return body


def _letters(number: int) -> str:
    letters = ""
    for _ in VOLUME_SUFFIX:
        number, rest = divmod(number, 26)
        letters += string.ascii_lowercase[rest]
    return letters

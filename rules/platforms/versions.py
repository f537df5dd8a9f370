"""Versions as nodes, images and charts spell them, and how they compare.

The same version is written `1.26.3`, `v1.26.3`, `containerd://1.26.3` or `1.26.3-eks-1`. ACK's
builds of the scheduler have a build number behind a word: `v1.26.3-aliyun-4.1-a520c096`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_MAX_LENGTH = 200
_VERSION = re.compile(
    r"(?:[a-z-]{1,20}://)?v?"
    r"(?P<numbers>[0-9]{1,6}(?:\.[0-9]{1,6}){0,5})"
    r"(?P<preview>[-.~]?(?:rc|beta|alpha|preview)[-.0-9]{0,10})?"
    r"(?:-(?P<word>aliyun|ack)[-.](?P<build>[0-9]{1,6}(?:\.[0-9]{1,6}){0,3}))?"
    r"(?:[-+~_. ].*)?",
    re.ASCII | re.IGNORECASE | re.DOTALL,
)


class Version(NamedTuple):
    """A version: its numbers, whether it precedes its release, and the build of a vendor."""

    numbers: tuple[int, ...]
    is_preview: bool = False
    vendor: str = ""
    build: tuple[int, ...] = ()


def parse_version(text: str) -> Version | None:
    """The version that `text` states, or None if it states none."""
    found = _VERSION.fullmatch(text.strip()) if len(text) <= _MAX_LENGTH else None
    if found is None:
        return None
    build = found["build"] or ""
    return Version(
        _numbers(found["numbers"]),
        bool(found["preview"]),
        (found["word"] or "").lower(),
        _numbers(build) if build else (),
    )


def compare(version: Version, other: Version) -> int | None:
    """-1, 0 or 1 as `version` is older than `other`, equal to it, or newer; None if unknown.

    Not known are versions with too few numbers (`1.4` beside `1.4.3`), and builds of the same
    version that are counted differently.
    """
    order = _compare_numbers(version.numbers, other.numbers)
    if other.build and not version.build:
        return None  # not a build of the vendor's
    if order != 0:
        return order
    if other.build:
        if version.vendor != other.vendor:
            return None
        return _compare_numbers(version.build, other.build)
    if version.is_preview != other.is_preview:
        return -1 if version.is_preview else 1
    return 0


def _compare_numbers(one: tuple[int, ...], other: tuple[int, ...]) -> int | None:
    common = min(len(one), len(other))
    if one[:common] != other[:common]:
        return -1 if one[:common] < other[:common] else 1
    return None if len(one) < len(other) and any(other[common:]) else 0


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split("."))

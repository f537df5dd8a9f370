"""JSON in and out: the standard library's, or orjson where it is installed.

Both give the same values for whatever an API server sends; the tests hold them to it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple


class Codec(NamedTuple):
    """`loads` raises ValueError or RecursionError for what is no JSON text in UTF-8."""

    name: str
    loads: Callable[[bytes], Any]
    dumps: Callable[[Any], bytes]


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


_decoder = json.JSONDecoder(parse_constant=_refuse)
_encoder = json.JSONEncoder(separators=(",", ":"))

STANDARD = Codec(
    "json",
    lambda data: _decoder.decode(data.decode()),
    lambda value: _encoder.encode(value).encode(),
)


# An API server takes 10,000 levels, which a tenant can write into managedFields; what stands
# around them in a review are a few more. Reading one takes less than 200 bytes of stack.
_DEEPEST = 12_000


def read_deep(data: bytes) -> Any:
    """What is in `data`, nested as deeply as an API server allows; errors as those of `loads`."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(_DEEPEST)
    try:
        return STANDARD.loads(data)
    finally:
        sys.setrecursionlimit(before)


def quickest() -> Codec:
    """Orjson's if it is there, else the standard library's."""
    try:
        import orjson  # noqa: PLC0415  # an extra
    except ImportError:
        return STANDARD

    def dumps(value: Any) -> bytes:
        try:
            return orjson.dumps(value)
        except TypeError:  # half a surrogate pair, which only the standard library writes
            return STANDARD.dumps(value)

    return Codec("orjson", orjson.loads, dumps)


CODEC = quickest()

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
# Two calls a level, and none of them on the stack of C.
_DEEPEST_IN_PYTHON = 40_000


class _PythonDecoder(json.JSONDecoder):
    """The standard library's decoder without its parts in C.

    Those stop at fewer than 10,000 levels from Python 3.12 on, whatever the recursion limit.
    """

    def __init__(self) -> None:
        super().__init__(parse_constant=_refuse)
        self.parse_object = json.decoder.JSONObject  # type: ignore[attr-defined]
        self.parse_array = json.decoder.JSONArray  # type: ignore[attr-defined]
        self.scan_once = json.scanner.py_make_scanner(self)  # type: ignore[attr-defined]


_python_decoder = _PythonDecoder()


def read_deep(data: bytes) -> Any:
    """What is in `data`, nested as deeply as an API server allows; errors as those of `loads`."""
    try:
        return _within(_DEEPEST, STANDARD.loads, data)
    except RecursionError:
        return _within(_DEEPEST_IN_PYTHON, lambda data: _python_decoder.decode(data.decode()), data)


def _within(limit: int, loads: Callable[[bytes], Any], data: bytes) -> Any:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(limit)
    try:
        return loads(data)
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

"""Read and write JSON with orjson where it is installed, else with the standard library.

Both give the same values for whatever an API server sends; tests compare them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple


class Codec(NamedTuple):
    """`loads` raises ValueError or RecursionError if the data is no JSON text in UTF-8."""

    name: str
    loads: Callable[[bytes], Any]
    dumps: Callable[[Any], bytes]


def _refuse_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


_decoder = json.JSONDecoder(parse_constant=_refuse_constant)
_encoder = json.JSONEncoder(separators=(",", ":"))

STANDARD = Codec(
    "json",
    lambda data: _decoder.decode(data.decode()),
    lambda value: _encoder.encode(value).encode(),
)


# The API server accepts 10,000 levels, which a tenant can write into managedFields, and a review
# adds a few. Each level takes less than 200 bytes of stack.
_C_RECURSION_LIMIT = 12_000
# Two calls for each level, none of them on the C stack.
_PYTHON_RECURSION_LIMIT = 40_000


class _PythonDecoder(json.JSONDecoder):
    """The standard library's decoder without its parts in C.

    From Python 3.12 on, those stop at fewer than 10,000 levels whatever the recursion limit.
    """

    def __init__(self) -> None:
        super().__init__(parse_constant=_refuse_constant)
        self.parse_object = json.decoder.JSONObject  # type: ignore[attr-defined]
        self.parse_array = json.decoder.JSONArray  # type: ignore[attr-defined]
        self.scan_once = json.scanner.py_make_scanner(self)  # type: ignore[attr-defined]


_python_decoder = _PythonDecoder()


def loads_deep(data: bytes) -> Any:
    """The value in `data`, nested as deeply as the API server allows; errors as of `loads`."""
    try:
        return _with_recursion_limit(_C_RECURSION_LIMIT, STANDARD.loads, data)
    except RecursionError:
        return _with_recursion_limit(
            _PYTHON_RECURSION_LIMIT, lambda data: _python_decoder.decode(data.decode()), data
        )


def _with_recursion_limit(limit: int, loads: Callable[[bytes], Any], data: bytes) -> Any:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(limit)
    try:
        return loads(data)
    finally:
        sys.setrecursionlimit(before)


def fastest_codec() -> Codec:
    """The codec of orjson if that is installed, else that of the standard library."""
    try:
        import orjson  # noqa: PLC0415  # an extra
    except ImportError:
        return STANDARD

    def dumps(value: Any) -> bytes:
        try:
            return orjson.dumps(value)
        except TypeError:  # half a surrogate pair: only the standard library writes it
            return STANDARD.dumps(value)

    return Codec("orjson", orjson.loads, dumps)


CODEC = fastest_codec()

"""The values of YAML scalars in kubectl.

kubectl's parser, sigs.k8s.io/yaml, implements neither YAML 1.1 nor 1.2. `resolve` and
`resolve_tagged` return the value that the parser reads: `1e3` is a float. `json_value` and
`key_text` return what kubectl sends as JSON: the number 1000, and the key "1000". Each function
raises ValueError with a message for the user if kubectl refuses the scalar.
tests/data/yaml_scalars.tsv contains kubectl's results.
"""

import base64
import re
import struct
from datetime import date
from math import copysign, inf, isfinite, isnan, nan
from types import NoneType
from typing import Final

Scalar = None | bool | int | float | str

_TAG_PREFIX: Final = "tag:yaml.org,2002:"
MERGE_TAG: Final = _TAG_PREFIX + "merge"

NUMBER_STARTS: Final = frozenset("+-.0123456789")
RESOLVED_WORDS: Final[dict[str, bool | None]] = {
    **dict.fromkeys(
        ("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True
    ),
    **dict.fromkeys(
        ("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False
    ),
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
}
_NOT_FINITE: Final[dict[str, float]] = {
    **dict.fromkeys((".nan", ".NaN", ".NAN"), nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -inf),
}
# The types that a tag requires. With a tag that is not listed here, every text is a string.
_TYPE_BY_TAG: Final[dict[str, type]] = {
    _TAG_PREFIX + "bool": bool,
    _TAG_PREFIX + "int": int,
    _TAG_PREFIX + "float": float,
    _TAG_PREFIX + "null": NoneType,
    _TAG_PREFIX + "timestamp": date,
}
_BASE_BY_GROUP: Final = {"hex": 16, "binary": 2, "octal": 8, "decimal": 10}
_INTEGER_PATTERN: Final = re.compile(
    r"""[-+]?(?: (?P<hex>0[xX][0-9a-fA-F]+) | (?P<binary>0[bB][01]+)
               | (?P<octal>0[oO]?[0-7]+|0) | (?P<decimal>[1-9][0-9]*) )""",
    re.VERBOSE,
)
_FLOAT_PATTERN: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_POINT_FLOAT_PATTERN: Final = r"\.[0-9]+(?:_[0-9]+)*(?:[eE][-+]?[0-9]+(?:_[0-9]+)*)?"
_TIME_PATTERN: Final = "(?:[01]?[0-9]|2[0-3]):[0-5]?[0-9]:[0-5]?[0-9](?:[.,][0-9]+)?"
_ZONE_PATTERN: Final = "(?:Z|[-+](?:[01][0-9]|2[0-4]):(?:[0-5][0-9]|60))"
_TIMESTAMP_PATTERN: Final = (
    "([0-9]{4})-(0?[1-9]|1[0-2])-([0-9]{1,2})"
    f"(?:[Tt]{_TIME_PATTERN}{_ZONE_PATTERN}|[ ]{_TIME_PATTERN})?"
)
_MAX_INT64: Final = 2**63 - 1
_MAX_UINT64: Final = 2**64 - 1
_LONGEST_DECIMAL: Final = len(f"-{_MAX_UINT64}")
# From these values on, Go writes numbers with an exponent: in JSON, and in keys.
_LEAST_WITH_EXPONENT: Final = 1e21
_EXPONENTS_WRITTEN_OUT: Final = range(-4, 6)
_MAX_QUOTED_CHARACTERS: Final = 40


def resolve(text: str) -> Scalar:
    """Return the value of a plain scalar without a tag; `.inf` and `.nan` are floats."""
    if text in RESOLVED_WORDS:
        return RESOLVED_WORDS[text]
    return parse_number(text) if text[0] in NUMBER_STARTS else text


def parse_number(text: str) -> int | float | str:
    """Return the same as `resolve`, for a text that starts with one of NUMBER_STARTS."""
    if text.isascii() and text.isdigit() and text[0] != "0" and len(text) < _LONGEST_DECIMAL - 1:
        return int(text)  # the usual number
    if text in _NOT_FINITE:
        return _NOT_FINITE[text]
    plain = text.replace("_", "")
    if text[0] == ".":
        return _float(plain, text) if re.fullmatch(_POINT_FLOAT_PATTERN, text) else text
    if (integer := _integer(plain)) is not None:
        return integer
    return _float(plain, text) if _FLOAT_PATTERN.fullmatch(plain) else text


def _integer(plain: str) -> int | None:
    match = _INTEGER_PATTERN.fullmatch(plain)
    # Python raises an error for thousands of decimal digits. They do not fit into 64 bits anyway.
    if (
        match is None
        or match.lastgroup is None
        or (match["decimal"] and len(plain) > _LONGEST_DECIMAL)
    ):
        return None
    value = int(plain, _BASE_BY_GROUP[match.lastgroup])
    limit = _MAX_INT64 if plain[0] in "+-" else _MAX_UINT64
    return value if -_MAX_INT64 - 1 <= value <= limit else None


def _float(plain: str, text: str) -> float | str:
    value = float(plain)
    return value if isfinite(value) else text


def resolve_tagged(text: str, tag: str) -> Scalar:
    """Return the value of a scalar of any style with the tag `tag`, written out in full."""
    if tag == _TAG_PREFIX + "binary":
        return _binary(text)
    expected = _TYPE_BY_TAG.get(tag)
    if expected is None or (expected is date and _is_timestamp(text)):
        return text
    value = resolve(text)
    if expected is float and type(value) is int and value <= _MAX_INT64:
        return float(value)
    if type(value) is expected:
        return value
    raise ValueError(
        f"{text[:_MAX_QUOTED_CHARACTERS]!r} is not a valid {tag.removeprefix(_TAG_PREFIX)}"
    )


def _binary(text: str) -> str:
    digits = text.replace("\n", "").replace("\r", "")
    try:
        data = base64.b64decode(digits, validate=True)
    except ValueError:
        data = None
    # Python accepts one `=` too many.
    if data is None or len(digits) % 4:
        raise ValueError("invalid base64 in a !!binary value")
    # Go writes one replacement character for each byte that is not UTF-8; Python writes one for
    # several bytes.
    return re.sub("[\udc80-\udcff]", "\ufffd", data.decode(errors="surrogateescape"))


def _is_timestamp(text: str) -> bool:
    import calendar  # noqa: PLC0415  # hardly a manifest has dates

    match = re.fullmatch(_TIMESTAMP_PATTERN, text)
    if match is None:
        return False
    year, month, day = map(int, match.groups())
    return 1 <= day <= calendar.monthrange(year, month)[1]


def json_value(value: Scalar) -> Scalar:
    """Return a resolved scalar as kubectl writes it in JSON, where some floats become integers."""
    if type(value) is not float:
        return value
    if not isfinite(value):
        raise ValueError(f"{_not_finite_text(value)} cannot be written in JSON; kubectl refuses it")
    if value.is_integer() and abs(value) < _LEAST_WITH_EXPONENT:
        from decimal import Decimal  # noqa: PLC0415  # hardly a manifest has such numbers

        # JSON has the shortest digits that identify the float, not the exact digits of the float.
        return int(Decimal(repr(value)))
    return value


def key_text(value: Scalar) -> str:
    """Return the JSON key that kubectl makes of a resolved scalar."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _float_key(value)
    if value is None or value > _MAX_INT64:
        text = "null" if value is None else value
        raise ValueError(f"{text} cannot be a key; kubectl refuses it")
    return str(value)


def _float_key(value: float) -> str:
    """Return the fewest digits that identify the value among floats of 32 bits."""
    from decimal import Decimal  # noqa: PLC0415  # hardly a key is a number

    single = _single_precision(value)
    if not isfinite(single):
        return _not_finite_text(single)
    candidates = (f"{single:.{places}e}" for places in range(9))
    text = next(digits for digits in candidates if _single_precision(float(digits)) == single)
    exponent = int(text.partition("e")[2])
    return f"{Decimal(text):f}" if exponent in _EXPONENTS_WRITTEN_OUT else text


def _single_precision(value: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return copysign(inf, value)


def _not_finite_text(value: float) -> str:
    if isnan(value):
        return ".nan"
    return ".inf" if value > 0 else "-.inf"

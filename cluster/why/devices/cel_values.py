"""Values of expressions in CEL, and the methods and operators that they have.

Source: google/cel-go, `common/types`; Kubernetes,
`staging/src/k8s.io/apiserver/pkg/cel/library/quantity.go` and `semverlib.go`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rules.base.caching import cached_by_text
from rules.base.quantity import Quantity, parse

_MAX_INT64 = 2**63 - 1
_NUMBER = "(0|[1-9][0-9]{0,18})"
_VERSION_PATTERN = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}"
    r"(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)
_PART_PATTERN = re.compile(r"0|[1-9][0-9]{0,17}|(?=[0-9]*[A-Za-z-])[0-9A-Za-z-]+")
_REGEX_PATTERN = re.compile(r"\^?(?:[A-Za-z0-9 _/:-]|\.[*+]?)*\$?")
_MAX_WILDCARDS = 3
ANY = "any"


class FailureError(Exception):
    """The evaluation ends with an error."""


class UnreadError(Exception):
    """The evaluation needs what is not read here."""


class Version(NamedTuple):
    """A semantic version; `before` are the parts of a pre-release, of which numbers come first."""

    numbers: tuple[int, int, int]
    before: tuple[tuple[int, int, str], ...] = ()

    @property
    def order(self) -> tuple[Any, ...]:
        """Return the key by which versions are compared: pre-releases come before their release."""
        return self.numbers, not self.before, self.before


class Amount(NamedTuple):
    """A quantity in units of 1e-9."""

    nano: int

    @property
    def order(self) -> tuple[Any, ...]:
        """Return the key by which quantities are compared."""
        return (self.nano,)

    @property
    def integer(self) -> int | None:
        """The whole number that it is; None if it is none of 64 bits."""
        whole, rest = divmod(self.nano, 10**9)
        return None if rest or abs(whole) > _MAX_INT64 else whole


class Optional(NamedTuple):
    """A value that may be missing."""

    value: Any
    has_value: bool


_TYPES = {str: "string", bool: "bool", int: "int", Version: "semver", Amount: "quantity"}
SCALARS = frozenset(_TYPES.values())


def type_of(value: Any) -> str:
    """The type of a value in CEL; empty for what is no scalar."""
    return _TYPES.get(type(value), "")


@cached_by_text
def read_version(text: str) -> Version | None:
    """A version as the API server accepts it; None for another text."""
    found = _VERSION_PATTERN.fullmatch(text)
    if found is None:
        return None
    parts = found[4].split(".") if found[4] else []
    if not all(map(_PART_PATTERN.fullmatch, parts)):
        return None
    before = [(0, int(one), "") if one.isdecimal() else (1, 0, one) for one in parts]
    return Version((int(found[1]), int(found[2]), int(found[3])), tuple(before))


@cached_by_text
def read_amount(text: str) -> Amount | None:
    """A quantity; None for another text."""
    parsed = parse(text)
    return Amount(parsed.nano) if isinstance(parsed, Quantity) and text == text.strip() else None


def attribute(raw: Any) -> Any:
    """The value of an attribute of a device; lists are not read."""
    match raw:
        case {"string": str(value)} | {"bool": bool(value)} | {"int": int(value)}:
            return value
        case {"version": str(text)} if found := read_version(text):
            return found
    raise UnreadError


def capacity(raw: Any) -> Amount:
    """The quantity of a capacity of a device."""
    amount = parse(raw.get("value") if isinstance(raw, dict) else raw)
    if isinstance(amount, Quantity):
        return Amount(amount.nano)
    raise UnreadError


def boolean(value: Any) -> bool:
    """A condition, which is an error if it is none."""
    if isinstance(value, bool):
        return value
    raise FailureError


def are_equal(one: Any, other: Any) -> bool:
    """`==`; values of Kubernetes' own types on the left side fail with others on the right."""
    if type(one) is not type(other):
        if hasattr(one, "order"):
            raise FailureError
        return False
    return bool(one.order == other.order) if hasattr(one, "order") else bool(one == other)


def is_in(one: Any, others: tuple[Any, ...]) -> bool:
    """`in` for a list of literals, in which the evaluator cannot look a version up."""
    if isinstance(one, Version):
        raise FailureError
    return any(type(one) is type(other) and one == other for other in others)


ORDERS: Mapping[str, Callable[[Any, Any], bool]] = {
    "_<_": lambda one, other: one < other,
    "_<=_": lambda one, other: one <= other,
    "_>_": lambda one, other: one > other,
    "_>=_": lambda one, other: one >= other,
}


def in_order(operator: str, one: Any, other: Any) -> bool:
    """`<` and its like: for texts, whole numbers and booleans."""
    if type(one) is not type(other) or not isinstance(one, (str, int)):
        raise FailureError
    return ORDERS[operator](_ascii(one), _ascii(other))


def _ascii(value: Any) -> Any:
    """A value whose order, or whose case, is the same for Python and for Go."""
    if isinstance(value, str) and not value.isascii():
        raise UnreadError
    return value


@cached_by_text
def _regex(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern[:-1] + r"\Z" if pattern.endswith("$") else pattern)


class Method(NamedTuple):
    """A method: the types that have it, the types of its arguments, and that of its result.

    No argument types are given if the argument has the type of the value itself.
    """

    own: frozenset[str]
    arguments: tuple[str, ...] | None
    result: str
    call: Callable[..., Any]


def _whole(amount: Amount) -> int:
    if amount.integer is None:
        raise FailureError
    return amount.integer


def _compared(one: Any, other: Any) -> int:
    return int(one.order > other.order) - int(one.order < other.order)


_TEXT, _VERSION, _AMOUNT = (frozenset({name}) for name in ("string", "semver", "quantity"))
METHODS: Mapping[str, Method] = {
    "startsWith": Method(_TEXT, ("string",), "bool", str.startswith),
    "endsWith": Method(_TEXT, ("string",), "bool", str.endswith),
    "contains": Method(_TEXT, ("string",), "bool", str.__contains__),
    "matches": Method(_TEXT, ("string",), "bool", lambda own, one: bool(_regex(one).search(own))),
    "lowerAscii": Method(_TEXT, (), "string", lambda own: _ascii(own).lower()),
    "upperAscii": Method(_TEXT, (), "string", lambda own: _ascii(own).upper()),
    "major": Method(_VERSION, (), "int", lambda own: own.numbers[0]),
    "minor": Method(_VERSION, (), "int", lambda own: own.numbers[1]),
    "patch": Method(_VERSION, (), "int", lambda own: own.numbers[2]),
    "isInteger": Method(_AMOUNT, (), "bool", lambda own: own.integer is not None),
    "asInteger": Method(_AMOUNT, (), "int", _whole),
    "compareTo": Method(_VERSION | _AMOUNT, None, "int", _compared),
    "isGreaterThan": Method(
        _VERSION | _AMOUNT, None, "bool", lambda own, one: _compared(own, one) > 0
    ),
    "isLessThan": Method(
        _VERSION | _AMOUNT, None, "bool", lambda own, one: _compared(own, one) < 0
    ),
}


def call(name: str, own: Any, arguments: list[Any]) -> Any:
    """The result of a method."""
    method, kind = METHODS[name], type_of(own)
    types = (kind,) if method.arguments is None else method.arguments
    if kind not in method.own or types != tuple(map(type_of, arguments)):
        raise FailureError
    return method.call(own, *arguments)


def is_simple_pattern(pattern: str) -> bool:
    """Return whether a pattern means the same to Python and to RE2, and takes no time."""
    wildcards = pattern.count("*") + pattern.count("+")
    return bool(_REGEX_PATTERN.fullmatch(pattern)) and wildcards <= _MAX_WILDCARDS

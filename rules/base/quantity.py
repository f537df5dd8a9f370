"""Kubernetes quantities such as `1`, `500m`, `2Gi` and `1e3`, read as the API server reads them.

Kubernetes rounds anything finer than a nano up to one nano, so a whole number of nanos can
represent any quantity. Source: apimachinery's `pkg/api/resource`, whose own results are in
`tests/data/quantities.tsv`.
"""

import re
from typing import NamedTuple

from rules.base.caching import cached_by_text

_NANO, _INT64_MAX = 10**9, 2**63 - 1
# Larger numbers are reduced to this one: far beyond int64, and still fast to compute with.
_MAX_DIGITS, _MAX_NUMBER = 40, 10**40
# Nanos need nine decimals, and the factor 2**60 sixty more. Further decimals add one nano at most.
_MAX_DECIMALS = 9 + 60
# The blanks that Go trims, except those that its JSON encoder escapes (tab, newline): Kubernetes
# trims the text before it unescapes it.
_BLANKS = " \x85\xa0\u1680\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
# The possessive `*+` prevents backtracking over megabytes of digits.
_QUANTITY_PATTERN = re.compile(r"([+-]?)([0-9]*+)(?:\.([0-9]*+))?+([eEinumkKMGTP]*+)([+-]?[0-9]*+)")
# Placeholders of templates: `$N`, `${N}`, `{{ .n }}`, and words for sed such as `NUM_GPUS`,
# `__GPUS__`, `@GPUS@` and `<n>`.
_PLACEHOLDER_PATTERN = (
    r"\$[A-Za-z0-9_{(]|\{\{|\A_*+[A-Z](?=[^_]*+_)[A-Z0-9_]++\Z|\A@[A-Za-z0-9_]++@\Z|\A<[^<>]*+>\Z"
)
_POWERS_OF_TEN = dict(zip(("n", "u", "m", "", *"kMGTPE"), range(-9, 19, 3), strict=True))
_POWERS_OF_TWO = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


class Quantity(NamedTuple):
    """A number that Kubernetes can read: `text` as written, `nano` its value in units of 1e-9.

    As in Kubernetes, `nano` is rounded away from zero, and a number with a binary unit is capped at
    the largest int64. A number above 10**40 counts as 10**40. `==` also compares the texts;
    `equal_to` compares only the numbers.
    """

    text: str
    nano: int

    @property
    def is_integer(self) -> bool:
        """Return whether this is exactly a whole number, positive or negative."""
        return self.nano % _NANO == 0

    @property
    def is_accepted_as_integer(self) -> bool:
        """Return whether the API server accepts it as an integer, as it does `0.9999` and `-1`.

        It rounds up to thousandths first, and then requires a whole number.
        """
        return self.thousandths % 1000 == 0

    @property
    def thousandths(self) -> int:
        """Return what the API server stores and compares: thousandths, rounded away from zero."""
        return self._rounded_up(_NANO // 1000)

    @property
    def value(self) -> int:
        """The whole number that the scheduler and the kubelet use, rounded away from zero."""
        return self._rounded_up(_NANO)

    @property
    def overflows(self) -> bool:
        """Return whether the thousandths exceed int64, as in `1E`: Kubernetes then miscounts."""
        return abs(self.thousandths) > _INT64_MAX

    @property
    def suffix(self) -> str:
        """The unit or exponent as written: empty, `k`, `Ki`, `m`, `e3`, `E-2`."""
        return "" if self.text == "null" else self.text.strip(_BLANKS).lstrip("+-.0123456789")

    def equal_to(self, other: "Quantity") -> bool:
        """Return whether both are the same number, as `1` and `1000m` are."""
        return self.nano == other.nano

    def _rounded_up(self, unit: int) -> int:
        return self.nano // unit if self.nano < 0 else -(-self.nano // unit)


class Placeholder(NamedTuple):
    """A text with a template placeholder such as `$N`, `${N}`, `$(N)` or `{{ .Values.gpu }}`."""

    text: str


class Malformed(NamedTuple):
    """A value that the API server refuses as a quantity: `text` as written, `why` for a message."""

    text: str
    why: str


def parse(value: object) -> Quantity | Placeholder | Malformed:
    """Parse any JSON value as a quantity. Never raises. Kubernetes reads null as zero."""
    match value:
        case str():
            text = value
        case None:
            return Quantity("null", 0)
        case bool():
            return Malformed("true" if value else "false", "a boolean is not a quantity")
        case int():
            # Python refuses to convert an int of more than 4300 digits to text.
            text = (
                str(value)
                if abs(value) < _MAX_NUMBER
                else str(_MAX_NUMBER if value > 0 else -_MAX_NUMBER)
            )
        case float():
            text = repr(value)
        case _:
            return Malformed(f"<{type(value).__name__}>", "neither a number nor a string")
    return _parse_text(text)


@cached_by_text
def _parse_text(text: str) -> Quantity | Placeholder | Malformed:
    form = _QUANTITY_PATTERN.fullmatch(text.strip(_BLANKS))
    if form is None or not form[0]:
        if re.search(_PLACEHOLDER_PATTERN, text):
            return Placeholder(text)
        return Malformed(text, "not a number with an optional unit" if text.strip() else "empty")
    sign, whole, fraction, letters, exponent = form.groups(default="")
    ten, two = _decimal_exponent(letters, exponent), _POWERS_OF_TWO.get(letters, 0)
    if ten is None:
        return Malformed(text, f"unknown unit or exponent {(letters + exponent)[:20]!r}")
    # Kubernetes keeps the scale in an int32, which wraps: `1e4294967296` is 1.
    scale = (ten - len(fraction) + 2**31) % 2**32 - 2**31
    # Only Kubernetes' fast path reads a text without digits as zero. Texts with these exponents and
    # units do not take the fast path.
    if not (whole or fraction) and (scale < _POWERS_OF_TEN["n"] or two > _POWERS_OF_TWO["Ti"]):
        return Malformed(text, "no digits")
    nano = min(_nano(whole + fraction, scale, 2**two), _NANO * (_INT64_MAX if two else _MAX_NUMBER))
    return Quantity(text, -nano if sign == "-" else nano)


def _decimal_exponent(letters: str, exponent: str) -> int | None:
    """Return the power of ten of a suffix; 0 for a binary unit, None if the suffix is invalid."""
    if not exponent:
        return 0 if letters in _POWERS_OF_TWO else _POWERS_OF_TEN.get(letters)
    digits = exponent.lstrip("+-").lstrip("0")
    if letters not in {"e", "E"} or exponent in {"+", "-"} or len(digits) > len(str(_INT64_MAX)):
        return None
    power = -int(digits or "0") if exponent[0] == "-" else int(digits or "0")
    return power if -_INT64_MAX - 1 <= power <= _INT64_MAX else None


def _nano(digits: str, scale: int, factor: int) -> int:
    """Return digits * 10**scale * factor in nanos, rounded up. A large scale costs no more time."""
    significant = digits.rstrip("0")
    scale += len(digits) - len(significant)
    significant = significant.lstrip("0")
    if not significant:
        return 0
    if len(significant) + scale > _MAX_DIGITS:
        return _MAX_NUMBER * _NANO
    if scale < -_MAX_DECIMALS:  # the last digit is not 0, so a 1 replaces the digits cut off
        significant = significant[: max(len(significant) + scale + _MAX_DECIMALS, 0)] + "1"
        scale = -_MAX_DECIMALS - 1
    number, power = int(significant) * factor * _NANO, int(10 ** abs(scale))
    return number * power if scale >= 0 else -(-number // power)


def invalid_count_reason(amount: object) -> str | None:
    """Return why `amount`, a result of `parse`, cannot be a number of devices; else None.

    The text continues a message after a comma. A placeholder may be a number, so it gives None.
    """
    if isinstance(amount, Malformed):
        return f"which is not a quantity ({amount.why}): the API server refuses it"
    if not isinstance(amount, Quantity):
        return None
    if amount.nano < 0:
        return "a negative amount, which the API server refuses"
    if amount.is_integer:
        return None
    if amount.is_accepted_as_integer:
        return f"a fraction that the API server lets through and that acts as {amount.value}"
    return "a fraction, which the API server refuses: devices come in whole numbers"

"""Tests of quantities: Kubernetes' own results, algebraic properties, and hostile input."""

import json
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rules.base.quantity import Malformed, Placeholder, Quantity, parse
from tests.testkit.paths import DATA

NANO = 10**9
MOST = 10**40 * NANO
INT64_MAX = 2**63 - 1
TABLE = DATA / "quantities.tsv"
ROWS = [row.split("\t") for row in TABLE.read_text(encoding="utf-8").removesuffix("\n").split("\n")]
UNITS = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
MANY = 1_000_000

integers = st.integers(-(10**30), 10**30)
cards = st.integers(0, 10**6)
decimals = st.from_regex(r"[+-]?[0-9]{1,25}(\.[0-9]{0,25})?", fullmatch=True)
quantities = st.builds("{}{}".format, decimals, st.sampled_from(UNITS))
noise = st.text(st.sampled_from("0123456789+-.eEnumkKMGTPi _"), max_size=20)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | noise | quantities,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


def number(value: object) -> Quantity:
    quantity = parse(value)
    assert isinstance(quantity, Quantity), quantity
    return quantity


def sign(quantity: Quantity) -> int:
    return (quantity.nano > 0) - (quantity.nano < 0)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_agrees_with_the_api_server(row: list[str]) -> None:
    value, expected = json.loads(row[0]), row[1:]
    if expected == ["error"]:
        assert not isinstance(parse(value), Quantity)
        return
    quantity = number(value)
    _canonical, nano, integer, acts_as, expected_sign = expected
    assert sign(quantity) == int(expected_sign)
    if nano != "huge":
        assert quantity.nano == max(-MOST, min(int(nano), MOST))
    # Beyond int64, and for negative numbers, Kubernetes' result depends on the spelling.
    if 0 <= quantity.value <= INT64_MAX:
        assert quantity.value == int(acts_as)
    if quantity.nano >= 0 and not quantity.overflows:
        assert quantity.is_accepted_as_integer == (integer == "true")


def test_the_table_is_broad() -> None:
    assert len(ROWS) == len({row[0] for row in ROWS})
    assert len(ROWS) >= 250


@pytest.mark.parametrize(
    ("text", "acts_as"),
    [
        *((text, 1) for text in ("1", "+1", "01", "1.", "1000m", "1e0", "1E0", "1e+0", "10e-1")),
        *((text, 1) for text in ("100e-2", "1000000u", " 1", "1 ", "0.9999", "0.9991", "999999u")),
        *((text, 0) for text in ("-0", "-", "+")),
        *(("2.0", 2), ("1.9995", 2), ("010", 10), ("1k", 1000), ("1Ki", 1024), ("1M", 10**6)),
        *(("1e3", 1000), ("0.5k", 500), ("0.5Ki", 512)),
    ],
)
def test_accepted_as_a_count(text: str, acts_as: int) -> None:
    quantity = number(text)
    assert quantity.is_accepted_as_integer
    assert quantity.value == acts_as
    assert quantity.is_integer == (quantity.nano == acts_as * NANO)


@pytest.mark.parametrize(
    "text", ["0.5", "500m", ".5", "999m", "0.999", "1e-1", "0.0001", "1n", "1000001u", "1.0001Ki"]
)
def test_a_fraction_is_refused(text: str) -> None:
    assert not number(text).is_accepted_as_integer
    assert not number(text).is_integer


@pytest.mark.parametrize("text", ["1E", "8Ei", "9223372036854775808", "1e999999999"])
def test_overflow_is_accepted(text: str) -> None:
    assert number(text).overflows
    assert number(text).is_accepted_as_integer


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("1K", "unknown unit or exponent 'K'"),
        ("1e", "unknown unit or exponent 'e'"),
        ("", "empty"),
        (" ", "empty"),
        ("e-10", "no digits"),
        ("1_000", "not a number with an optional unit"),
        (float("nan"), "not a number with an optional unit"),
        (float("-inf"), "not a number with an optional unit"),
        (True, "a boolean is not a quantity"),
        ([1], "neither a number nor a string"),
    ],
)
def test_malformed_says_why(value: object, why: str) -> None:
    malformed = parse(value)
    assert isinstance(malformed, Malformed)
    assert malformed.why == why


@pytest.mark.parametrize(
    ("text", "suffix"),
    [("1", ""), (" 2Ki ", "Ki"), ("-1.5m", "m"), ("1e3", "e3"), ("1E-2", "E-2"), ("1E", "E")],
)
def test_suffix_is_kept_as_written(text: str, suffix: str) -> None:
    assert number(text).text == text
    assert number(text).suffix == suffix


def test_null_is_zero() -> None:
    assert number(None) == Quantity("null", 0)
    assert number(None).suffix == ""


@pytest.mark.parametrize("text", ["0.9999", "1e999999999", "-"])
def test_text_is_not_identity(text: str) -> None:
    blank = number(f" {text}")
    assert blank != number(text)
    assert blank.equal_to(number(text))


@given(cards)
def test_whole_cards_in_any_spelling_are_equal(count: int) -> None:
    spellings = [count, float(count), f"+{count}", f"00{count}", f"{count}.", f"{count}.00"]
    spellings += [f"{count}000m", f"{count}e0", f"{count}0E-1", f" {count} ", f"{count}000000u"]
    spellings += [f"{count // 1000}.{count % 1000:03}k", f"{count}000000000n"]
    for spelling in spellings:
        assert number(spelling).equal_to(number(count))
        assert number(spelling).value == count
        assert number(spelling).is_integer


@given(st.lists(integers, min_size=2), st.sampled_from(["", "m", "n", "e-7", "k"]))
def test_order_is_preserved(counts: list[int], unit: str) -> None:
    ordered = [number(f"{count}{unit}").nano for count in sorted(counts)]
    assert all(low <= high for low, high in pairwise(ordered))


@given(st.integers(0, 10**24), st.sampled_from([1, 10**3, 10**6]))
def test_accepted_means_whole_in_thousandths(count: int, step: int) -> None:
    quantity = number(f"{count * step}n")
    thousandths = -(-count * step // 10**6)
    assert quantity.is_accepted_as_integer == (thousandths % 1000 == 0)
    assert quantity.overflows == (thousandths > INT64_MAX)


@given(quantities)
def test_value_is_the_next_whole_number(text: str) -> None:
    quantity = number(text)
    assert 0 <= abs(quantity.value) * NANO - abs(quantity.nano) < NANO
    assert (quantity.value * NANO == quantity.nano) == quantity.is_integer
    assert quantity.is_accepted_as_integer or not quantity.is_integer


@given(decimals)
def test_a_minus_mirrors(text: str) -> None:
    assume(text[0] not in "+-")
    assert number(f"-{text}").nano == -number(text).nano
    assert number(f"-{text}").value == -number(text).value


@given(json_values)
def test_every_json_value_has_an_answer(value: object) -> None:
    answer = parse(value)
    assert isinstance(answer, Quantity | Placeholder | Malformed)
    assert answer == parse(value)
    if isinstance(answer, Quantity):
        assert isinstance(answer.suffix, str)


@given(
    st.text(max_size=5),
    st.sampled_from(["$N", "${N}", "$(N)", "$1", "$GPU_PER_NODE", "{{ .Values.gpu }}", "{{n}}"]),
    st.text(max_size=5) | quantities,
)
def test_a_placeholder_is_never_a_number(before: str, placeholder: str, after: str) -> None:
    text = before + placeholder + after
    assert parse(text) == Placeholder(text)


@pytest.mark.parametrize(
    "text", ["NUM_GPUS", "__GPUS__", "__GPU_COUNT_PLACEHOLDER__", "_GPUS_", "@GPUS@", "<gpus>"]
)
def test_a_word_for_sed_is_a_placeholder(text: str) -> None:
    assert parse(text) == Placeholder(text)


@pytest.mark.parametrize(
    "text", ["__", "__gpus__", "_GPUS", "@@", "@GPUS", "$", "1$", "$ N", "{ n }", "$-1", "N", "%N%"]
)
def test_not_a_placeholder(text: str) -> None:
    assert isinstance(parse(text), Malformed)


@pytest.mark.parametrize(
    ("text", "nano"),
    [
        ("9" * MANY, MOST),
        ("-" + "9" * MANY + "Ki", -INT64_MAX * NANO),
        ("0" * MANY + "1", NANO),
        ("0." + "3" * MANY, 333_333_334),
        ("1." + "0" * MANY + "1Ki", 1024 * NANO + 1),
        ("1e" + "0" * MANY + "3", 1000 * NANO),
        ("1" + "0" * MANY + f"e-{MANY}", NANO),
        ("1e999999999", MOST),
        ("1e-999999999", 1),
        (" " * MANY + "1", NANO),
        (2**MANY, MOST),
        (-(2**MANY), -MOST),
    ],
    ids=lambda case: type(case).__name__,
)
def test_huge_numbers_are_read(text: object, nano: int) -> None:
    assert number(text).nano == nano


@pytest.mark.parametrize("start", ["0", "9.9", "1e", "-", ".", "1e9", " ", "Ki", "${", "{{"])
def test_huge_texts_are_answered(start: str) -> None:
    for text in (start * MANY, start * MANY + "x", "1" + start * MANY):
        assert isinstance(parse(text), Quantity | Placeholder | Malformed)


def test_deep_nesting_is_answered() -> None:
    nested: list[object] = []
    for _ in range(MANY // 10):
        nested = [nested]
    assert parse(nested) == Malformed("<list>", "neither a number nor a string")

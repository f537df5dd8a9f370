"""The answers about selectors of devices, compared with Kubernetes' compiler and evaluation.

`tests/data/device_selectors.tsv` has what a program with the code of Kubernetes says of each
expression, and of one card of NVIDIA's driver (tests/oracles/device_selector).
"""

import json
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from rules.base.cel import MAX_TOKENS, CelSyntaxError, UnsupportedCelError, children, parse_cel
from rules.gpu.device_selectors import MAX_SELECTOR_BYTES, selector_faults
from tests.testkit.paths import DATA

CLASS = "gpu.nvidia.com"


class Judged(NamedTuple):
    """An expression, whether the API server compiles it, and what it says of a card."""

    expression: str
    compiles: bool
    result: str


def _judged() -> Iterator[Judged]:
    text = (DATA / "device_selectors.tsv").read_text(encoding="utf-8")
    for line in text.splitlines():
        expression, verdict, result = line.split("\t")
        yield Judged(json.loads(expression), verdict == "ok", result)


EXPRESSIONS = list(_judged())


def test_a_fault_is_one_line_whatever_the_expression_has() -> None:
    (fault,) = selector_faults('device.driver == "a" """b\n\x1bc"""', CLASS)
    assert fault.text.isprintable()
    assert "where nothing can follow" in fault.text


@pytest.mark.parametrize("judged", EXPRESSIONS, ids=lambda judged: judged.expression[:60])
def test_only_what_the_api_server_refuses_is_called_refused(judged: Judged) -> None:
    refusals = [f for f in selector_faults(judged.expression, CLASS) if f.is_refused]
    assert not (judged.compiles and refusals)


@pytest.mark.parametrize("judged", EXPRESSIONS, ids=lambda judged: judged.expression[:60])
def test_a_selector_with_a_certain_fault_selects_no_card(judged: Judged) -> None:
    certain = [f for f in selector_faults(judged.expression, CLASS) if f.is_certain]
    if judged.compiles and certain:
        assert judged.result in ("false", "fails"), certain


def test_most_refusals_are_announced() -> None:
    refused = [judged.expression for judged in EXPRESSIONS if not judged.compiles]
    announced = [e for e in refused if any(f.is_refused for f in selector_faults(e, CLASS))]
    assert len(announced) > 0.75 * len(refused) > 75


def test_placeholders_are_not_judged() -> None:
    assert selector_faults('device.driver == {{ .Values.driver }} && "$X" =') == []


def test_a_selector_may_have_ten_kibibytes() -> None:
    allowed = f'device.driver == "{"x" * (MAX_SELECTOR_BYTES - 19)}"'
    assert len(allowed) == MAX_SELECTOR_BYTES
    assert selector_faults(allowed) == []
    (fault,) = selector_faults(f"{allowed} ")
    assert fault.is_refused


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 5_000,
        "!" * 5_000 + "true",
        "a." * 5_000 + "b",
        "true && " * 1_000 + "true",
        "true ? true : " * 500 + "true",
        "[" * 100 + "]" * 100,
        "x.all(y, " * 100,
        '"' * 9_999,
        "'''" * 3_000,
    ],
)
def test_deep_and_long_expressions_are_left_unread(expression: str) -> None:
    assert [fault for fault in selector_faults(expression) if not fault.is_refused] == []


def test_a_tree_is_never_deeper_than_the_bound_on_words() -> None:
    """The checker calls itself for each level: Python's stack must suffice."""
    chain = "!true" + " && true" * ((MAX_TOKENS - 2) // 2)
    levels, nodes = 0, [parse_cel(chain)]
    while nodes:
        levels, nodes = levels + 1, [child for node in nodes for child in children(node)]
    assert MAX_TOKENS // 3 < levels < MAX_TOKENS
    assert selector_faults(chain) == []
    with pytest.raises(UnsupportedCelError):
        parse_cel(f"{chain} && true && true")


@pytest.mark.parametrize("text", ["", "a b", "a ==", "(a", "a)", "[1", "if", "a = b", '"a'])
def test_wrong_syntax_is_an_error(text: str) -> None:
    with pytest.raises(CelSyntaxError):
        parse_cel(text)

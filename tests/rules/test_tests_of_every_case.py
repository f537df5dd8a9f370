"""A test that goes through many cases names each that fails."""

from __future__ import annotations

import pytest

from tests.testkit.cases import Case, cases
from tests.testkit.for_every_case import check_all, for_every_case

CASES = [case for case in cases() if case.rule == "zero-gpu"]


def test_a_failure_names_every_check_that_failed_and_why() -> None:
    def wrong() -> None:
        raise AssertionError("one is not two\nand more")

    def empty() -> None:
        raise KeyError

    with pytest.raises(ExceptionGroup) as failed:
        check_all({"first": wrong, "second": lambda: None, "third": empty})
    message = "2 of 3 failed\nfirst: one is not two\nthird: KeyError"
    assert failed.value.message == message
    assert [type(error) for error in failed.value.exceptions] == [AssertionError, KeyError]


def test_a_test_sees_every_case_of_a_rule_and_is_run_once_for_each_rule() -> None:
    seen: list[str] = []

    @for_every_case(CASES)
    def check(case: Case) -> None:
        seen.append(case.name)

    [mark] = check.pytestmark  # type: ignore[attr-defined]
    assert mark.kwargs["ids"] == ["zero-gpu"]
    [own_cases] = mark.args[1]
    check(own_cases)
    assert seen == [case.name for case in CASES]

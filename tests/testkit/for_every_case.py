"""Tests of every case: pytest runs them once for each rule, and they go through its cases.

pytest and xdist spend two milliseconds on a test, which is more than most checks of a case take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

import pytest

from tests.testkit.cases import Case


def check_all(checks: Mapping[str, Callable[[], object]]) -> None:
    """Make all checks, and fail with the names and the errors of those that failed."""
    errors = {}
    for name, check in checks.items():
        try:
            check()
        except Exception as error:  # noqa: BLE001  # it is raised below, with all others
            error.add_note(f"in {name}")
            errors[name] = error
    if errors:
        lines = (f"{name}: {_first_line(error)}" for name, error in errors.items())
        message = "\n".join((f"{len(errors)} of {len(checks)} failed", *lines))
        raise ExceptionGroup(message, list(errors.values()))


def _first_line(error: Exception) -> str:
    """The first line of a message; the lines of a group name all that failed in it."""
    if isinstance(error, ExceptionGroup):
        return str(error.message).replace("\n", "\n    ")
    return next(iter(str(error).splitlines()), type(error).__name__)


def for_every_case(
    selection: Iterable[Case],
) -> Callable[[Callable[[Case], None]], Callable[..., None]]:
    """Run the decorated test with every case in `selection`: once for each rule.

    A failure names all cases of the rule that failed. `-k` selects by the name of the rule.
    """
    cases_of_rules: dict[str, list[Case]] = {}
    for case in selection:
        cases_of_rules.setdefault(case.rule, []).append(case)

    def decorate(test: Callable[[Case], None]) -> Callable[..., None]:
        def test_of_a_rule(own_cases: list[Case]) -> None:
            check_all({case.name: partial(test, case) for case in own_cases})

        test_of_a_rule.__name__, test_of_a_rule.__doc__ = test.__name__, test.__doc__
        ids, own_cases = [*cases_of_rules], [*cases_of_rules.values()]
        return pytest.mark.parametrize("own_cases", own_cases, ids=ids)(test_of_a_rule)

    return decorate

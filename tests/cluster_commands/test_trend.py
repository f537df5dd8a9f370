"""The findings of each day, as the report of the cluster keeps them."""

from __future__ import annotations

import datetime

import pytest

from cluster.audit.policy_reports import KINDS
from cluster.audit.trend import ANNOTATION, MAX_DAYS, Day, days_of, report_of, with_today
from tests.testkit.cluster_commands.findings import error_about

FIRST = datetime.date(2026, 1, 1)


def day(number: int, errors: int = 0, warnings: int = 0) -> Day:
    return Day(FIRST + datetime.timedelta(number), errors, warnings)


def test_the_last_audit_of_a_day_counts() -> None:
    findings = [error_about("a", f"p{number}") for number in range(3)]
    once = with_today([day(0, 5, 1)], day(1).date, findings)
    assert once == (day(0, 5, 1), day(1, 3, 0))
    assert with_today(once, day(1).date, findings[:1]) == (day(0, 5, 1), day(1, 1, 0))


def test_a_clock_that_was_ahead_leaves_no_day_after_today() -> None:
    assert with_today([day(0, 1), day(9, 8)], day(1).date, []) == (day(0, 1), day(1))


def test_old_days_are_forgotten() -> None:
    days = [day(number, number) for number in range(MAX_DAYS)]
    kept = with_today(days, day(MAX_DAYS).date, [])
    assert kept == (*days[1:], day(MAX_DAYS))
    assert days_of(report_of(KINDS["policyreport"], kept)) == kept


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-01 1 2\n2026-02-30 1 1\n2026-01-0\u0662 1 1\n<script> 1 1\n",
        "2026-01-01 9 9\n2026-01-01 1 2\n\n2026-01-02 -1 2\n2026-01-02 1 " + "9" * 10_000,
        "2026-01-01 1 2\n" + "x" * 10_000_000,
    ],
    ids=["no date", "numbers", "long"],
)
def test_what_others_have_written_is_left_out(text: str) -> None:
    report = {"metadata": {"annotations": {ANNOTATION: text}}}
    assert days_of(report) == (day(0, 1, 2),)


@pytest.mark.parametrize("report", [{}, {"metadata": 1}, {"metadata": {"annotations": [1]}}])
def test_a_report_of_another_form_has_no_days(report: dict[str, object]) -> None:
    assert days_of(report) == ()

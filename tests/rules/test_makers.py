"""Rules say of every maker's accelerators what they say of NVIDIA's, or the data says why not."""

from __future__ import annotations

import pytest

from rules.profile.platforms.makers import OTHER_MAKERS, Maker
from tests.testkit.coverage import makers


@pytest.mark.parametrize("maker", makers.data()["makers"])
@pytest.mark.parametrize("rule", makers.rules())
def test_a_rule_speaks_about_a_maker_or_the_table_says_why_not(rule: str, maker: str) -> None:
    is_said = makers.reason(rule, maker) or makers.reports(rule, maker)
    assert is_said, f"say in {makers.FILE.name} why {rule} does not apply, or mend the rule"


def test_the_table_is_about_rules_and_reasons_that_there_are() -> None:
    assert makers.data()["does_not_apply"].keys() <= {*makers.rules()}
    reasons = {makers.reason(r, m) for r in makers.rules() for m in makers.data()["makers"]} - {""}
    assert reasons == makers.data()["reasons"].keys()


@pytest.mark.parametrize("maker", [m for m in OTHER_MAKERS if m.vendor], ids=lambda m: m.vendor)
def test_the_table_has_every_maker_whose_requests_are_known(maker: Maker) -> None:
    domains = {signs["resource"].partition("/")[0] for signs in makers.data()["makers"].values()}
    assert not maker.request or maker.request.partition("/")[0] in domains

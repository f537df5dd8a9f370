"""`make docs` writes into the module of a new rule which version of the catalog releases it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from rules.all_rules import ALL_RULES
from rules.rule import Rule
from tests.testkit.paths import ROOT
from tools.catalog_and_profiles import next_catalog, with_since


@pytest.mark.parametrize(
    ("version", "changelog", "expected"),
    [
        ("0.1.0", "## Unreleased\n", "0.1"),
        ("0.1.0", "## Unreleased\n\n## 0.1.0\n", "0.2"),
        ("0.1.3", "## Unreleased\n\n## [0.1.3] - 2031-01-01\n", "0.2"),
        ("0.2.0", "## 0.2.0\n\n## 0.1.0\n", "0.3"),
        ("0.1.0", "## 0.10.0\n\n- as before 0.1\n", "0.1"),
        ("0.9.0", "## 0.9.0\n", "0.10"),
    ],
)
def test_a_new_rule_belongs_to_the_next_release(
    version: str, changelog: str, expected: str
) -> None:
    assert next_catalog(version, changelog) == expected


@pytest.mark.parametrize("rule", ALL_RULES[::9], ids=lambda rule: rule.name)
def test_it_is_written_behind_the_action(rule: Rule[Any]) -> None:
    module = ROOT / f"{rule.check.__module__.replace('.', '/')}.py"
    text = re.sub(r"\s+", "", module.read_text(encoding="utf-8"))
    said = f',since="{rule.since}"'
    assert with_since(text.replace(said, ""), rule.since) == text.replace(
        said, said[:1] + " " + said[1:]
    )


def test_a_module_that_hides_its_action_is_refused_with_what_to_write() -> None:
    with pytest.raises(SystemExit, match='write action=…, since="…"'):
        with_since("RULE = define_rule(check, **FACTS)\n", "0.2")

"""The chart's README is made from the values, and what it tells to do can be done."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from tests.testkit.chart.documented_commands import commands, problems
from tests.testkit.chart.rendering import CHART, rendered
from tests.testkit.control_plane.build import Programs
from tests.testkit.paths import ROOT
from tools.chart_readme import readme

README = (CHART / "README.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| ([\w.]+) \| \w+ \| (.*) \| (.*) \|$", re.MULTILINE)
LINK = re.compile(r"\]\((https?://[^)#]+)(?:#([^)]+))?\)")
REPOSITORY = "https://github.com/gpuward/gpuward/blob/main/"


def test_it_is_fresh(chart_tools: Programs) -> None:
    told = "README.md is stale: run python -m tools.chart_readme"
    assert readme(chart_tools["helm-docs"]) == README, told


def undescribed(values: dict[str, Any], described: set[str], before: str = "") -> Iterator[str]:
    """Every value that has no row, neither itself nor what it stands in."""
    for key, value in values.items():
        place = f"{before}{key}"
        if place in described:
            continue
        if isinstance(value, dict) and value:
            yield from undescribed(value, described, f"{place}.")
        else:
            yield place


def test_every_value_is_described_in_words() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    rows = ROW.findall(README)
    assert list(undescribed(values, {key for key, _, _ in rows})) == []
    assert all(default and len(text) > 5 for _, default, text in rows)


def test_a_value_without_a_description_would_be_noticed() -> None:
    described = {"a", "b.c"}
    assert list(undescribed({"a": {"x": 1}, "b": {"c": 1, "d": 2}}, described)) == ["b.d"]


def test_its_links_lead_to_pages_and_headings_of_ours() -> None:
    found = LINK.findall(README)
    assert len(found) == README.count("](")
    for url, heading in found:
        page = ROOT / url.removeprefix(REPOSITORY)
        assert page.is_file(), url
        titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert heading in {"", *(title.lower().replace(" ", "-") for title in titles)}, url


def test_every_command_in_it_is_one() -> None:
    found = commands(README)
    assert len(found) == 8
    assert [problem for words in found for problem in problems(words)] == []


def test_its_values_are_taken() -> None:
    (block,) = re.findall(r"^ *```yaml\n(.*?)^ *```", README, re.MULTILINE | re.DOTALL)
    assert rendered(block)


def test_it_loads_nothing_from_elsewhere() -> None:
    assert "![" not in README
    assert "<img" not in README

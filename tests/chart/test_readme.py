"""The chart's README: generated from the values, with valid links, commands and examples."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from tests.testkit.chart.documented_commands import commands, unknown_options
from tests.testkit.chart.rendering import CHART, render
from tests.testkit.control_plane.build import Programs
from tests.testkit.paths import ROOT
from tools.chart_files import readme

README = (CHART / "README.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| ([\w.]+) \| \w+ \| (.*) \| (.*) \|$", re.MULTILINE)
LINK = re.compile(r"\]\((https?://[^)#]+)(?:#([^)]+))?\)")
REPOSITORY = "https://github.com/gpuward/gpuward/blob/main/"


def test_the_readme_is_up_to_date(chart_tools: Programs) -> None:
    hint = "README.md is stale: run make docs"
    assert readme(chart_tools["helm-docs"]) == README, hint


def undocumented_values(
    values: dict[str, Any], described: set[str], prefix: str = ""
) -> Iterator[str]:
    """Every value that has no row in the table, neither itself nor a value that contains it."""
    for key, value in values.items():
        key_path = f"{prefix}{key}"
        if key_path in described:
            continue
        if isinstance(value, dict) and value:
            yield from undocumented_values(value, described, f"{key_path}.")
        else:
            yield key_path


def test_every_value_has_a_description() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    rows = ROW.findall(README)
    assert list(undocumented_values(values, {key for key, _, _ in rows})) == []
    assert all(default and len(text) > 5 for _, default, text in rows)


def test_a_value_without_a_description_is_found() -> None:
    described = {"a", "b.c"}
    assert list(undocumented_values({"a": {"x": 1}, "b": {"c": 1, "d": 2}}, described)) == ["b.d"]


def test_its_links_point_to_existing_pages_and_headings() -> None:
    found = LINK.findall(README)
    assert len(found) == README.count("](")
    for url, heading in found:
        page = ROOT / url.removeprefix(REPOSITORY)
        assert page.is_file(), url
        titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert heading in {"", *(title.lower().replace(" ", "-") for title in titles)}, url


# A page of the documentation, with what is before it in the same word.
PAGE = re.compile(r"([^\s`(<\"]*)docs/([\w./-]+\.md)(?:#([\w-]+))?")


def test_what_the_chart_brings_names_pages_by_their_addresses() -> None:
    files = (p for p in CHART.rglob("*") if p.suffix in {".yaml", ".json", ".tpl", ".txt", ".md"})
    found = [page for file in files for page in PAGE.findall(file.read_text(encoding="utf-8"))]
    assert len(found) > 20
    for before, name, heading in found:
        assert f"{before}docs/" == f"{REPOSITORY}docs/", name
        page = (ROOT / "docs" / name).read_text(encoding="utf-8")
        titles = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
        assert heading in {"", *(title.lower().replace(" ", "-") for title in titles)}, name


def test_every_command_of_the_readme_is_valid() -> None:
    found = commands(README)
    assert len(found) == 8
    assert [problem for words in found for problem in unknown_options(words)] == []


def test_its_example_values_are_accepted() -> None:
    (block,) = re.findall(r"^ *```yaml\n(.*?)^ *```", README, re.MULTILINE | re.DOTALL)
    assert render(block)


def test_it_has_no_external_images() -> None:
    assert "![" not in README
    assert "<img" not in README

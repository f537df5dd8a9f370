"""Packages stay few enough to be held in mind: docs/decisions/0032."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path

from tests.testkit.paths import ROOT

MAX_PACKAGES = 12
MAX_MODULES = 15  # of a folder; families of the catalog hold nothing but rules
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES: list[str] = SETTINGS["tool"]["importlinter"]["root_packages"]


def folders() -> dict[Path, int]:
    modules = (file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))
    return Counter(file.parent for file in modules if file.name != "__init__.py")


def test_there_are_few_top_level_packages() -> None:
    with_modules = {file.relative_to(ROOT).parts[0] for file in ROOT.glob("*/__init__.py")}
    assert with_modules - {"benchmarks", "tests"} == set(PACKAGES)
    assert len(PACKAGES) <= MAX_PACKAGES


def test_no_folder_has_many_modules() -> None:
    catalog = ROOT / "rules" / "catalog"
    crowded = {
        str(folder.relative_to(ROOT)): number
        for folder, number in folders().items()
        if number > MAX_MODULES and folder.parent != catalog
    }
    assert crowded == {}, "divide these folders by subject"

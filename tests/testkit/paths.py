"""Folders of the repository that tests refer to."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
DATA = TESTS / "data"
CASES = TESTS / "cases"
CHART = ROOT / "charts" / "gpuward"
DOCS = ROOT / "docs"

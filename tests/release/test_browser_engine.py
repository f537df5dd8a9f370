"""The archive of the engine that runs in a browser's tab."""

from __future__ import annotations

from pathlib import Path

from tools import browser_engine


def test_the_archive_is_the_same_from_the_same_files(tmp_path: Path) -> None:
    one, other = tmp_path / "one.zip", tmp_path / "other.zip"
    browser_engine.write_engine(one)
    browser_engine.write_engine(other)
    assert one.read_bytes() == other.read_bytes()
    assert one.stat().st_size < 3 << 20

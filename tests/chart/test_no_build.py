"""`make test-fast` builds nothing: what is missing is reported at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.testkit.control_plane.toolchain import BuildError, build_once


def test_what_is_not_built_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUWARD_NO_BUILD", "1")
    with (
        pytest.raises(BuildError, match="helm-1 is not built yet"),
        build_once(tmp_path / "helm-1"),
    ):
        pytest.fail("something is built")
    assert list(tmp_path.iterdir()) == []


def test_what_is_built_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPUWARD_NO_BUILD", raising=False)
    with build_once(tmp_path / "helm-1") as folder:
        assert folder is not None
    monkeypatch.setenv("GPUWARD_NO_BUILD", "1")
    with build_once(tmp_path / "helm-1") as folder:
        assert folder is None

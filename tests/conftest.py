"""What every test shares: where the corpus is, and what a missing part means."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import settings

# How long an example takes depends on the machine, and no test may depend on that.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

pytest_plugins = ("controlplane.fixtures", "admitting")

ROOT = Path(__file__).parents[1]


def missing(what: str) -> NoReturn:
    """Skip a test for want of something; where nothing may be skipped, fail it."""
    if os.environ.get("GPUWARD_NO_SKIPS"):
        pytest.fail(f"{what}, and here no test may be skipped")
    pytest.skip(what)


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The folder of public GPU manifests; only developers and CI have it."""
    folder = Path(os.environ.get("GPUWARD_CORPUS", ROOT.parent / "shared" / "corpus"))
    if not folder.is_dir():
        missing("the corpus of public manifests is not here")
    return folder


@pytest.fixture(scope="session")
def git() -> str:
    """The git command."""
    found = shutil.which("git")
    if found is None:
        missing("git is not installed")
    return found

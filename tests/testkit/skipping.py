"""Skips a test that needs something which is not installed, unless skipping is forbidden."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def skip_missing(what: str) -> NoReturn:
    """Skip the test because of `what`; fail it if GPUWARD_NO_SKIPS is set, as in CI."""
    if os.environ.get("GPUWARD_NO_SKIPS"):
        pytest.fail(f"{what}, and GPUWARD_NO_SKIPS forbids skipping")
    pytest.skip(what)

"""The seeds of tests that search among random inputs."""

from __future__ import annotations

from typing import Any

import pytest


def random_seeds(first: int, count: int, *, fast: int = 1) -> list[Any]:
    """Return `count` seeds for `parametrize`; `make test-fast` runs only the first `fast`."""
    return [
        pytest.param(seed, marks=() if number < fast else pytest.mark.slow)
        for number, seed in enumerate(range(first, first + count))
    ]

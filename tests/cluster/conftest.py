"""Fixtures of the tests of failures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testkit.admission.fault_installation import Installation
from tests.testkit.control_plane.plane import ControlPlane


@pytest.fixture
def installation(plane: ControlPlane, tmp_path: Path) -> Iterator[Installation]:
    """Replicas behind a Service, registered for one strict and one lenient namespace."""
    with Installation(plane, tmp_path) as installation:
        yield installation

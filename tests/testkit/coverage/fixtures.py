"""What the tests of docs/coverage.md share."""

from __future__ import annotations

import pytest

from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.coverage.table import channels

EVERY = pytest.mark.parametrize("channel", channels(), ids=[c.name for c in channels()])
RUNTIME_CLASSES = ("nvidia", "kata-qemu-nvidia-gpu")


@pytest.fixture(scope="module")
def runtime_classes(plane: ControlPlane) -> None:
    """The classes that the claims speak of: without them the API server refuses the pods.

    Others may have made them; they stay, for nobody minds them.
    """
    path = "/apis/node.k8s.io/v1/runtimeclasses"
    for name in RUNTIME_CLASSES:
        made = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "runc"}
        answer = plane.request("POST", path, {**made, "metadata": {"name": name}})
        assert answer.status in (201, 409), answer

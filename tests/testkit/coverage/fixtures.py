"""The parametrization and the runtime classes that the tests of docs/coverage.md share."""

from __future__ import annotations

import pytest

from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.coverage.table import bypasses

EVERY_BYPASS = pytest.mark.parametrize("bypass", bypasses(), ids=[b.name for b in bypasses()])
RUNTIME_CLASSES = ("nvidia", "kata-qemu-nvidia-gpu")


@pytest.fixture(scope="module")
def runtime_classes(plane: ControlPlane) -> None:
    """Create the runtime classes that the pods name: without them the API server refuses the pods.

    Other tests may have created them already. They are not deleted, because they affect no test.
    """
    path = "/apis/node.k8s.io/v1/runtimeclasses"
    for name in RUNTIME_CLASSES:
        manifest = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "runc"}
        response = plane.request("POST", path, {**manifest, "metadata": {"name": name}})
        assert response.status in (201, 409), response

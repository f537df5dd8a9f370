"""`workloads: fix` at the real API server, with the trap that docs/admission.md tells of."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.testkit.admission.registered_webhook import create
from tests.testkit.admission.reviews import container, deployment
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import Processes
from tests.testkit.end_to_end.steps import apply, judging, running, stored, without_namespace

pytest_plugins = ["tests.testkit.end_to_end.fixtures"]
pytestmark = pytest.mark.usefixtures("tidy")


@pytest.fixture(scope="module")
def mended(
    plane: ControlPlane, processes: Processes, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A namespace whose policy has workloads fixed."""
    folder = tmp_path_factory.mktemp("workloads-fix")
    policy = "workloads: fix\n"
    with judging(plane, processes, folder, "gpuward-fixing", policy) as namespace:
        yield namespace


def asking(name: str, count: int) -> dict[str, Any]:
    """A Deployment whose container requests that many GPUs, without a limit."""
    requests = {"memory": "1Gi", **({"nvidia.com/gpu": count} if count else {})}
    made = without_namespace(deployment(container(resources={"requests": requests})))
    return {**made, "metadata": {"name": name}}


def limits_of(plane: ControlPlane, namespace: str, name: str) -> Any:
    """The limits in a Deployment's template."""
    template = stored(plane, "Deployment", namespace, name)["spec"]["template"]
    return template["spec"]["containers"][0]["resources"].get("limits")


def generation(plane: ControlPlane, namespace: str, name: str) -> Any:
    """How often the Deployment has been changed."""
    return stored(plane, "Deployment", namespace, name)["metadata"]["generation"]


def differences(plane: ControlPlane, namespace: str, manifest: Any) -> str:
    """What `kubectl diff` sees between a file and the cluster."""
    done = plane.kubectl("diff", "-n", namespace, "-f", "-", input=json.dumps(manifest))
    return done.stdout


@pytest.mark.usefixtures("gpu_node")
def test_a_deployment_that_only_requests_is_fixed_accepted_and_scheduled(
    plane: ControlPlane, mended: str
) -> None:
    done = apply(plane, mended, asking("trainer", 1))
    assert "Warning: gpuward [request-only] fixed in container" in done.stderr
    assert limits_of(plane, mended, "trainer") == {"nvidia.com/gpu": "1"}
    running(plane, mended)
    before = generation(plane, mended, "trainer")
    apply(plane, mended, asking("trainer", 1))
    assert generation(plane, mended, "trainer") == before
    assert differences(plane, mended, asking("trainer", 1)) == ""


def test_the_trap_when_the_owner_asks_for_more(plane: ControlPlane, mended: str) -> None:
    apply(plane, mended, asking("growing", 1))
    refused = apply(plane, mended, asking("growing", 2), check=False)
    assert refused.returncode == 1
    assert "must be equal to nvidia.com/gpu limit" in refused.stderr
    assert "gpuward [request-ne-limit]" in refused.stderr


def test_the_trap_when_the_owner_asks_for_none(plane: ControlPlane, mended: str) -> None:
    apply(plane, mended, asking("leaving", 1))
    without = asking("leaving", 0)
    apply(plane, mended, without)
    assert limits_of(plane, mended, "leaving") == {"nvidia.com/gpu": "1"}
    assert differences(plane, mended, without) == ""


def test_nothing_else_is_fixed_in_a_workload(plane: ControlPlane, mended: str) -> None:
    answer = create(plane, mended, asking("plain", 1), dry_run=True)
    assert answer.status == 201
    template = answer.body["spec"]["template"]
    assert "tolerations" not in template["spec"]
    assert "annotations" not in template["metadata"]

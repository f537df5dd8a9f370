"""`workloads: fix` at a real API server, with the side effects that docs/admission.md describes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.testkit.admission.registered_webhook import create
from tests.testkit.admission.reviews import container, deployment
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import Processes
from tests.testkit.end_to_end.steps import (
    apply,
    get_object,
    namespace_with_policy,
    wait_until_running,
    without_namespace,
)

pytest_plugins = ["tests.testkit.end_to_end.fixtures"]
pytestmark = pytest.mark.usefixtures("clean_up_pods")


@pytest.fixture(scope="module")
def fixing_namespace(
    plane: ControlPlane, processes: Processes, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A namespace whose policy fixes workloads."""
    folder = tmp_path_factory.mktemp("workloads-fix")
    policy = "workloads: fix\n"
    with namespace_with_policy(plane, processes, folder, "gpuward-fixing", policy) as namespace:
        yield namespace


def requesting_deployment(name: str, count: int) -> dict[str, Any]:
    """A Deployment whose container requests `count` GPUs, without a limit."""
    requests = {"memory": "1Gi", **({"nvidia.com/gpu": count} if count else {})}
    made = without_namespace(deployment(container(resources={"requests": requests})))
    return {**made, "metadata": {"name": name}}


def limits_of(plane: ControlPlane, namespace: str, name: str) -> Any:
    """The limits in a Deployment's template."""
    template = get_object(plane, "Deployment", namespace, name)["spec"]["template"]
    return template["spec"]["containers"][0]["resources"].get("limits")


def generation(plane: ControlPlane, namespace: str, name: str) -> Any:
    """The generation of a Deployment, which every change increases."""
    return get_object(plane, "Deployment", namespace, name)["metadata"]["generation"]


def differences(plane: ControlPlane, namespace: str, manifest: Any) -> str:
    """The output of `kubectl diff` for a manifest."""
    done = plane.kubectl("diff", "-n", namespace, "-f", "-", input=json.dumps(manifest))
    return done.stdout


@pytest.mark.usefixtures("gpu_node")
def test_a_deployment_that_only_requests_is_fixed_accepted_and_scheduled(
    plane: ControlPlane, fixing_namespace: str
) -> None:
    done = apply(plane, fixing_namespace, requesting_deployment("trainer", 1))
    assert "Warning: gpuward [request-only] fixed in container" in done.stderr
    assert limits_of(plane, fixing_namespace, "trainer") == {"nvidia.com/gpu": "1"}
    wait_until_running(plane, fixing_namespace)
    before = generation(plane, fixing_namespace, "trainer")
    apply(plane, fixing_namespace, requesting_deployment("trainer", 1))
    assert generation(plane, fixing_namespace, "trainer") == before
    assert differences(plane, fixing_namespace, requesting_deployment("trainer", 1)) == ""


def test_a_second_apply_with_a_larger_request_is_refused(
    plane: ControlPlane, fixing_namespace: str
) -> None:
    apply(plane, fixing_namespace, requesting_deployment("growing", 1))
    refused = apply(plane, fixing_namespace, requesting_deployment("growing", 2), check=False)
    assert refused.returncode == 1
    assert "must be equal to nvidia.com/gpu limit" in refused.stderr
    assert "gpuward [request-ne-limit]" in refused.stderr


def test_a_second_apply_without_the_request_keeps_the_added_limit(
    plane: ControlPlane, fixing_namespace: str
) -> None:
    apply(plane, fixing_namespace, requesting_deployment("leaving", 1))
    without = requesting_deployment("leaving", 0)
    apply(plane, fixing_namespace, without)
    assert limits_of(plane, fixing_namespace, "leaving") == {"nvidia.com/gpu": "1"}
    assert differences(plane, fixing_namespace, without) == ""


def test_nothing_else_is_fixed_in_a_workload(plane: ControlPlane, fixing_namespace: str) -> None:
    answer = create(plane, fixing_namespace, requesting_deployment("plain", 1), dry_run=True)
    assert answer.status == 201
    template = answer.body["spec"]["template"]
    assert "tolerations" not in template["spec"]
    assert "annotations" not in template["metadata"]

"""The creation of pods while all webhook servers are down."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.testkit.admission.enforcement import GPU_POD, SYSTEM, enforcement_in
from tests.testkit.admission.registered_webhook import create
from tests.testkit.admission.reviews import container, deployment, pod, variable
from tests.testkit.chart.installation import SLOW_MACHINE, Installation, merge_values
from tests.testkit.chart.kubelet import Kubelet
from tests.testkit.control_plane.client import Response
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually

pytest_plugins = ["tests.testkit.chart.fixtures"]

IGNORE = merge_values(SLOW_MACHINE, {"mode": "deny"})
FAIL = merge_values(IGNORE, {"registration": {"failurePolicy": "Fail"}})


@pytest.fixture(scope="module")
def serving(chart_plane: ControlPlane, kubelet: Kubelet) -> Iterator[Installation]:
    """An installation in mode deny; other modules test helm itself."""
    with Installation(chart_plane, kubelet, "helm4") as installation:
        installation.install(IGNORE)
        yield installation


def kill_all_servers(installation: Installation, namespace: str) -> None:
    """Wait until the webhook enforces, then kill every server."""
    eventually(
        lambda: enforcement_in(installation.plane, namespace) == "enforced",
        what="the webhook enforces",
    )
    for process in installation.pods():
        process.kill()
    eventually(lambda: not installation.pods(), what="all processes have ended")


def test_under_ignore_pods_are_admitted_without_evaluation(serving: Installation) -> None:
    serving.upgrade(IGNORE)
    namespace = serving.plane.namespace()
    kill_all_servers(serving, namespace)
    assert enforcement_in(serving.plane, namespace) == "silent"
    serving.restart()
    eventually(
        lambda: enforcement_in(serving.plane, namespace) == "enforced",
        what="the webhook enforces again",
    )


def test_under_fail_only_gpu_pods_are_refused_until_the_servers_are_back(
    serving: Installation,
) -> None:
    serving.upgrade(FAIL)
    plane, namespace = serving.plane, serving.plane.namespace()
    kill_all_servers(serving, namespace)

    def failing() -> Response | None:
        """The API server goes by the new failurePolicy a little later than helm writes it."""
        answer = create(plane, namespace, GPU_POD, dry_run=True)
        return answer if answer.status == 500 else None

    refused = eventually(failing, what="the failurePolicy Fail acts")
    assert refused is not None
    assert 'failed calling webhook "pods.deny.gpuward.io"' in refused.body["message"]
    # Pods that the matchConditions exclude, and workloads whose webhook only warns.
    assert create(plane, namespace, pod(container()), dry_run=True).status == 201
    gpu_deployment = deployment(container(**variable("all")))
    assert create(plane, namespace, gpu_deployment, dry_run=True).status == 201
    for excluded in (serving.namespace, *SYSTEM):
        assert create(plane, excluded, GPU_POD, dry_run=True).status == 201, excluded
    # The webhook does not block its own pods, so they can be created again.
    serving.restart()
    eventually(
        lambda: enforcement_in(plane, namespace) == "enforced", what="the webhook enforces again"
    )

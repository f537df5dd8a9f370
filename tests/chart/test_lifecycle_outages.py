"""What becomes of pods while the servers of an installation change, or have all crashed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.testkit.admission.enforcement import HOLDER, SYSTEM, treatment
from tests.testkit.admission.pod_creator import PodMaker
from tests.testkit.admission.registered_webhook import create
from tests.testkit.admission.reviews import container, deployment, pod, variable
from tests.testkit.chart.installation import PATIENT, Installed, merged
from tests.testkit.chart.kubelet import Kubelet
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually, is_alive

pytest_plugins = ["tests.testkit.chart.fixtures"]

IGNORE = merged(PATIENT, {"mode": "deny"})
FAIL = merged(IGNORE, {"registration": {"failurePolicy": "Fail"}})


@pytest.fixture(scope="module")
def serving(chart_plane: ControlPlane, kubelet: Kubelet) -> Iterator[Installed]:
    """An installation in mode deny; what helm does about it is told elsewhere."""
    with Installed(chart_plane, kubelet, "helm4") as installed:
        installed.install(IGNORE)
        yield installed


def crashed(installed: Installed, namespace: str) -> None:
    """Kill every server, once it is in force."""
    eventually(lambda: treatment(installed.plane, namespace) == "enforced", what="it is in force")
    for process in installed.pods():
        process.kill()
    eventually(lambda: not installed.pods(), what="no process is left")


def test_under_ignore_pods_pass_unjudged(serving: Installed) -> None:
    serving.upgrade(IGNORE)
    namespace = serving.plane.namespace()
    crashed(serving, namespace)
    assert treatment(serving.plane, namespace) == "silent"
    serving.restart()
    eventually(lambda: treatment(serving.plane, namespace) == "enforced", what="it is back")


def test_under_fail_only_what_concerns_gpus_is_held_up_until_it_is_back(serving: Installed) -> None:
    serving.upgrade(FAIL)
    plane, namespace = serving.plane, serving.plane.namespace()
    crashed(serving, namespace)
    held = create(plane, namespace, HOLDER, dry_run=True)
    assert held.status == 500
    assert 'failed calling webhook "pods.deny.gpuward.io"' in held.body["message"]
    # What API servers themselves tell apart, and what is only spoken of.
    assert create(plane, namespace, pod(container()), dry_run=True).status == 201
    taking = deployment(container(**variable("all")))
    assert create(plane, namespace, taking, dry_run=True).status == 201
    for away in (serving.namespace, *SYSTEM):
        assert create(plane, away, HOLDER, dry_run=True).status == 201, away
    # Its own pods are held up by nobody, so they can be made again.
    serving.restart()
    eventually(lambda: treatment(plane, namespace) == "enforced", what="it is back")


def test_new_servers_take_over_without_a_gap(serving: Installed) -> None:
    fail = merged(FAIL, {"drainSeconds": 3})
    serving.upgrade(fail)
    plane, namespace = serving.plane, serving.plane.namespace()
    eventually(lambda: treatment(plane, namespace) == "enforced", what="it is in force")
    old = {pod.process_id for pod in serving.pods()}
    with PodMaker(plane, namespace) as maker:
        maker.goes_on()
        serving.upgrade(merged(fail, {"logLevel": "debug"}))
        eventually(lambda: not any(map(is_alive, old)), what="the old ones have left")
        maker.goes_on()
    assert not maker.not_evaluated
    assert len({pod.process_id for pod in serving.pods()} - old) == 2

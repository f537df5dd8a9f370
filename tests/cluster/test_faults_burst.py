"""A thousand pods at once, and large pods whose last container breaks a rule."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.testkit.admission.fault_installation import Installation
from tests.testkit.admission.fault_load import CREATED, LOG, counts, is_refused
from tests.testkit.admission.registered_webhook import create
from tests.testkit.admission.reviews import container, gpus, pod, variable
from tests.testkit.admission.server_process import Server
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually

GANG_SIZE = 1000
MEBIBYTE = 1024 * 1024
BAD = variable("all")["env"]


@pytest.fixture(scope="module")
def installation(
    plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    with Installation(plane, tmp_path_factory.mktemp("installation")) as installation:
        yield installation


@pytest.fixture(scope="module")
def replica(installation: Installation) -> Server:
    started = installation.replica()
    installation.wait_until_enforced()
    return started


def padding(number: int, name: int = 0, value: int = 0) -> list[dict[str, str]]:
    """`number` variables, with names and values of the given lengths."""
    text = "1" * value
    return [{"name": f"V{n}".ljust(name, "_"), "value": text} for n in range(number)]


def padded_pod(containers: int, variables: list[dict[str, str]]) -> dict[str, Any]:
    """A pod of which only the last variable breaks a rule."""
    made = [container(f"c{n}", env=variables) for n in range(containers - 1)]
    return pod(*made, container("last", env=[*variables, *BAD]))


PADDED = {
    "100 containers of 1,000 variables": padded_pod(100, padding(1000, value=4)),
    "30,000 variables in one container": padded_pod(1, padding(30_000, value=60)),
    "32 containers of 240 long names": padded_pod(32, padding(240, name=380)),
}


@pytest.mark.parametrize("shape", PADDED)
def test_padding_hides_nothing(
    shape: str, plane: ControlPlane, installation: Installation, replica: Server
) -> None:
    body = json.dumps(PADDED[shape], separators=(",", ":")).encode()
    before, cpu_before = counts(plane), cpu_seconds(replica)
    for namespace in (installation.strict, installation.lenient):
        sent = body.replace(b"team-vision", namespace.encode())
        started = time.perf_counter()
        answer = plane.request("POST", f"/api/v1/namespaces/{namespace}/pods", sent)
        LOG.info("%s: %.1f MB, %.2f s", shape, len(sent) / 1e6, time.perf_counter() - started)
        assert is_refused(answer), str(answer.body)[:1000]
    counted = counts(plane).since(before)
    assert counted.failed == 0
    assert counted.failed_open == 0
    cost = (cpu_seconds(replica) - cpu_before) / counted.calls
    LOG.info("%.2f s of processor time a request, %d requests", cost, counted.calls)
    assert cost < 1


def cpu_seconds(server: Server) -> float:
    """The processor time of the server process."""
    return server.metric("process_cpu_seconds_total")


def test_every_pod_of_a_job_with_a_thousand_pods_is_evaluated(
    plane: ControlPlane, installation: Installation, replica: Server
) -> None:
    namespace = installation.lenient
    before = counts(plane)
    job = f"/apis/batch/v1/namespaces/{namespace}/jobs/gang"
    try:
        assert create(plane, namespace, gang()).status == CREATED
        eventually(
            lambda: plane.request("GET", f"{job}/status").body["status"].get("active") == GANG_SIZE,
            seconds=300,
            what="all pods of the gang are there",
        )
        made = plane.request("GET", f"/api/v1/namespaces/{namespace}/pods").body["items"]
    finally:
        plane.request("DELETE", f"{job}?propagationPolicy=Background")
    counted = counts(plane).since(before)
    fixed = replica.metric("gpuward_requests_total", outcome="fixed")
    LOG.info("%s, %d connections", counted, installation.forwarder.accepted)
    assert len(made) == GANG_SIZE
    assert all("gpuward.io/fixed" in one["metadata"].get("annotations", {}) for one in made)
    assert fixed >= GANG_SIZE
    assert counted.calls >= 2 * GANG_SIZE
    assert counted.failed_open == 0


def gang() -> dict[str, Any]:
    """A Job with `GANG_SIZE` parallel pods, which no scheduler places."""
    worker = container(**gpus(limits=1), **variable("all"))
    template = {"spec": pod(worker, restartPolicy="Never", schedulerName="nobody")["spec"]}
    spec = {"parallelism": GANG_SIZE, "completions": GANG_SIZE, "template": template}
    metadata = {"name": "gang"}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}

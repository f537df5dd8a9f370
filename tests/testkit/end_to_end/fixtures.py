"""Fixtures of the stories that are told at the real API server: a pytest plugin."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from registration.configurations import MODE_LABEL
from tests.testkit.admission.registered_webhook import (
    Server,
    by_service,
    folder_of,
    is_enforced,
    registered,
)
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import Processes, eventually
from tests.testkit.end_to_end.steps import AT_ONCE, DENY, PATHS, pods_of

PORT = 8443
_NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def tidy(plane: ControlPlane) -> Iterator[None]:
    """Leaves no pod behind that would wait for the GPUs of other tests."""
    before = set(namespaces(plane))
    yield
    made = [name for name in namespaces(plane) if name not in before]
    eventually(lambda: sum(swept(plane, name) for name in made) == 0, what="the pods are gone")


def namespaces(plane: ControlPlane) -> list[str]:
    """Their names."""
    found = plane.request("GET", "/api/v1/namespaces").body["items"]
    return [namespace["metadata"]["name"] for namespace in found]


def swept(plane: ControlPlane, namespace: str) -> int:
    """Delete what is in a namespace; how many pods were there."""
    for kind in ("Deployment", "CronJob", "Job", "Pod"):
        how = "gracePeriodSeconds=0&propagationPolicy=Background"
        plane.request("DELETE", f"{PATHS[kind].format(namespace)}?{how}")
    return len(pods_of(plane, namespace))


@pytest.fixture(scope="module")
def gpu_node(plane: ControlPlane) -> Iterator[str]:
    """A node with many GPUs and the taint that keeps others away; gone after the module."""
    name = f"gpu-stories-{next(_NUMBERS)}"
    plane.gpu_node(name, gpus=64, labels={"nvidia.com/gpu.present": "true"})
    yield name
    plane.request("DELETE", f"/api/v1/nodes/{name}")


@pytest.fixture(scope="session")
def behind_a_service(
    plane: ControlPlane, processes: Processes, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A namespace that is judged by a server behind a real Service."""
    home, judged = plane.namespace(), plane.namespace()
    host = f"gpuward.{home}.svc"
    address = plane.expose("gpuward", home, PORT)
    folder = tmp_path_factory.mktemp("behind-a-service")
    pair = plane.authority.issue("gpuward-service", hosts=[host])
    certificate = folder_of(pair, folder / "certificate")
    listen = f"{address}:{PORT}"
    Server(processes, folder, certificate, name="gpuward-service", listen=listen, arguments=AT_ONCE)
    config = by_service("gpuward", home, PORT, plane.authority.bundle)
    with registered(plane, config, DENY, name="gpuward-service", only=judged):
        eventually(lambda: is_enforced(plane, judged), what="the Service is called")
        yield judged


@pytest.fixture(params=["url", "service"])
def judged(request: pytest.FixtureRequest, plane: ControlPlane) -> Iterator[str]:
    """A namespace in mode deny, whose server is called by its URL or by its Service."""
    if request.param == "service":
        namespace: str = request.getfixturevalue("behind_a_service")
        yield namespace
        eventually(lambda: swept(plane, namespace) == 0, what="the namespace is empty again")
    else:
        request.getfixturevalue("server")
        yield plane.namespace({MODE_LABEL: "deny"})

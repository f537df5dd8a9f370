"""Fixtures of the end-to-end tests with a real API server: a pytest plugin."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.testkit.admission.registered_webhook import by_service, is_enforced, registered
from tests.testkit.admission.server_process import Server, folder_of
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import Processes, eventually
from tests.testkit.end_to_end.steps import DENY, NO_DRAIN, PATHS
from webhook.registration import MODE_LABEL

PORT = 8443
OWNERS = ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController")
KINDS = (*OWNERS, "CronJob", "Job", "Pod")
_NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def clean_up_pods(plane: ControlPlane) -> Iterator[None]:
    """Delete the pods of the module, which would otherwise take the GPUs of other tests."""
    before = set(list_namespaces(plane))
    yield
    made = [name for name in list_namespaces(plane) if name not in before]
    eventually(
        lambda: sum(delete_objects(plane, name) for name in made) == 0, what="the pods are gone"
    )


def list_namespaces(plane: ControlPlane) -> list[str]:
    """The names of all namespaces."""
    found = plane.request("GET", "/api/v1/namespaces").body["items"]
    return [namespace["metadata"]["name"] for namespace in found]


def delete_objects(plane: ControlPlane, namespace: str) -> int:
    """Delete the objects in a namespace, and return how many are left.

    An owner that is left would create its pods again.
    """
    paths = [PATHS[kind].format(namespace) for kind in KINDS]
    options = "gracePeriodSeconds=0&propagationPolicy=Background"
    for path in paths:
        plane.request("DELETE", f"{path}?{options}")
    return sum(len(plane.request("GET", path).body["items"]) for path in paths)


@pytest.fixture(scope="module")
def gpu_node(plane: ControlPlane) -> Iterator[str]:
    """A node with many GPUs and the taint of GPU nodes; deleted after the module."""
    name = f"gpu-end-to-end-{next(_NUMBERS)}"
    plane.gpu_node(name, gpus=64, labels={"nvidia.com/gpu.present": "true"})
    yield name
    plane.request("DELETE", f"/api/v1/nodes/{name}")


@pytest.fixture(scope="session")
def service_namespace(
    plane: ControlPlane, processes: Processes, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A namespace in mode deny whose webhook server is registered by its Service."""
    home, enforced = plane.namespace(), plane.namespace()
    host = f"gpuward.{home}.svc"
    address = plane.expose("gpuward", home, PORT)
    folder = tmp_path_factory.mktemp("behind-a-service")
    pair = plane.authority.issue("gpuward-service", hosts=[host])
    certificate = folder_of(pair, folder / "certificate")
    listen = f"{address}:{PORT}"
    Server(
        processes, folder, certificate, name="gpuward-service", listen=listen, arguments=NO_DRAIN
    )
    config = by_service("gpuward", home, PORT, plane.authority.bundle)
    with registered(plane, config, DENY, name="gpuward-service", only=enforced):
        eventually(lambda: is_enforced(plane, enforced), what="the Service is called")
        yield enforced


@pytest.fixture(params=["url", "service"])
def enforced_namespace(request: pytest.FixtureRequest, plane: ControlPlane) -> Iterator[str]:
    """A namespace in mode deny whose webhook server is registered by its URL or its Service."""
    if request.param == "service":
        namespace: str = request.getfixturevalue("service_namespace")
        yield namespace
        eventually(
            lambda: delete_objects(plane, namespace) == 0, what="the namespace is empty again"
        )
    else:
        request.getfixturevalue("server")
        yield plane.namespace({MODE_LABEL: "deny"})

"""A real API server admits the pods of GPU platforms' own projects, in mode deny."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from tests.testkit.admission.registered_webhook import create, is_enforced
from tests.testkit.admission.server_process import Server
from tests.testkit.control_plane.objects import namespace as namespace_object
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually
from tests.testkit.coverage.fixtures import runtime_classes
from tests.testkit.platform_agents import PlatformAgent, platform_agents
from webhook.registration import MODE_LABEL

__all__ = ["runtime_classes"]
pytestmark = pytest.mark.usefixtures("runtime_classes", "server")
# Namespaces that no other test uses, and that gpuward evaluates.
NAMESPACES = (
    *("nvidia-network-operator", "nvidia-dra-driver-gpu", "nvidia-device-plugin", "monitoring"),
    *("node-feature-discovery", "kubevirt"),
)
AGENTS = [agent for agent in platform_agents() if agent.namespace in NAMESPACES]


@pytest.fixture(scope="module")
def namespaces(plane: ControlPlane, server: Server) -> Iterator[None]:
    """The namespaces in mode deny, with the service accounts of the agents."""
    assert server.url
    for name in NAMESPACES:
        plane.create("/api/v1/namespaces", namespace_object(name, {MODE_LABEL: "deny"}))
    for name, account in {(a.namespace, a.pod["spec"]["serviceAccountName"]) for a in AGENTS}:
        manifest = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}}
        answer = plane.request("POST", f"/api/v1/namespaces/{name}/serviceaccounts", manifest)
        assert answer.status in (201, 409), answer
    for name in NAMESPACES:
        eventually(partial(is_enforced, plane, name), what=f"{name} is enforced")
    yield
    for name in NAMESPACES:
        plane.request("DELETE", f"/api/v1/namespaces/{name}")


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.id)
@pytest.mark.usefixtures("namespaces")
def test_the_pod_is_admitted_and_keeps_its_gpus(plane: ControlPlane, agent: PlatformAgent) -> None:
    answer = create(plane, agent.namespace, agent.pod, dry_run=True, user=agent.user)
    assert answer.status == 201, answer
    sent = {c["name"]: c.get("env", []) for c in agent.pod["spec"]["containers"]}
    for container in answer.body["spec"]["containers"]:
        if container["name"] in agent.agents:
            assert container.get("env", []) == sent[container["name"]]

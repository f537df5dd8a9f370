"""The command about a real cluster: what changes there is on the page."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest

from tests.testkit.control_plane.objects import gpu_node
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually, free_port
from tests.testkit.paths import ROOT

MODEL = "Console-Test-GPU"
NODE = "console-test"
# Pods of other tests wait for whole cards, and would take those of the new node.
RESOURCE = "nvidia.com/mig-2g.35gb"


@pytest.fixture
def address(plane: ControlPlane) -> Iterator[str]:
    """The address of a console that runs as a process of its own."""
    port = free_port()
    options = ["--kubeconfig", str(plane.kubeconfig), "--port", str(port), "--isolated"]
    command = [sys.executable, "-m", "gpuward", "console", *options]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        yield f"http://localhost:{port}"
        process.terminate()
        _, errors = process.communicate(timeout=30)
    assert f"http://localhost:{port}/ until Ctrl-C" in errors
    assert "Traceback" not in errors


def asked(address: str) -> Any:
    """The JSON at an address; None as long as there is no answer."""
    request = Request(address, headers={"Accept": "application/json"})  # noqa: S310  # our own
    try:
        with urlopen(request, timeout=30) as answer:  # noqa: S310  # the same
            return json.load(answer)
    except (HTTPError, URLError, ConnectionError):
        return None


def our_node(address: str) -> Any:
    document = asked(f"{address}/?model={MODEL}")
    return next(iter(document["nodes"]), None) if document else None


def test_what_changes_in_the_cluster_is_on_the_page(plane: ControlPlane, address: str) -> None:
    eventually(lambda: asked(address) is not None)
    assert our_node(address) is None
    label = {"nvidia.com/gpu.product": MODEL}
    plane.create("/api/v1/nodes", gpu_node(NODE, RESOURCE, 8, label, taint=True))
    try:
        eventually(lambda: our_node(address) is not None)
        home = plane.namespace()
        limits = {RESOURCE: "3"}
        container = {"name": "main", "image": "i", "resources": {"limits": limits}}
        path = f"/api/v1/namespaces/{home}/pods"
        spec: dict[str, Any] = {"containers": [container], "nodeSelector": label}
        plane.create(path, {"metadata": {"name": "waits"}, "spec": spec})
        taint = f"the pod does not tolerate the taint {RESOURCE}=present:NoSchedule"
        why = f"{address}/pods/{home}/waits"
        eventually(lambda: taint in (asked(why) or {"verdict": ""})["verdict"])
        spec["tolerations"] = [{"key": RESOURCE, "operator": "Exists"}]
        plane.create(path, {"metadata": {"name": "runs"}, "spec": spec})
        eventually(lambda: our_node(address)["resources"][0]["allocated"] == 3)
        findings = f"{address}/findings?namespace={home}&level=note"
        eventually(lambda: asked(findings)["findings"], what="there are findings")
    finally:
        answer = plane.request("DELETE", f"/api/v1/nodes/{NODE}")
        assert answer.status == HTTPStatus.OK
    eventually(lambda: our_node(address) is None)

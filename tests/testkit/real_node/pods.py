"""Pods of tests on a node: create them, wait for their containers, and see what these got."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from tests.testkit.container_runtime.node import Answer, shown
from tests.testkit.control_plane.client import Response
from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.control_plane.processes import eventually
from tests.testkit.real_node.node import SHOW_DEVICES, RealNode

_NEVER_STARTS = {"CreateContainerError", "RunContainerError", "CreateContainerConfigError"}
_START_ERROR = "StartError"
SECONDS = 120
"""How long the pods of a test may take together, on a slow machine."""


def create_pod(
    plane: Cluster, namespace: str, manifest: Mapping[str, Any], user: str = ""
) -> Response:
    """Create a pod, whose containers are not restarted, as admin or as `user`."""
    spec = {"restartPolicy": "Never", **manifest["spec"]}
    headers = {"Impersonate-User": user, "Impersonate-Group": "system:masters"} if user else {}
    body = {**manifest, "metadata": {**manifest["metadata"], "namespace": namespace}, "spec": spec}
    return plane.request("POST", f"/api/v1/namespaces/{namespace}/pods", body, headers)


def waiting_pod(node: RealNode, namespace: str, name: str, manifest: Mapping[str, Any]) -> Any:
    """Create a pod whose containers wait, and return it once they run; see `devices`."""
    spec = copy.deepcopy(manifest["spec"])
    for container in spec["containers"]:
        container |= {"image": SHOW_DEVICES, "command": ["/pause"]}
    metadata = {**manifest.get("metadata", {}), "name": name}
    made = {**manifest, "metadata": metadata, "spec": spec}
    answered = create_pod(node.plane, namespace, made)
    assert answered.status == HTTPStatus.CREATED, answered
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"

    def runs() -> Any:
        found = node.plane.request("GET", path).body
        return found if found["status"].get("phase") in {"Running", "Failed"} else None

    found = eventually(runs, seconds=SECONDS, what=f"{name} runs")
    assert found["status"]["phase"] == "Running", found["status"]
    return found


def devices(node: RealNode, namespace: str, pod: str, container: str = "main") -> Answer:
    """Return what a waiting container has."""
    command = ("exec", "-n", namespace, pod, f"--container={container}", "--")
    return shown(node.plane.kubectl(*command, "/show-devices", "mounts").stdout)


def wait(what: str, condition: Callable[[], object]) -> None:
    """Wait until the condition is met."""
    eventually(condition, seconds=SECONDS, what=what)


def pods(plane: Cluster, namespace: str) -> list[Any]:
    """The pods of a namespace."""
    found: list[Any] = plane.request("GET", f"/api/v1/namespaces/{namespace}/pods").body["items"]
    return found


def bind(plane: Cluster, pod: Any, node: str) -> None:
    """Do what the pod's scheduler would do, where that scheduler does not run."""
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    plane.create(
        f"/api/v1/namespaces/{namespace}/pods/{name}/binding",
        {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target},
    )


def container_status(pod: Any, name: str) -> Any:
    """The status of a container; empty before the kubelet has written one."""
    status = pod.get("status", {})
    kinds = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
    found = [one for kind in kinds for one in status.get(kind, ()) if one["name"] == name]
    return found[0] if found else {}


def has_ended(pod: Any, name: str) -> bool:
    """Return whether a container has run to its end, or can never start."""
    status = container_status(pod, name)
    states = [status.get("state", {}), status.get("lastState", {})]
    reason = states[0].get("waiting", {}).get("reason")
    return any("terminated" in state for state in states) or reason in _NEVER_STARTS


def answer(plane: Cluster, pod: Any, name: str = "main") -> Answer:
    """Return what a container got that has ended and ran show-devices."""
    status = container_status(pod, name)
    for state in (status.get("state", {}), status.get("lastState", {})):
        waiting, ended = state.get("waiting", {}), state.get("terminated", {})
        if waiting.get("reason") in _NEVER_STARTS:
            return Answer(frozenset(), error=waiting["message"])
        if ended.get("reason") == _START_ERROR:
            return Answer(frozenset(), error=ended["message"])
    return shown(log(plane, pod, name))


def log(plane: Cluster, pod: Any, name: str) -> str:
    """The output of a container, or before it was restarted."""
    return eventually(lambda: _log(plane, pod, name), seconds=SECONDS, what=f"the log of {name}")


def _log(plane: Cluster, pod: Any, name: str) -> str:
    metadata = pod["metadata"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/log"
    for previous in ("false", "true"):
        found = plane.request("GET", f"{path}?container={name}&previous={previous}")
        body = found.body
        text = json.dumps(body) if isinstance(body, dict) else str(body)
        # A kubelet answers so, with 200, while it replaces the container.
        is_gone = text.startswith("unable to retrieve container logs")
        if found.status == 200 and text.strip() and not is_gone:
            return text
    raise AssertionError(f"{metadata['name']}: {found}")

"""Steps of the end-to-end tests with a real API server: what a user does and reads."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rules.finding import Action
from tests.testkit.admission.registered_webhook import by_url, is_enforced, registered
from tests.testkit.admission.server_process import Server, folder_of
from tests.testkit.control_plane.client import Response
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import Processes, eventually
from webhook.registration import RegistrationOptions

PLACEMENT_FIXES = ("toleration-default", "affinity-default")
# For registrations of one namespace. The long timeout avoids timeouts on slow machines.
DENY = RegistrationOptions(default=Action.DENY, timeout_seconds=30)
# No traffic has to move to another replica when a test ends.
NO_DRAIN = ("--drain-seconds", "0")
FIXED = "gpuward.io/fixed"
PATHS = {
    "Pod": "/api/v1/namespaces/{}/pods",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "ReplicaSet": "/apis/apps/v1/namespaces/{}/replicasets",
    "StatefulSet": "/apis/apps/v1/namespaces/{}/statefulsets",
    "DaemonSet": "/apis/apps/v1/namespaces/{}/daemonsets",
    "ReplicationController": "/api/v1/namespaces/{}/replicationcontrollers",
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "CronJob": "/apis/batch/v1/namespaces/{}/cronjobs",
    "ResourceQuota": "/api/v1/namespaces/{}/resourcequotas",
}


@contextmanager
def namespace_with_policy(
    plane: ControlPlane,
    processes: Processes,
    folder: Path,
    name: str,
    policy: str,
    *arguments: str,
) -> Iterator[str]:
    """A namespace in mode deny, with a webhook server whose policy has the keys `policy`.

    `arguments` are more of the server's.
    """
    namespace = plane.namespace()
    pair = plane.authority.issue(name, hosts=["127.0.0.1"])
    certificate = folder_of(pair, folder / "certificate")
    server = Server(
        processes, folder, certificate, policy, name=name, arguments=(*NO_DRAIN, *arguments)
    )
    config = by_url(server.url, plane.authority.bundle)
    with registered(plane, config, DENY, name=name, only=namespace):
        eventually(lambda: is_enforced(plane, namespace), what="the webhook is called")
        yield namespace


def api_path(kind: str, namespace: str, name: str = "", subresource: str = "") -> str:
    """The API path of the objects of a kind, of one object, or of its subresource."""
    return "/".join(filter(None, (PATHS[kind].format(namespace), name, subresource)))


def get_object(plane: ControlPlane, kind: str, namespace: str, name: str) -> Any:
    """An object as the API server has stored it."""
    answer = plane.request("GET", api_path(kind, namespace, name))
    assert answer.status == 200, answer.body
    return answer.body


def apply(
    plane: ControlPlane, namespace: str, manifest: Any, *arguments: str, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """`kubectl apply` of a manifest, or of a file's text, in a namespace."""
    text = manifest if isinstance(manifest, str) else json.dumps(without_namespace(manifest))
    return plane.kubectl(
        *("apply", "-n", namespace, "-f", "-", *arguments), input=text, check=check
    )


def without_namespace(manifest: Any) -> Any:
    """`manifest` without a namespace."""
    metadata = {k: v for k, v in manifest["metadata"].items() if k != "namespace"}
    return {**manifest, "metadata": metadata}


def patch(
    plane: ControlPlane, path: str, body: Any, *, patch_type: str = "strategic-merge-patch"
) -> Response:
    """Send a PATCH of the given type."""
    return plane.request("PATCH", path, body, content_type=f"application/{patch_type}+json")


def list_pods(plane: ControlPlane, namespace: str) -> list[Any]:
    """The pods in a namespace."""
    found: list[Any] = plane.request("GET", api_path("Pod", namespace)).body["items"]
    return found


def wait_until_running(plane: ControlPlane, namespace: str, count: int = 1) -> list[Any]:
    """The pods of a namespace once `count` of them have run on a node."""

    def get_matching() -> list[Any]:
        found = list_pods(plane, namespace)
        ran = [p for p in found if p["status"].get("phase") in ("Running", "Succeeded")]
        return ran if len(ran) >= count else []

    return eventually(get_matching, what=f"{count} pods of {namespace} run")


def fixing_rules(manifest: Any) -> set[str]:
    """The rules that have fixed a pod, according to its annotation."""
    annotations = manifest["metadata"].get("annotations", {})
    return set(filter(None, annotations.get(FIXED, "").split(",")))


def audit_annotations(plane: ControlPlane, namespace: str, name: str) -> dict[str, str]:
    """Wait for the audit event of an object's creation, and return gpuward's annotations in it."""

    def get_matching() -> list[dict[str, str]]:
        return [
            event.get("annotations", {})
            for event in plane.audit_events()
            if event["verb"] == "create"
            and event["objectRef"].get("namespace") == namespace
            and event["objectRef"].get("name") == name
        ]

    found = eventually(get_matching, what=f"the audit log has the creation of {namespace}/{name}")[
        -1
    ]
    return {key: value for key, value in found.items() if "gpuward.io/" in key}

"""What the stories that are told at the real API server share: a user's hands and eyes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from registration.configurations import RegistrationOptions
from rules.finding import Action
from tests.testkit.admission.registered_webhook import (
    Server,
    by_url,
    folder_of,
    is_enforced,
    registered,
)
from tests.testkit.control_plane.client import Answer
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import Processes, eventually

ALL_FIXES = ("toleration-default", "affinity-default")
# For registrations that see one namespace only; however slow the machine, nothing passes unjudged.
DENY = RegistrationOptions(default=Action.DENY, timeout_seconds=30)
# Nobody is being led elsewhere when a test ends.
AT_ONCE = ("--drain-seconds", "0")
FIXED = "gpuward.io/fixed"
PATHS = {
    "Pod": "/api/v1/namespaces/{}/pods",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "CronJob": "/apis/batch/v1/namespaces/{}/cronjobs",
    "ResourceQuota": "/api/v1/namespaces/{}/resourcequotas",
}


@contextmanager
def judging(
    plane: ControlPlane, processes: Processes, folder: Path, name: str, policy: str
) -> Iterator[str]:
    """A namespace in mode deny that is judged by a policy of its own, given as its keys."""
    namespace = plane.namespace()
    pair = plane.authority.issue(name, hosts=["127.0.0.1"])
    certificate = folder_of(pair, folder / "certificate")
    serving = Server(processes, folder, certificate, policy, name=name, arguments=AT_ONCE)
    config = by_url(serving.url, plane.authority.bundle)
    with registered(plane, config, DENY, name=name, only=namespace):
        eventually(lambda: is_enforced(plane, namespace), what="the webhook is called")
        yield namespace


def path_of(kind: str, namespace: str, name: str = "", subresource: str = "") -> str:
    """Where objects of a kind are, or one of them, or a part of it."""
    return "/".join(filter(None, (PATHS[kind].format(namespace), name, subresource)))


def stored(plane: ControlPlane, kind: str, namespace: str, name: str) -> Any:
    """An object as the API server has it."""
    answer = plane.request("GET", path_of(kind, namespace, name))
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
    """`manifest`, to go where it is sent."""
    metadata = {k: v for k, v in manifest["metadata"].items() if k != "namespace"}
    return {**manifest, "metadata": metadata}


def patch(
    plane: ControlPlane, path: str, body: Any, *, how: str = "strategic-merge-patch"
) -> Answer:
    """PATCH in one of the API server's ways."""
    return plane.request("PATCH", path, body, content_type=f"application/{how}+json")


def pods_of(plane: ControlPlane, namespace: str) -> list[Any]:
    """The pods in a namespace."""
    found: list[Any] = plane.request("GET", path_of("Pod", namespace)).body["items"]
    return found


def running(plane: ControlPlane, namespace: str, count: int = 1) -> list[Any]:
    """The pods of a namespace once `count` of them have run on a node."""

    def ask() -> list[Any]:
        found = pods_of(plane, namespace)
        ran = [p for p in found if p["status"].get("phase") in ("Running", "Succeeded")]
        return ran if len(ran) >= count else []

    return eventually(ask, what=f"{count} pods of {namespace} run")


def fixed_by(manifest: Any) -> set[str]:
    """The rules that a pod says have fixed it."""
    annotations = manifest["metadata"].get("annotations", {})
    return set(filter(None, annotations.get(FIXED, "").split(",")))


def annotated(plane: ControlPlane, namespace: str, name: str) -> dict[str, str]:
    """What the audit log has of ours on an object's creation, once it is there."""

    def ask() -> list[dict[str, str]]:
        return [
            event.get("annotations", {})
            for event in plane.audit_events()
            if event["verb"] == "create"
            and event["objectRef"].get("namespace") == namespace
            and event["objectRef"].get("name") == name
        ]

    found = eventually(ask, what=f"the audit log speaks of {namespace}/{name}")[-1]
    return {key: value for key, value in found.items() if "gpuward.io/" in key}

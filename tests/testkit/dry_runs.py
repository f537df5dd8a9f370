"""Submits manifests to an API server in dry runs, which store nothing."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from rules.base.json_values import Path
from rules.gpu.components import DAEMON_SET_CONTROLLERS
from tests.testkit.complete_manifests import complete_manifest
from tests.testkit.control_plane.client import Response
from tests.testkit.control_plane.cluster import Cluster

# The threads wait for the API server most of the time.
THREADS = 4
REFUSED = 300
ACCEPTED = 201
UNPROCESSABLE = 422
# The status for an object that the API server cannot decode.
UNREADABLE = 400
RESOURCES = {
    ("apps/v1", "DaemonSet"): "daemonsets",
    ("apps/v1", "Deployment"): "deployments",
    ("batch/v1", "CronJob"): "cronjobs",
    ("batch/v1", "Job"): "jobs",
    ("v1", "LimitRange"): "limitranges",
    ("v1", "Pod"): "pods",
    ("v1", "PodTemplate"): "podtemplates",
    ("v1", "ResourceQuota"): "resourcequotas",
}
RUNTIME_CLASSES = ("ascend", "gvisor", "kata", "kata-qemu-nvidia-gpu", "nvidia", "nvidia-cdi")
ROLES = ("initContainers", "containers", "ephemeralContainers")
JOB_CONTROLLER = "system:serviceaccount:kube-system:job-controller"
_AMOUNT = re.compile(r'resource\.Quantity\{.*?Format:"\w+"\}')
_CONTAINER = re.compile(rf"\b({'|'.join(ROLES)})\[(\d+)\]")

# A container by its list and its index; None for the object itself.
ContainerPosition = tuple[str, int] | None


class DryRuns:
    """Submits manifests in a namespace of its own; creates the runtime classes that cases name."""

    def __init__(self, plane: Cluster, labels: dict[str, str] | None = None) -> None:
        self.namespace = plane.namespace(labels)
        self._plane = plane
        for name in RUNTIME_CLASSES:
            made = {"metadata": {"name": name}, "handler": name}
            plane.request("POST", "/apis/node.k8s.io/v1/runtimeclasses", made)

    def submit_all(self, manifests: Iterable[Any]) -> list[Response]:
        """The response to each of `manifests`; equal manifests are submitted once."""
        texts = [json.dumps(manifest) for manifest in manifests]
        distinct = {text: f"subject-{n}" for n, text in enumerate(dict.fromkeys(texts))}
        answers = self.submit_by_name((name, json.loads(text)) for text, name in distinct.items())
        return [answers[distinct[text]] for text in texts]

    def submit_by_name(self, manifests: Iterable[tuple[str, Any]]) -> dict[str, Response]:
        """The responses to `manifests`, which are submitted under the given names."""
        made = {name: complete_manifest(one, self.namespace, name) for name, one in manifests}
        with ThreadPoolExecutor(THREADS) as pool:
            return dict(zip(made, pool.map(self._submit, made.values()), strict=True))

    def _submit(self, manifest: Any) -> Response:
        path = self._path(manifest)
        if manifest["kind"] == "Pod" and manifest["spec"].get("ephemeralContainers"):
            return self._submit_ephemeral_containers(path, manifest)
        return self._plane.request(
            "POST", f"{path}?dryRun=All", manifest, _impersonation_headers(manifest)
        )

    def _submit_ephemeral_containers(self, path: str, manifest: Any) -> Response:
        """Create the pod without its ephemeral containers, and submit these as an update."""
        added = manifest["spec"].pop("ephemeralContainers")
        # This pod is stored, so no scheduler may place it.
        manifest["spec"]["schedulerName"] = "nobody"
        made = self._plane.request("POST", path, manifest)
        if made.status != ACCEPTED:
            return made
        made.body["spec"]["ephemeralContainers"] = added
        pod_path = f"{path}/{made.body['metadata']['name']}"
        answer = self._plane.request("PUT", f"{pod_path}/ephemeralcontainers?dryRun=All", made.body)
        self._plane.request("DELETE", pod_path, {"gracePeriodSeconds": 0})
        return answer

    def _path(self, manifest: Any) -> str:
        group = manifest["apiVersion"]
        root = "/api/v1" if group == "v1" else f"/apis/{group}"
        return f"{root}/namespaces/{self.namespace}/{RESOURCES[group, manifest['kind']]}"


def _impersonation_headers(manifest: Any) -> dict[str, str]:
    """Headers that submit the pod of a controller as that controller does: rules check the user."""
    owners = manifest["metadata"].get("ownerReferences", [])
    if any(owner["kind"] == "DaemonSet" for owner in owners):
        user = DAEMON_SET_CONTROLLERS[0]
    elif any(owner.get("controller") for owner in owners):
        user = JOB_CONTROLLER
    else:
        return {}
    return {"Impersonate-User": user, "Impersonate-Group": "system:masters"}


class RefusalCause(NamedTuple):
    """One cause for which an API server refuses an object; `field` is empty if it names none."""

    field: str
    message: str

    @property
    def container_position(self) -> ContainerPosition:
        """The container that the cause is about."""
        found = _CONTAINER.search(self.field)
        return (found[1], int(found[2])) if found else None


def refusal_causes(answer: Response) -> set[RefusalCause]:
    """The causes for which an object was refused; empty if it was accepted."""
    if answer.status < REFUSED:
        return set()
    causes = answer.body.get("details", {}).get("causes", [])
    if answer.status == UNPROCESSABLE and causes:
        # Older releases print the internal form of an amount, which depends on its spelling.
        return {
            RefusalCause(cause.get("field", ""), _AMOUNT.sub("an amount", cause["message"]))
            for cause in causes
        }
    # Without the name, equal causes of different objects compare equal.
    name = answer.body.get("details", {}).get("name", "")
    return {RefusalCause("", answer.body["message"].replace(f'"{name}"', "it"))}


def minor_version(cluster: Cluster) -> int:
    """The minor version of an API server, 37 of 1.37.2."""
    return int(cluster.request("GET", "/version").body["minor"].rstrip("+"))


def differences_in(entries: Iterable[dict[str, Any]], release: int) -> list[dict[str, Any]]:
    """The reviewed differences that apply to a minor version: from `since` on, and `before`."""
    return [e for e in entries if e.get("since", 0) <= release < e.get("before", 1000)]


def container_position(path: Path) -> ContainerPosition:
    """The container that `path` leads to or through."""
    for role, number in itertools.pairwise(path):
        if role in ROLES and isinstance(number, int):
            return str(role), number
    return None

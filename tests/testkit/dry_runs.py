"""Asks an API server what it makes of manifests; nothing that is asked about is kept."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from rules.base.json_patch import Path
from rules.gpu.components import DAEMON_SET_CONTROLLERS
from tests.testkit.complete_manifests import completed
from tests.testkit.control_plane.client import Answer
from tests.testkit.control_plane.cluster import Cluster

# Waiting, not computing, is what asking takes.
THREADS = 4
REFUSED = 300
ACCEPTED = 201
UNPROCESSABLE = 422
# What a request that cannot even be decoded is answered with.
UNREADABLE = 400
RESOURCES = {
    ("apps/v1", "DaemonSet"): "daemonsets",
    ("apps/v1", "Deployment"): "deployments",
    ("batch/v1", "CronJob"): "cronjobs",
    ("batch/v1", "Job"): "jobs",
    ("v1", "Pod"): "pods",
    ("v1", "PodTemplate"): "podtemplates",
    ("v1", "ResourceQuota"): "resourcequotas",
}
RUNTIME_CLASSES = ("gvisor", "kata", "kata-qemu-nvidia-gpu", "nvidia", "nvidia-cdi")
ROLES = ("initContainers", "containers", "ephemeralContainers")
_AMOUNT = re.compile(r'resource\.Quantity\{.*?Format:"\w+"\}')
_CONTAINER = re.compile(rf"\b({'|'.join(ROLES)})\[(\d+)\]")

# A container by its list and number, or nothing for the object itself.
Spot = tuple[str, int] | None


class DryRuns:
    """An API server with a namespace of its own, and the runtime classes that cases name."""

    def __init__(self, plane: Cluster, labels: dict[str, str] | None = None) -> None:
        self.namespace = plane.namespace(labels)
        self._plane = plane
        for name in RUNTIME_CLASSES:
            made = {"metadata": {"name": name}, "handler": name}
            plane.request("POST", "/apis/node.k8s.io/v1/runtimeclasses", made)

    def ask_all(self, manifests: Iterable[Any]) -> list[Answer]:
        """What becomes of each of `manifests`; those that are equal are asked about once."""
        texts = [json.dumps(manifest) for manifest in manifests]
        distinct = {text: f"subject-{n}" for n, text in enumerate(dict.fromkeys(texts))}
        answers = self.ask_by_name((name, json.loads(text)) for text, name in distinct.items())
        return [answers[distinct[text]] for text in texts]

    def ask_by_name(self, manifests: Iterable[tuple[str, Any]]) -> dict[str, Answer]:
        """What becomes of `manifests`, under the names that they are to have."""
        made = {name: completed(one, self.namespace, name) for name, one in manifests}
        with ThreadPoolExecutor(THREADS) as pool:
            return dict(zip(made, pool.map(self._ask, made.values()), strict=True))

    def _ask(self, whole: Any) -> Answer:
        path = self._path(whole)
        if whole["kind"] == "Pod" and whole["spec"].get("ephemeralContainers"):
            return self._debug(path, whole)
        return self._plane.request("POST", f"{path}?dryRun=All", whole, _as_its_maker(whole))

    def _debug(self, path: str, whole: Any) -> Answer:
        """No pod starts with ephemeral containers: make it without, then ask about them."""
        added = whole["spec"].pop("ephemeralContainers")
        # It really is made, so nobody may take it to a node.
        whole["spec"]["schedulerName"] = "nobody"
        made = self._plane.request("POST", path, whole)
        if made.status != ACCEPTED:
            return made
        made.body["spec"]["ephemeralContainers"] = added
        where = f"{path}/{made.body['metadata']['name']}"
        answer = self._plane.request("PUT", f"{where}/ephemeralcontainers?dryRun=All", made.body)
        self._plane.request("DELETE", where, {"gracePeriodSeconds": 0})
        return answer

    def _path(self, manifest: Any) -> str:
        group = manifest["apiVersion"]
        root = "/api/v1" if group == "v1" else f"/apis/{group}"
        return f"{root}/namespaces/{self.namespace}/{RESOURCES[group, manifest['kind']]}"


def _as_its_maker(whole: Any) -> dict[str, str]:
    """The headers by which a DaemonSet's pod comes from its controller, which rules look at."""
    owners = whole["metadata"].get("ownerReferences", [])
    if not any(owner["kind"] == "DaemonSet" for owner in owners):
        return {}
    return {"Impersonate-User": DAEMON_SET_CONTROLLERS[0], "Impersonate-Group": "system:masters"}


class Objection(NamedTuple):
    """One reason for which an API server refuses an object; no field if it cannot be read."""

    field: str
    message: str

    @property
    def spot(self) -> Spot:
        """The container that it is about."""
        found = _CONTAINER.search(self.field)
        return (found[1], int(found[2])) if found else None


def objections(answer: Answer) -> set[Objection]:
    """Why an object was refused; nothing if it was not."""
    if answer.status < REFUSED:
        return set()
    told = answer.body.get("details", {}).get("causes", [])
    if answer.status == UNPROCESSABLE and told:
        # Older releases show how they keep an amount, and that depends on how it was written.
        return {
            Objection(cause.get("field", ""), _AMOUNT.sub("an amount", cause["message"]))
            for cause in told
        }
    # Equal reasons are equal whatever the object is called.
    name = answer.body.get("details", {}).get("name", "")
    return {Objection("", answer.body["message"].replace(f'"{name}"', "it"))}


def minor(cluster: Cluster) -> int:
    """The minor version of an API server, 36 of 1.36.3."""
    return int(cluster.request("GET", "/version").body["minor"].rstrip("+"))


def concerning(entries: Iterable[dict[str, Any]], release: int) -> list[dict[str, Any]]:
    """The reviewed differences that a minor version has: from `since` on, and `before`."""
    return [e for e in entries if e.get("since", 0) <= release < e.get("before", 1000)]


def spot(path: Path) -> Spot:
    """The container to which `path` leads or which it passes."""
    for role, number in itertools.pairwise(path):
        if role in ROLES and isinstance(number, int):
            return str(role), number
    return None

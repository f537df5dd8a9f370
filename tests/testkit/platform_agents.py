"""The pods in tests/data/platform_agents.yaml, as their controllers create them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from tests.testkit.paths import DATA

FILE = DATA / "platform_agents.yaml"
# The user who creates the pods of an owner, and what the pod says of its owner.
CREATORS = {
    "DaemonSet": "system:serviceaccount:kube-system:daemon-set-controller",
    "Deployment": "system:serviceaccount:kube-system:replicaset-controller",
}
OWNERS = {"DaemonSet": "DaemonSet", "Deployment": "ReplicaSet"}


@dataclass(frozen=True)
class PlatformAgent:
    """One pod of a project that installs itself on GPU nodes."""

    project: Mapping[str, Any]
    entry: Mapping[str, Any]

    @property
    def id(self) -> str:
        """The id of its tests."""
        return f"{self.namespace}/{self.entry['name']}"

    @property
    def namespace(self) -> str:
        """The namespace into which the project's documentation installs it."""
        return str(self.project["namespace"])

    @property
    def profiles(self) -> list[str]:
        """The profiles of a cluster that has it."""
        names: list[str] = self.project.get("profiles", ["nvidia"])
        return names

    @property
    def user(self) -> str:
        """The user who creates the pod."""
        return str(self.entry.get("user") or CREATORS[self.entry["kind"]])

    @property
    def agents(self) -> frozenset[str]:
        """The containers that need to see GPUs which they do not request."""
        containers = {**self.entry.get("init", {}), **self.entry["containers"]}
        return frozenset(name for name, facts in containers.items() if facts.get("agent"))

    @property
    def pod(self) -> dict[str, Any]:
        """The pod, as its controller creates it."""
        kind = OWNERS.get(self.entry["kind"])
        metadata: dict[str, Any] = {"name": self.entry["name"], "namespace": self.namespace}
        metadata["annotations"] = self.entry.get("annotations", {})
        if kind:
            owner = {"apiVersion": "apps/v1", "kind": kind, "name": self.entry["name"]}
            metadata["ownerReferences"] = [{**owner, "uid": "3b6e", "controller": True}]
        spec = self._spec()
        if kind == "DaemonSet":
            spec["affinity"] = _one_node()
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    @property
    def workload(self) -> dict[str, Any]:
        """Return what a user installs: the DaemonSet or Deployment, or else the pod."""
        kind = self.entry["kind"]
        if kind not in CREATORS:
            return self.pod
        labels = {"app": self.entry["name"]}
        template_metadata = {"labels": labels, "annotations": self.entry.get("annotations", {})}
        template = {"metadata": template_metadata, "spec": self._spec()}
        return {
            "apiVersion": "apps/v1",
            "kind": kind,
            "metadata": {"name": self.entry["name"], "namespace": self.namespace},
            "spec": {"selector": {"matchLabels": labels}, "template": template},
        }

    def _spec(self) -> dict[str, Any]:
        entry = self.entry
        lists = {"initContainers": entry.get("init", {}), "containers": entry["containers"]}
        paths = dict.fromkeys(
            path
            for containers in lists.values()
            for facts in containers.values()
            for path in facts.get("mounts", ())
        )
        volumes = {path: f"host-{number}" for number, path in enumerate(paths)}
        spec = {
            **entry.get("spec", {}),
            "serviceAccountName": entry.get("account", "default"),
            "nodeSelector": entry.get("select", {}),
            "tolerations": [_toleration(key) for key in entry.get("tolerate", ())],
            "volumes": [{"name": name, "hostPath": {"path": p}} for p, name in volumes.items()],
        }
        for field, containers in lists.items():
            if containers:
                spec[field] = [_container(n, f, volumes) for n, f in containers.items()]
        return spec


def _container(name: str, facts: Mapping[str, Any], volumes: Mapping[str, str]) -> dict[str, Any]:
    security: dict[str, Any] = {}
    if facts.get("privileged"):
        security["privileged"] = True
    if "add" in facts:
        security["capabilities"] = {"add": facts["add"]}
    container = {
        "name": name,
        "image": facts["image"],
        "env": [{"name": key, "value": value} for key, value in facts.get("env", {}).items()],
        "securityContext": security,
        "volumeMounts": [
            {"name": volumes[path], "mountPath": f"/host{path}"} for path in facts.get("mounts", ())
        ],
        "resources": {},
    }
    if "claims" in facts:
        container["resources"]["claims"] = [{"name": claim} for claim in facts["claims"]]
    if "limits" in facts:
        container["resources"]["limits"] = facts["limits"]
        container["resources"]["requests"] = facts["limits"]
    return container


def _toleration(key: str) -> dict[str, str]:
    return {"operator": "Exists"} if key == "*" else {"key": key, "operator": "Exists"}


def _one_node() -> dict[str, Any]:
    """The affinity by which the DaemonSet controller binds a pod to its node."""
    field = {"key": "metadata.name", "operator": "In", "values": ["gpu-node-1"]}
    terms = [{"matchFields": [field]}]
    required = {"nodeSelectorTerms": terms}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


@cache
def platform_agents() -> list[PlatformAgent]:
    """All of them."""
    projects: Iterable[Mapping[str, Any]] = yaml.load(
        FILE.read_text(encoding="utf-8"), yaml.CSafeLoader
    )
    return [PlatformAgent(project, entry) for project in projects for entry in project["pods"]]

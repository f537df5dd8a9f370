"""The bypasses of docs/coverage.md as pods on a real node, without gpuward and in mode `deny`.

What they get is in tests/data/node_answers.yaml, which `make proof` writes.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from tests.testkit.container_runtime.answers import (
    NODE_ANSWERS,
    OWN,
    REFUSED,
    Outcome,
    data,
    not_on_a_node,
)
from tests.testkit.container_runtime.node import NVIDIA, Answer, Settings
from tests.testkit.control_plane.client import Response
from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.coverage.table import Bypass, bypasses
from tests.testkit.real_node.images import Image
from tests.testkit.real_node.node import MERGE, RESOURCE, RealNode, show_devices_root
from tests.testkit.real_node.pods import answer, bind, create_pod, has_ended, pods, wait
from webhook.registration import MODE_LABEL

_HEAD = "# Written by `make proof`, from what pods got on a node. Do not edit.\n"
_ALL = "all"
_SCHEDULER = "default-scheduler"
_SHOWS_DEVICES = (("/show-devices",), ("mounts",))
_UNKNOWN_IMAGE = "registry.example.com/app:1"
# As unknown to the rules, and with the variable.
_UNKNOWN_CUDA_IMAGE = "registry.example.com/built-on-cuda:1"
MAX_STARTING = 8
"""Pods of a namespace that start at once; with more, a slow API server answers too late."""


@dataclass(frozen=True)
class BypassPod:
    """A bypass, as a pod that can run on the node of the tests."""

    bypass: Bypass
    entry: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The name of the bypass, and of the pod."""
        return self.bypass.name

    @property
    def container(self) -> str:
        """The container that gets the devices."""
        return str(self.entry.get("container", "main"))

    @property
    def group(self) -> tuple[Settings, str]:
        """The settings of NVIDIA's container toolkit on the node, and who runs at the same time."""
        settings = Settings(**data()["nodes"][self.entry.get("node", "default")])
        return settings, self.name if self.entry.get("alone") else ""

    @property
    def manifest(self) -> dict[str, Any]:
        """The pod. Its unknown image sets the variable, if the bypass says so."""
        pod = copy.deepcopy(self.bypass.pod)
        pod["metadata"] |= {"name": self.name, "ownerReferences": []}
        if self.entry.get("image"):
            for container in pod["spec"]["containers"]:
                if container["image"] == _UNKNOWN_IMAGE:
                    container["image"] = _UNKNOWN_CUDA_IMAGE
        return pod

    @property
    def requests_gpu(self) -> bool:
        """Return whether the container requests one."""
        spec = self.manifest["spec"]
        return any(
            RESOURCE in container.get("resources", {}).get("limits", {})
            for kind in ("containers", "initContainers")
            for container in spec.get(kind, ())
            if container["name"] == self.container
        )

    def said(self, found: Answer) -> str:
        """The answer in words."""
        own = self.requests_gpu and len(found.gpus) == 1 and not found.others
        return OWN if own else str(found)

    @property
    def is_daemon(self) -> bool:
        """Return whether the DaemonSet controller creates the pod."""
        return self.bypass.user.endswith(":daemon-set-controller")

    def create_what_it_needs(self, plane: Cluster, namespace: str) -> None:
        """Create the ConfigMaps, Secrets and volumes that the pod refers to.

        Pods that refer to the same one find what each needs in it.
        """
        for kind, reference in _references(self.manifest, self.entry.get("config", {})):
            path = f"/api/v1/namespaces/{namespace}/{kind}"
            if plane.request("POST", path, reference).status == 409:
                path = f"{path}/{reference['metadata']['name']}"
                plane.request("PATCH", path, reference, content_type=MERGE)
        for name in _claims(self.manifest):
            _make_claim(plane, namespace, name)

    def create(self, plane: Cluster, namespace: str) -> Response:
        """Create the pod, or its DaemonSet."""
        pod = self.manifest
        if not self.is_daemon:
            return create_pod(plane, namespace, pod, self.bypass.user)
        labels = {"bypass": self.name}
        template = {"metadata": {**pod["metadata"], "labels": labels}, "spec": pod["spec"]}
        for key in ("name", "ownerReferences"):
            template["metadata"].pop(key)
        spec = {"selector": {"matchLabels": labels}, "template": template}
        daemons = {"metadata": {"name": self.name}, "spec": spec}
        return plane.request("POST", f"/apis/apps/v1/namespaces/{namespace}/daemonsets", daemons)


def bypass_pods() -> list[BypassPod]:
    """The bypasses that are pods on a node, in the order of the table."""
    executed = {**data()["bypasses"], **data()["only_on_a_node"]}
    left_out = set(not_on_a_node())
    return [
        BypassPod(bypass, executed[bypass.name])
        for bypass in bypasses()
        if bypass.name in executed and bypass.name not in left_out
    ]


def outcomes(node: RealNode) -> dict[str, Outcome]:
    """Return what the container of each bypass gets.

    A server must be registered for the mode label.
    """
    all_pods = bypass_pods()
    prepare(node, all_pods)
    found: dict[str, Outcome] = {}
    for group in dict.fromkeys(pod.group for pod in all_pods):
        settings, _ = group
        node.configure(settings)
        found |= _run(node, [pod for pod in all_pods if pod.group == group])
    node.configure(Settings())
    return {pod.name: found[pod.name] for pod in all_pods}


def prepare(node: RealNode, all_pods: Iterable[BypassPod]) -> None:
    """Give the node the images and labels that these pods need."""
    manifests = [pod.manifest for pod in all_pods]
    names = {
        container["image"]
        for pod in manifests
        for kind in ("containers", "initContainers")
        for container in pod["spec"].get(kind, ())
    }
    root = show_devices_root(node.folder)
    node.import_images(
        Image(name, root, *_SHOWS_DEVICES, ((NVIDIA, _ALL),) if name != _UNKNOWN_IMAGE else ())
        for name in sorted(names)
    )
    labels = {"nvidia.com/gpu.product": "A100", "nvidia.com/gpu.present": "true"}
    for pod in manifests:
        labels |= pod["spec"].get("nodeSelector", {})
    node.label(labels)
    runtime_class = {"metadata": {"name": "nvidia"}, "handler": "nvidia"}
    node.plane.request("POST", "/apis/node.k8s.io/v1/runtimeclasses", runtime_class)


def _run(node: RealNode, group: list[BypassPod]) -> dict[str, Outcome]:
    plane = node.plane
    without, deny = plane.namespace(), plane.namespace({MODE_LABEL: "deny"})
    created: dict[str, list[BypassPod]] = {without: [], deny: []}
    for pod in group:
        for namespace, before in created.items():
            _wait_until_few_start(node, namespace, before, MAX_STARTING - 1)
            pod.create_what_it_needs(plane, namespace)
            answered = pod.create(plane, namespace)
            if namespace == deny and answered.status == 403:
                assert "gpuward" in answered.body["message"], answered
                continue
            assert answered.status == 201, (pod.name, answered)
            before.append(pod)
    got = {namespace: _answers(node, namespace, those) for namespace, those in created.items()}
    for namespace in created:
        plane.request("DELETE", f"/api/v1/namespaces/{namespace}")
    return {
        pod.name: Outcome(got[without][pod.name], got[deny].get(pod.name, REFUSED)) for pod in group
    }


def _answers(node: RealNode, namespace: str, group: list[BypassPod]) -> dict[str, str]:
    """Return what each container got, once all have ended."""
    _wait_until_few_start(node, namespace, group, 0)
    present = _present(node, namespace)
    return {p.name: p.said(answer(node.plane, present[p.name], p.container)) for p in group}


def _wait_until_few_start(
    node: RealNode, namespace: str, group: list[BypassPod], most: int
) -> None:
    """Wait until the containers of all but at most so many pods have ended."""

    def few_start() -> bool:
        present = _present(node, namespace) if len(group) > most else {}
        left = [
            pod.name
            for pod in group
            if pod.name not in present or not has_ended(present[pod.name], pod.container)
        ]
        assert len(left) <= most, left
        return True

    wait("the containers have ended", few_start)


def _present(node: RealNode, namespace: str) -> dict[str, Any]:
    """The pods by their bypasses, each bound to the node if its scheduler does not run here."""
    present = {}
    for pod in pods(node.plane, namespace):
        metadata = pod["metadata"]
        name = metadata.get("labels", {}).get("bypass", metadata["name"])
        present[name] = pod
        if pod["spec"]["schedulerName"] != _SCHEDULER and "nodeName" not in pod["spec"]:
            bind(node.plane, pod, node.name)
    return present


def write(found: Mapping[str, Outcome]) -> None:
    """Write the outcomes into their file."""
    content = {name: outcome._asdict() for name, outcome in found.items()}
    text = yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=100)
    NODE_ANSWERS.write_text(f"{_HEAD}{text}", encoding="utf-8")


def _references(
    pod: Mapping[str, Any], config: Mapping[str, Mapping[str, str]]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the ConfigMaps and Secrets that a pod refers to, with their kinds in URLs.

    What the data does not say is as bad as it can be: a key has the value `all`, and a prefix is
    completed to NVIDIA_VISIBLE_DEVICES.
    """
    for container in pod["spec"]["containers"]:
        for entry in container.get("envFrom", ()):
            prefix = entry.get("prefix", "")
            rest = {NVIDIA.removeprefix(prefix): _ALL} if prefix else {}
            source = "configMapRef" if "configMapRef" in entry else "secretRef"
            name = entry[source]["name"]
            yield _reference(source, name, config.get(name, rest))
        for entry in container.get("env", ()):
            for source in ("configMapKeyRef", "secretKeyRef"):
                if reference := entry.get("valueFrom", {}).get(source):
                    known = config.get(reference["name"], {reference["key"]: _ALL})
                    yield _reference(source, reference["name"], known)


def _reference(source: str, name: str, content: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    kind, key = ("configmaps", "data") if source.startswith("config") else ("secrets", "stringData")
    return kind, {"metadata": {"name": name}, key: dict(content)}


def _claims(pod: Mapping[str, Any]) -> set[str]:
    text = json.dumps(pod["spec"].get("volumes", []))
    return set(re.findall(r'"claimName": "([^"]*)"', text))


def _make_claim(plane: Cluster, namespace: str, name: str) -> None:
    """A volume that leads to /dev/null, and the claim for it."""
    capacity = {"storage": "1Gi"}
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    volume = f"{namespace}-{name}"
    plane.request(
        "POST",
        "/api/v1/persistentvolumes",
        {
            "metadata": {"name": volume},
            "spec": {**common, "capacity": capacity, "hostPath": {"path": "/dev/null"}},
        },
    )
    spec = {**common, "resources": {"requests": capacity}, "volumeName": volume}
    path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
    plane.request("POST", path, {"metadata": {"name": name}, "spec": spec})

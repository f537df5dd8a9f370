"""Completes manifests with the fields that an API server requires and no rule reads.

A case shows one mistake and leaves out the rest. The same fields are added before and after a
fix, so that a difference between the two comes from the fix.
"""

from __future__ import annotations

import copy
from typing import Any

IMAGE = "registry.example.com/app:1"
# The path of the pod template in each built-in kind, and a restart policy that the kind allows.
TEMPLATES: dict[str, tuple[tuple[str, ...], str]] = {
    "CronJob": (("spec", "jobTemplate", "spec", "template"), "Never"),
    "DaemonSet": (("spec", "template"), "Always"),
    "Deployment": (("spec", "template"), "Always"),
    "Job": (("spec", "template"), "Never"),
    "PodTemplate": (("template",), "Always"),
}
WITH_SELECTOR = ("DaemonSet", "Deployment")
ROLES = ("initContainers", "containers", "ephemeralContainers")


def complete_manifest(manifest: Any, namespace: str, name: str = "subject") -> Any:
    """A copy of `manifest` that a new API server can accept."""
    completed = copy.deepcopy(manifest)
    metadata = completed.setdefault("metadata", {})
    metadata["namespace"] = namespace
    # Some names are not valid, and no rule reads names.
    metadata["name"] = name
    metadata.pop("generateName", None)
    if completed["kind"] == "Pod":
        _complete_pod(completed)
    elif completed["kind"] in TEMPLATES:
        _complete_workload(completed)
    return completed


def _complete_workload(completed: Any) -> None:
    path, restart_policy = TEMPLATES[completed["kind"]]
    template = completed
    for step in path:
        template = template.setdefault(step, {})
    template.setdefault("spec", {}).setdefault("restartPolicy", restart_policy)
    _complete_pod(template)
    if completed["kind"] in WITH_SELECTOR and "selector" not in completed["spec"]:
        template.setdefault("metadata", {}).setdefault("labels", {})["subject"] = "yes"
        completed["spec"]["selector"] = {"matchLabels": {"subject": "yes"}}


CLASSES_OF_EVERY_CLUSTER = ("system-cluster-critical", "system-node-critical")


def _complete_pod(pod: Any) -> None:
    """Add names, images and volumes; remove the account and an unknown class."""
    spec = pod["spec"]
    # The objects that these fields name do not exist.
    for field in ("serviceAccountName", "serviceAccount"):
        spec.pop(field, None)
    if spec.get("priorityClassName") not in CLASSES_OF_EVERY_CLUSTER:
        spec.pop("priorityClassName", None)
    if not spec.get("containers"):
        spec["containers"] = [{}]
    for role in ROLES:
        for number, container in enumerate(spec.get(role) or []):
            container.setdefault("name", f"{role.lower()}-{number}")
            container.setdefault("image", IMAGE)
    _complete_volumes(spec)


def _complete_volumes(spec: Any) -> None:
    known = {volume.get("name") for volume in spec.get("volumes") or []}
    for role in ROLES:
        for container in spec.get(role) or []:
            for mount in container.get("volumeMounts") or []:
                name = mount.get("name")
                if name not in known:
                    known.add(name)
                    spec["volumes"] = [*(spec.get("volumes") or []), {"name": name}]

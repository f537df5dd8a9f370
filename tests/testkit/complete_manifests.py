"""Manifests made whole: with what an API server wants of them and no rule looks at.

A case shows one fault and leaves out the rest. What is filled in here is filled in alike
before and after a fix, so that a difference between the two comes from the fix.
"""

from __future__ import annotations

import copy
from typing import Any

IMAGE = "registry.example.com/app:1"
# Where each built-in kind that makes pods keeps its template, and how such a pod must end.
TEMPLATES: dict[str, tuple[tuple[str, ...], str]] = {
    "CronJob": (("spec", "jobTemplate", "spec", "template"), "Never"),
    "DaemonSet": (("spec", "template"), "Always"),
    "Deployment": (("spec", "template"), "Always"),
    "Job": (("spec", "template"), "Never"),
    "PodTemplate": (("template",), "Always"),
}
WITH_SELECTOR = ("DaemonSet", "Deployment")
ROLES = ("initContainers", "containers", "ephemeralContainers")


def completed(manifest: Any, namespace: str, name: str = "subject") -> Any:
    """`manifest` as it can be sent to an API server that knows none of its surroundings."""
    whole = copy.deepcopy(manifest)
    metadata = whole.setdefault("metadata", {})
    metadata["namespace"] = namespace
    # Some names are not allowed, and no rule speaks of names.
    metadata["name"] = name
    metadata.pop("generateName", None)
    if whole["kind"] == "Pod":
        _complete_pod(whole)
    elif whole["kind"] in TEMPLATES:
        _complete_workload(whole)
    return whole


def _complete_workload(whole: Any) -> None:
    path, ending = TEMPLATES[whole["kind"]]
    template = whole
    for step in path:
        template = template.setdefault(step, {})
    template.setdefault("spec", {}).setdefault("restartPolicy", ending)
    _complete_pod(template)
    if whole["kind"] in WITH_SELECTOR and "selector" not in whole["spec"]:
        template.setdefault("metadata", {}).setdefault("labels", {})["subject"] = "yes"
        whole["spec"]["selector"] = {"matchLabels": {"subject": "yes"}}


def _complete_pod(holder: Any) -> None:
    """Fill in names, images and volumes; leave out who the pod runs as and how urgent it is."""
    spec = holder["spec"]
    # What a pod names would have to exist.
    for field in ("serviceAccountName", "serviceAccount", "priorityClassName"):
        spec.pop(field, None)
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

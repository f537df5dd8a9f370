"""Random pods and workloads that are put together from the parts of all cases."""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from rules.base.json_values import as_object, as_text
from rules.objects.container import POD_SPEC
from rules.objects.pod import Pod
from rules.workloads.discovery import find_subjects
from rules.workloads.pod_search import MalformedField
from tests.testkit.cases import cases
from tests.testkit.complete_manifests import TEMPLATES

API_VERSIONS = {
    "Pod": "v1",
    "CronJob": "batch/v1",
    "DaemonSet": "apps/v1",
    "Deployment": "apps/v1",
    "Job": "batch/v1",
}
CONTAINER_FIELDS = ("initContainers", "containers")
METADATA_FIELDS = ("annotations", "labels")
# Lists of a container from which single items are taken.
LISTS = ("env", "envFrom", "volumeMounts")
# How often a container has a field.
LIKELY = {"image": 1 / 2, "resources": 2 / 3, "env": 1 / 2, "envFrom": 1 / 4, "volumeMounts": 1 / 3}


class Part(NamedTuple):
    """A value of a field of some case, with the volumes of its pod."""

    value: Any
    volumes: Mapping[str, Any]


class Parts(NamedTuple):
    """The values that exist for each field of a pod spec, a container, and the metadata."""

    spec: dict[str, list[Part]]
    container: dict[str, list[Part]]
    metadata: dict[str, list[Part]]


@cache
def parts_of_cases() -> Parts:
    """The parts of the pods in all cases."""
    parts = Parts({}, {}, {})
    for case in cases():
        subjects = [*find_subjects(case.manifest, case.policy.profile)]
        if any(isinstance(subject, MalformedField) for subject in subjects):
            continue  # no API server can decode it
        for subject in subjects:
            if isinstance(subject, Pod) and subject.layout is POD_SPEC:
                _take_apart(parts, subject)
    return parts


def _take_apart(parts: Parts, pod: Pod) -> None:
    spec = pod.spec
    named = {v.get("name"): v for v in _objects(spec.get("volumes"))}
    volumes = {name: volume for name, volume in named.items() if isinstance(name, str)}
    for field, value in spec.items():
        if field not in (*CONTAINER_FIELDS, "ephemeralContainers", "volumes"):
            parts.spec.setdefault(field, []).append(Part(value, {}))
    for role in CONTAINER_FIELDS:
        for container in _objects(spec.get(role)):
            for field, value in container.items():
                items = value if field in LISTS and isinstance(value, list) else [value]
                parts.container.setdefault(field, []).extend(Part(i, volumes) for i in items)
    for field in METADATA_FIELDS:
        for pair in (getattr(pod, field, None) or {}).items():
            parts.metadata.setdefault(field, []).append(Part(pair, {}))


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def mixed_object(chooser: random.Random, density: float = 1) -> dict[str, Any]:
    """A Pod, half of the time, or a workload. With less `density` it has fewer parts of cases."""
    kind = chooser.choice(["Pod", "Pod", "Pod", "Pod", *(k for k in API_VERSIONS if k != "Pod")])
    metadata, spec = _metadata(chooser, density), _spec(chooser, density)
    if kind == "Pod":
        return _object(kind, {**metadata, "namespace": "team-vision"}, spec)
    spec["restartPolicy"] = TEMPLATES[kind][1]
    inner: Any = {"metadata": metadata, "spec": spec}
    for step in reversed(TEMPLATES[kind][0]):
        inner = {step: inner}
    return _object(kind, {"namespace": "team-vision"}, inner["spec"])


def _object(kind: str, metadata: dict[str, Any], spec: Any) -> dict[str, Any]:
    named = {"name": "mixed", **metadata}
    return {"apiVersion": API_VERSIONS[kind], "kind": kind, "metadata": named, "spec": spec}


def _metadata(chooser: random.Random, density: float) -> dict[str, Any]:
    known = parts_of_cases().metadata
    chosen = {
        field: dict(part.value for part in chooser.sample(known[field], chooser.randrange(3)))
        for field in METADATA_FIELDS
        if chooser.random() < density / 2
    }
    return {field: values for field, values in chosen.items() if values}


def _spec(chooser: random.Random, density: float) -> dict[str, Any]:
    spec: dict[str, Any] = {}
    for field, known in parts_of_cases().spec.items():
        if chooser.random() < density / 8:
            spec[field] = copy.deepcopy(chooser.choice(known).value)
    volumes: dict[str, Any] = {}
    for role, most in (("initContainers", 1), ("containers", 3)):
        count = chooser.randint(most // 2, most)
        if made := [_container(chooser, f"{role[:4]}-{n}", volumes, density) for n in range(count)]:
            spec[role] = made
    if volumes:
        spec["volumes"] = list(volumes.values())
    return spec


def _container(
    chooser: random.Random, name: str, volumes: dict[str, Any], density: float
) -> dict[str, Any]:
    made: dict[str, Any] = {"name": name, "image": "registry.example.com/app:1"}
    for field, known in parts_of_cases().container.items():
        if field == "name" or chooser.random() >= density * LIKELY.get(field, 1 / 8):
            continue
        if field in LISTS:
            chosen = chooser.sample(known, chooser.randrange(3))
            for part in chosen:
                mounted = as_text(as_object(part.value).get("name"))
                if field == "volumeMounts" and mounted in part.volumes:
                    volumes.setdefault(mounted, copy.deepcopy(part.volumes[mounted]))
            if chosen:
                made[field] = [copy.deepcopy(part.value) for part in chosen]
        else:
            made[field] = copy.deepcopy(chooser.choice(known).value)
    return made

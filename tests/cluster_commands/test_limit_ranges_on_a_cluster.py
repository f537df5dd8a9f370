"""The changes of LimitRanges to a pod: an API server is the oracle."""

from __future__ import annotations

import random
from http import HTTPStatus
from typing import Any

import pytest

from cluster.accounting.pod_requests import amount_of
from cluster.why.limit_ranges import apply_limit_ranges
from rules.base.json_values import as_object
from tests.testkit.control_plane.plane import ControlPlane

RESOURCES = ("nvidia.com/gpu", "cpu", "memory")
FIELDS = ("min", "max", "default", "defaultRequest")
AMOUNTS = {"nvidia.com/gpu": (1, 2, 4, 8), "cpu": ("500m", 1, "2"), "memory": ("1Gi", "2Gi")}


def amounts(of: random.Random) -> dict[str, Any]:
    chosen = [resource for resource in RESOURCES if of.random() < 0.5]  # half
    return {resource: of.choice(AMOUNTS[resource]) for resource in chosen}


def random_limit_range(of: random.Random) -> dict[str, Any]:
    item = {"type": "Container", **{f: amounts(of) for f in FIELDS if of.random() < 0.6}}  # most
    return {"metadata": {"name": "limits"}, "spec": {"limits": [item]}}


def random_pod(of: random.Random) -> dict[str, Any]:
    def container(name: str) -> dict[str, Any]:
        limits = amounts(of)
        requests = {key: value for key, value in amounts(of).items() if "/" not in key}
        resources = of.choice(({}, {"limits": limits}, {"limits": limits, "requests": requests}))
        return {"name": name, "image": "i", "resources": resources}

    spec: dict[str, Any] = {"containers": [container("a"), container("b")]}
    if of.random() < 0.3:  # some
        spec["initContainers"] = [container("c")]
    return {"metadata": {"name": "p"}, "spec": spec}


def resources_of(pod: Any) -> dict[str, Any]:
    return {
        container["name"]: {
            field: {
                name: amount_of(value)
                for name, value in as_object(container["resources"].get(field)).items()
            }
            for field in ("limits", "requests")
        }
        for field in ("containers", "initContainers")
        for container in pod["spec"].get(field, ())
    }


@pytest.mark.parametrize("seed", range(6))
def test_new_pods_get_what_the_api_server_gives_them(plane: ControlPlane, seed: int) -> None:
    of = random.Random(seed)  # noqa: S311  # not a secret
    compared = refused = 0
    for _ in range(10):
        namespace = plane.namespace()
        limits = random_limit_range(of)
        made = plane.request("POST", f"/api/v1/namespaces/{namespace}/limitranges", limits)
        if made.status != HTTPStatus.CREATED:  # it contradicts itself
            continue
        for _ in range(8):
            pod = random_pod(of)
            answer = plane.request("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", pod)
            ours = apply_limit_ranges(pod, [limits])
            if answer.status == HTTPStatus.CREATED:
                compared += 1
                assert not ours.hurdles, (limits, pod)
                assert resources_of(ours.pod) == resources_of(answer.body), (limits, pod)
            elif "maximum" in answer.body["message"] or "minimum" in answer.body["message"]:
                refused += 1
                assert ours.hurdles, (limits, pod, answer.body["message"])
    assert compared
    assert refused

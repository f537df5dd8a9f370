"""The effects of LimitRanges and ResourceQuotas on GPU pods, as the rules about them say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.testkit.admission.registered_webhook import create
from tests.testkit.admission.reviews import container, gpus, pod
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually
from tests.testkit.control_plane.quotas import await_quotas

CREATED, FORBIDDEN, INVALID = 201, 403, 422
GPU = "nvidia.com/gpu"
CPU_AND_MEMORY = {"limits": {"cpu": "1", "memory": "1Gi"}}


def add(plane: ControlPlane, namespace: str, kind: str, spec: Mapping[str, Any]) -> int:
    manifest = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "x"}, "spec": spec}
    path = f"/api/v1/namespaces/{namespace}/{kind.lower()}s"
    status: int = plane.request("POST", path, manifest).status
    return status


@pytest.mark.parametrize(
    ("item", "status", "given"),
    [
        ({"default": {GPU: 1}}, CREATED, "1"),
        ({"max": {GPU: 2}}, CREATED, "2"),
        ({"max": {GPU: 2}, "default": {GPU: 0}}, CREATED, "0"),
        ({"defaultRequest": {GPU: 1}}, INVALID, None),
        ({"min": {GPU: 1}}, INVALID, None),
        ({"default": {GPU: "500m"}}, INVALID, None),
        ({"maxLimitRequestRatio": {GPU: 2}}, FORBIDDEN, None),
        ({"type": "Pod", "max": {GPU: 2}}, FORBIDDEN, None),
    ],
)
def test_what_a_limit_range_does_to_a_container_without_a_gpu(
    plane: ControlPlane, item: dict[str, Any], status: int, given: str | None
) -> None:
    namespace = plane.namespace()
    limits = [{"type": "Container", **item}]
    assert add(plane, namespace, "LimitRange", {"limits": limits}) == CREATED

    def is_in_force() -> bool:
        return create(plane, namespace, pod(container()), dry_run=True).status == status

    if status != CREATED:
        eventually(is_in_force, what="the LimitRange is in force")
        return

    def resources() -> Any:
        created = create(plane, namespace, pod(container()), dry_run=True).body
        return created["spec"]["containers"][0].get("resources", {}).get("limits")

    eventually(lambda: resources() == {GPU: given}, what="the LimitRange is in force")


def test_an_unequal_default_is_refused(plane: ControlPlane) -> None:
    limits = [{"type": "Container", "default": {GPU: 2}, "defaultRequest": {GPU: 1}}]
    assert add(plane, plane.namespace(), "LimitRange", {"limits": limits}) == INVALID


def test_what_a_quota_refuses(plane: ControlPlane) -> None:
    namespace = plane.namespace()
    hard = {"requests.cpu": "8", "limits.memory": "8Gi", f"requests.{GPU}": "2"}
    assert add(plane, namespace, "ResourceQuota", {"hard": hard}) == CREATED
    await_quotas(plane, namespace)

    def answer(*, first: dict[str, Any], then: int) -> str:
        init = container("first", resources=first)
        main = container(**gpus(limits=then))
        main["resources"]["limits"] |= CPU_AND_MEMORY["limits"]
        body = create(plane, namespace, pod(main, initContainers=[init]), dry_run=True).body
        return str(body.get("message", ""))

    assert "must specify limits.memory for: first; requests.cpu for: first" in answer(
        first={}, then=1
    )
    assert answer(first=CPU_AND_MEMORY, then=2) == ""
    assert "exceeded quota" in answer(first=CPU_AND_MEMORY, then=3)
    both = {"limits": {**CPU_AND_MEMORY["limits"], GPU: 2}}
    assert answer(first=both, then=2) == ""

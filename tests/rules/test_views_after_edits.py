"""After an edit, the view of a pod knows what one without a past knows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from policies.loading import default_policy
from rules.base.caching import cached_property
from rules.base.json_values import Path, apply, put, remove
from rules.engine.evaluation import pod_from_raw, well_formed_pod
from rules.gpu.devices import devices, pod_requests_gpu, request_of, requested_resources
from rules.gpu.devices import requests_gpu as container_requests_gpu
from rules.gpu.visibility import visible_variables
from rules.gpu.volumes import host_mounts
from rules.objects.container import Container
from rules.objects.kubernetes_objects import KubernetesObject
from rules.objects.pod import Pod
from rules.objects.view import Views
from rules.placement.gpu_nodes import gpu_node_label
from rules.relevance.traits import traits_of
from rules.workloads.discovery import find_subjects
from tests.testkit.cases import Case, cases

NEW_VALUES: dict[str | int, Any] = {
    "containers": [{"name": "other", "image": "busybox"}],
    "name": "other",
}


def view(case: Case, manifest: Any) -> Pod:
    plain = well_formed_pod(manifest)
    assert plain is not None
    return pod_from_raw(*plain, case.policy.profile, "home")


def properties(one: Pod | Container) -> dict[str, Any]:
    names = [name for name, fact in vars(type(one)).items() if isinstance(fact, cached_property)]
    return {name: getattr(one, name) for name in names if name != "containers"}


def facts(pod: Pod) -> dict[str, Any]:
    """All that the view of `pod` and those of its containers know, in comparable form."""
    return {
        **properties(pod),
        "traits": traits_of(pod),
        "requests_gpu": pod_requests_gpu(pod),
        "requested_resources": requested_resources(pod),
        "gpu_node_label": gpu_node_label(pod),
        "host_mounts": [(m.container.name, m.volume, m.path) for m in host_mounts(pod)],
        "containers": [container_facts(container) for container in pod.containers],
    }


def container_facts(container: Container) -> dict[str, Any]:
    found = devices(container).items()
    return {
        **properties(container),
        "raw": container.raw,
        "path": container.path,
        "name": container.name,
        "devices": [(name, d.is_requested, d.is_plain_count) for name, d in found],
        "request": request_of(container),
        "requests_gpu": container_requests_gpu(container),
        "visible_variables": visible_variables(container),
        "is_fraction_target": container.is_fraction_target,
    }


def places(manifest: Any) -> Iterator[Path]:
    """Every field of the pod, of its metadata and of its containers."""
    yield from (("metadata", field) for field in manifest.get("metadata") or {})
    for field, value in manifest["spec"].items():
        yield ("spec", field)
        if field.casefold().endswith("containers"):
            for index, container in enumerate(value or ()):
                yield ("spec", field, index)
                yield from (("spec", field, index, inner) for inner in container)


def check_edits(case: Case) -> int:
    """Compare the views after each removal or replacement; returns how many edits there were."""
    count = 0
    for place in places(case.manifest):
        last = place[-1]
        edit = put(place, NEW_VALUES[last]) if last in NEW_VALUES else remove(place)
        edited, _ = apply(case.manifest, [edit])
        if well_formed_pod(edited) is None:
            continue
        pod = view(case, case.manifest)
        before = facts(pod)
        after = pod.in_manifest(edited, {})
        assert facts(after) == facts(view(case, edited)), (case.name, place)
        assert facts(pod) == before, (case.name, place)
        count += 1
    return count


@pytest.mark.slow
def test_after_an_edit_a_view_knows_what_a_new_one_knows() -> None:
    ordinary = [case for case in cases() if well_formed_pod(case.manifest) is not None]
    assert sum(map(check_edits, ordinary)) > 1_000


def test_what_an_edit_does_not_touch_is_not_computed_again() -> None:
    profile = default_policy().profile
    containers = [{"name": name, "image": "busybox"} for name in ("one", "two")]
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": containers},
    }
    pod = next(subject for subject in find_subjects(manifest, profile) if isinstance(subject, Pod))
    first, second = pod.containers
    edited, _ = apply(manifest, [put(("spec", "containers", 0, "image"), "other")])
    after = pod.in_manifest(edited, {})
    assert [container.image for container in after.containers] == ["other", "busybox"]
    assert after.containers[0] is not first
    assert after.containers[1] is second
    unrelated, _ = apply(edited, [put(("status",), {"phase": "Running"})])
    assert after.in_manifest(unrelated, {}) is after


def test_a_workload_shows_the_pods_that_are_subjects_of_their_own() -> None:
    profile = default_policy().profile
    pod_spec = {"containers": [{"name": "one", "image": "busybox"}]}
    manifest = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {"template": {"spec": pod_spec}},
    }
    pod, workload = find_subjects(manifest, profile)
    assert isinstance(pod, Pod)
    assert isinstance(workload, KubernetesObject)
    place = ("spec", "template", "spec", "containers", 0, "image")
    edited, _ = apply(manifest, [put(place, "other")])
    views: Views = {}
    after = pod.in_manifest(edited, views), workload.in_manifest(edited, views)
    assert after[1].pods == (after[0],)
    assert after[1].raw is edited
    assert after[0].owner_spec == manifest["spec"]

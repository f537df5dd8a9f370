"""API servers send an update by what the pod was before as well as by what it becomes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.testkit.admission.reviews import container, gpus, pod
from tests.testkit.complete_manifests import complete_manifest
from tests.testkit.control_plane.client import Response
from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.end_to_end.steps import api_path
from tests.testkit.match_conditions.chart_condition import chart_condition
from tests.testkit.match_conditions.padded_pods import (
    COST_FACTOR,
    COST_FACTOR_WITH_OWN_NAMES,
    CUSTOM_PROFILE,
    largest_pod,
    repeated,
)
from tests.testkit.match_conditions.recorder import Recorder, RequestKey, registered_recorder

MERGE = "application/merge-patch+json"


@pytest.fixture(scope="module")
def namespace(api_server: Cluster) -> str:
    return api_server.namespace()


@pytest.fixture(scope="module")
def recorder(api_server: Cluster, namespace: str) -> Iterator[Recorder]:
    with registered_recorder(api_server, namespace, {"default": chart_condition()}) as started:
        yield started


def update(plane: Cluster, namespace: str, manifest: Any, change: dict[str, Any]) -> Response:
    """Create a pod, and apply `change` to its metadata."""
    created = plane.request("POST", api_path("Pod", namespace), manifest)
    assert created.status == 201, created.body
    path = api_path("Pod", namespace, manifest["metadata"]["name"])
    return plane.request("PATCH", path, {"metadata": change}, content_type=MERGE)


@pytest.mark.parametrize(
    ("field", "key", "is_sent"),
    [
        ("annotations", "hami.io/vgpu-devices-allocated", True),
        ("annotations", "hami.io/bind-phase", True),
        ("annotations", "received-resource-type", True),
        ("annotations", "huawei.com/npu-core", True),
        ("annotations", "gas-ts", True),
        ("annotations", "tensor-fusion.ai/gpu-ids", True),
        ("labels", "runai-gpu-group", True),
        ("labels", "runai-gpu-group/1", True),
        ("annotations", "example.com/note", False),
        ("labels", "example.com/team", False),
    ],
)
def test_an_update_that_removes_the_last_trace_is_sent(
    api_server: Cluster,
    namespace: str,
    recorder: Recorder,
    field: str,
    key: str,
    *,
    is_sent: bool,
) -> None:
    name = key.replace("/", "-").replace(".", "-") + "-" + field
    manifest = complete_manifest(pod(container()), namespace, name)
    manifest["metadata"][field] = {key: "x"}
    answer = update(api_server, namespace, manifest, {field: {key: None}})
    assert answer.status == 200, answer.body
    calls = recorder.requests["default"]
    created = calls.pop(RequestKey("validate", name, ""), None)
    assert (created is not None) == is_sent
    if is_sent:
        assert key not in created["metadata"].get(field, {}), "the last request is the update"


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("labels", {"labels": {"kueue.x-k8s.io/managed": None}}),
        ("finalizers", {"finalizers": None}),
        ("owners", {"ownerReferences": None}),
    ],
)
@pytest.mark.parametrize("has_gpu", [True, False], ids=["gpu", "cpu"])
def test_every_update_of_a_gpu_pod_is_sent(
    api_server: Cluster,
    namespace: str,
    recorder: Recorder,
    name: str,
    change: dict[str, Any],
    *,
    has_gpu: bool,
) -> None:
    fields = gpus(limits=1) if has_gpu else {}
    name = f"{name}-{'gpu' if has_gpu else 'cpu'}"
    manifest = complete_manifest(pod(container(**fields)), namespace, name)
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "name": "default"}
    found = api_server.request("GET", f"/api/v1/namespaces/{namespace}/serviceaccounts/default")
    owner = {**account, "uid": found.body["metadata"]["uid"], "controller": True}
    manifest["metadata"] |= {
        "labels": {"kueue.x-k8s.io/managed": "true"},
        "finalizers": ["kueue.x-k8s.io/managed"],
        "ownerReferences": [owner],
    }
    assert update(api_server, namespace, manifest, change).status == 200
    sent = recorder.requests["default"].pop(RequestKey("validate", name, ""), None)
    assert (sent is not None) == has_gpu
    if sent is not None:
        [field] = change
        assert not sent["metadata"].get(field), "the last request is the update"
    released = {"metadata": {"finalizers": None}}
    path = api_path("Pod", namespace, name)
    api_server.request("PATCH", path, released, content_type=MERGE)


@pytest.mark.parametrize("values", [{}, {"profiles": [CUSTOM_PROFILE]}], ids=["alone", "own"])
def test_an_update_of_the_largest_pod_is_within_the_cost_limit(
    api_server: Cluster, values: dict[str, Any]
) -> None:
    namespace = api_server.namespace()
    manifest = complete_manifest(largest_pod(), namespace, "full")
    changed = dict.fromkeys(list(manifest["metadata"]["labels"])[:1], "changed")
    times = COST_FACTOR_WITH_OWN_NAMES if values else COST_FACTOR
    conditions = {"repeated": repeated(chart_condition(values), times)}
    with registered_recorder(api_server, namespace, conditions) as started:
        answer = update(api_server, namespace, manifest, {"labels": changed})
        assert answer.status == 200, answer.body
        assert "full" not in started.names("repeated")


@pytest.mark.parametrize("field", ["annotations", "labels"])
def test_an_update_that_hides_a_removed_key_among_others_is_sent(
    api_server: Cluster, namespace: str, recorder: Recorder, field: str
) -> None:
    name = f"padded-{field}"
    manifest = complete_manifest(pod(container()), namespace, name)
    manifest["metadata"][field] = padding = {f"example.com/{n}": "x" for n in range(3_000)}
    padding["example.com/gpu"] = "x"
    fewer: dict[str, Any] = dict.fromkeys(padding)
    assert update(api_server, namespace, manifest, {field: fewer}).status == 200
    sent = recorder.requests["default"][RequestKey("validate", name, "")]
    assert not sent["metadata"].get(field)

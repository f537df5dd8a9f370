"""Custom resources at a real API server, and the pods that operators create from them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.testkit.admission.reviews import container, gpus, pod, variable
from tests.testkit.admission.server_process import Server
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually
from tests.testkit.custom_kinds import custom_kind
from tests.testkit.end_to_end.steps import PLACEMENT_FIXES, fixing_rules, wait_until_running
from webhook.registration import MODE_LABEL

pytest_plugins = ["tests.testkit.end_to_end.fixtures"]
pytestmark = pytest.mark.usefixtures("clean_up_pods")


@pytest.fixture(scope="module")
def kinds(plane: ControlPlane) -> Iterator[None]:
    """A kind of an unknown operator, and the kind of Ray's operator."""
    own_kind, ray_kind = (
        ("Training", "trainings", "example.com"),
        ("RayCluster", "rayclusters", "ray.io"),
    )
    with custom_kind(plane, *own_kind), custom_kind(plane, *ray_kind):
        yield


@pytest.mark.usefixtures("gpu_node", "kinds")
def test_the_pod_that_an_operator_creates_is_fixed_and_runs(
    plane: ControlPlane, enforced_namespace: str
) -> None:
    path = f"/apis/example.com/v1/namespaces/{enforced_namespace}/trainings"
    manifest = {"apiVersion": "example.com/v1", "kind": "Training", "metadata": {"name": "resnet"}}
    owner = plane.create(path, {**manifest, "spec": {"gpus": 1}})
    made = pod(container(**gpus(requests=1)))
    made["metadata"] = {"name": "resnet-worker-0", "ownerReferences": [reference(owner)]}
    # The operator uses its own credentials, and no user reads the warnings that it gets.
    operator = operator_of(plane, enforced_namespace)
    answer = operator.request("POST", f"/api/v1/namespaces/{enforced_namespace}/pods", made)
    assert answer.status == 201
    [running_pod] = wait_until_running(plane, enforced_namespace)
    assert fixing_rules(running_pod) == {"request-only", *PLACEMENT_FIXES}
    bypass_pod = {**made, "spec": pod(container(**variable("all")))["spec"]}
    bypass_pod["metadata"] = {**made["metadata"], "name": "resnet-worker-1"}
    refused = operator.request("POST", f"/api/v1/namespaces/{enforced_namespace}/pods", bypass_pod)
    assert (refused.status, refused.body["reason"]) == (403, "Forbidden")
    assert "[visible-devices-env]" in refused.body["message"]


def reference(owner: Any) -> dict[str, Any]:
    """The ownerReference that an operator writes."""
    metadata = owner["metadata"]
    names = {"name": metadata["name"], "uid": metadata["uid"]}
    kind = {"apiVersion": owner["apiVersion"], "kind": owner["kind"]}
    return {**kind, **names, "controller": True, "blockOwnerDeletion": True}


def operator_of(plane: ControlPlane, namespace: str) -> Any:
    """A client with the token of a service account that may edit the namespace."""
    rights = ["--clusterrole=edit", f"--serviceaccount={namespace}:default"]
    plane.kubectl("create", "rolebinding", "operator", *rights, "-n", namespace, check=False)
    client = plane.client(plane.token("default", namespace))
    path = f"/api/v1/namespaces/{namespace}/pods"
    eventually(lambda: client.request("GET", path).status == 200, what="the operator may list pods")
    return client


@pytest.mark.usefixtures("kinds")
def test_a_ray_cluster_is_warned_about_and_stored_unchanged(
    plane: ControlPlane, server: Server
) -> None:
    assert server.url
    namespace = plane.namespace({MODE_LABEL: "deny"})
    template = {"spec": pod(container("worker", **gpus(requests=1), **variable("all")))["spec"]}
    groups = [{"groupName": "gpu", "replicas": 1, "template": template}]
    manifest = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "ray"}}
    sent = {**manifest, "spec": {"workerGroupSpecs": groups}}
    path = f"/apis/ray.io/v1/namespaces/{namespace}/rayclusters"
    answer = plane.request("POST", path, sent)
    assert answer.status == 201
    assert answer.body["spec"] == sent["spec"]
    found = {warning.split()[1] for warning in answer.warnings}
    assert {"[request-only]", "[visible-devices-env]"} <= found
    assert all(warning.startswith("gpuward [") for warning in answer.warnings)
    unknown = f"/apis/example.com/v1/namespaces/{namespace}/trainings"
    training = {"apiVersion": "example.com/v1", "kind": "Training", "metadata": {"name": "x"}}
    assert plane.request("POST", unknown, {**training, "spec": sent["spec"]}).warnings == []

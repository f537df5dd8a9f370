"""`workloads: deny` and the site's own words at a real API server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.testkit.admission.reviews import container, deployment, gpus, pod, variable
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import Processes, eventually
from tests.testkit.custom_kinds import custom_kind
from tests.testkit.end_to_end.steps import (
    api_path,
    apply,
    get_object,
    namespace_with_policy,
    patch,
)

pytest_plugins = ["tests.testkit.end_to_end.fixtures"]
pytestmark = pytest.mark.usefixtures("clean_up_pods")

SITE = "contact: '#gpu-help'\ndocsUrl: https://wiki.example.com/gpus\n"
BYPASS = container(**variable("all"))


@pytest.fixture(scope="module")
def refusing_namespace(
    plane: ControlPlane, processes: Processes, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A namespace whose policy refuses workloads."""
    folder = tmp_path_factory.mktemp("workloads-deny")
    policy = f"{SITE}workloads: deny\n"
    with namespace_with_policy(plane, processes, folder, "gpuward-refusing", policy) as namespace:
        yield namespace


def named(manifest: Any, name: str) -> Any:
    """`manifest` with another name and no namespace."""
    return {**manifest, "metadata": {"name": name}}


def test_a_deployment_whose_pods_would_be_refused_is_refused_at_once(
    plane: ControlPlane, refusing_namespace: str
) -> None:
    done = apply(plane, refusing_namespace, deployment(BYPASS), check=False)
    assert done.returncode == 1
    assert (
        'admission webhook "workloads.deny.gpuward.io" denied the request: '
        "gpuward [visible-devices-env] its pods will be refused: "
    ) in done.stderr
    assert done.stderr.endswith("; contact: #gpu-help; docs: https://wiki.example.com/gpus\n")
    good = named(deployment(container(**gpus(limits=1))), "good")
    assert apply(plane, refusing_namespace, good).returncode == 0
    worse = named(deployment(BYPASS), "good")
    assert apply(plane, refusing_namespace, worse, check=False).returncode == 1


def test_a_deployment_that_exists_may_be_scaled_labelled_and_deleted(
    plane: ControlPlane, refusing_namespace: str
) -> None:
    """It was there before the policy: while the label of the namespace said `off`."""
    plane.kubectl("label", "namespace", refusing_namespace, "gpuward.io/mode=off")
    old = named(deployment(BYPASS), "old")
    old["spec"] = {**old["spec"], "replicas": 0}
    eventually(
        lambda: apply(plane, refusing_namespace, old, check=False).returncode == 0,
        what="the Deployment is created",
    )
    plane.kubectl("label", "namespace", refusing_namespace, "gpuward.io/mode-")
    other = named(old, "other")
    eventually(
        lambda: apply(plane, refusing_namespace, other, "--dry-run=server", check=False).returncode,
        what="gpuward refuses again",
    )
    path = api_path("Deployment", refusing_namespace, "old")
    for change in (
        {"spec": {"replicas": 2}},
        {"metadata": {"labels": {"team": "vision"}}},
        {"metadata": {"finalizers": ["example.com/wait"]}},
        {"metadata": {"finalizers": None}},
    ):
        answer = patch(plane, path, change)
        assert (answer.status, answer.warnings) == (200, []), change
    plane.kubectl("scale", "deployment/old", "--replicas=1", "-n", refusing_namespace)

    def observed() -> bool:
        status = get_object(plane, "Deployment", refusing_namespace, "old")["status"]
        return any(c["type"] == "ReplicaFailure" for c in status.get("conditions", []))

    eventually(observed, what="the controller wrote the status of the Deployment")
    plane.kubectl("delete", "deployment/old", "-n", refusing_namespace)


def test_a_training_job_of_a_custom_kind_is_refused_at_once(
    plane: ControlPlane, refusing_namespace: str
) -> None:
    replicas = {"Worker": {"replicas": 1, "template": {"spec": pod(BYPASS)["spec"]}}}
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "resnet"},
        "spec": {"pytorchReplicaSpecs": replicas},
    }
    path = f"/apis/kubeflow.org/v1/namespaces/{refusing_namespace}/pytorchjobs"
    with custom_kind(plane, "PyTorchJob", "pytorchjobs", "kubeflow.org"):
        answer = plane.request("POST", path, job)
    assert answer.status == 403
    assert "[visible-devices-env] its pods will be refused: " in answer.body["message"]


SECOND_APPLIES = {
    "removed": (pod(container(**gpus(limits=1), **variable("all"))), False),
    "own-toleration": (
        pod(container(**gpus(limits=1)), tolerations=[{"key": "a", "operator": "Exists"}]),
        False,
    ),
    "added": (pod(container(**gpus(limits=1))), True),
}


@pytest.mark.parametrize("how", ["client", "server"])
@pytest.mark.parametrize("case", SECOND_APPLIES)
def test_the_first_apply_of_a_pod_says_whether_a_second_one_will_fail(
    plane: ControlPlane, refusing_namespace: str, case: str, how: str
) -> None:
    manifest, succeeds = SECOND_APPLIES[case]
    sent = named(manifest, f"{case}-{how}")
    arguments = ("--server-side",) if how == "server" else ()
    first = apply(plane, refusing_namespace, sent, *arguments)
    assert ("a second `kubectl apply` of this file will fail" in first.stderr) != succeeds
    second = apply(plane, refusing_namespace, sent, *arguments, check=False)
    assert (second.returncode == 0) == succeeds, second.stderr

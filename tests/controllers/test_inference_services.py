"""InferenceServices of KServe run beside gpuward in mode deny, and leave nothing behind."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator

import pytest

from policies.loading import default_policy
from tests.testkit.admission.in_process import Exports
from tests.testkit.control_plane.build import kserve
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually
from tests.testkit.controllers.controller import Controller, built
from tests.testkit.controllers.examples import Example, inference_service, served_model
from tests.testkit.controllers.module_samples import compare_answers
from tests.testkit.controllers.recipes import KSERVE
from tests.testkit.controllers.steps import (
    MADE_BY_KUBERNETES,
    apply_again,
    events,
    forget_events,
    gpu_pods,
    remove,
    repeated_writes,
    wait_for_pods,
)
from tests.testkit.end_to_end.steps import apply, list_pods
from webhook.in_process.fixes import fix_objects
from webhook.in_process.objects import ExportOptions, policy_objects
from webhook.registration import MODE_LABEL

pytest_plugins = ["tests.testkit.controllers.fixtures"]
NODE = "gpu-inference"
MADE = (*MADE_BY_KUBERNETES, "deployments.apps", "inferenceservices.serving.kserve.io")
EXAMPLES = (inference_service, served_model)


@pytest.fixture(scope="module")
def cluster(
    plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """A cluster with KServe and its runtimes, and a GPU node with a taint."""
    plane.gpu_node(NODE, labels={"nvidia.com/gpu.present": "true"})
    programs = built(kserve)
    with Controller(KSERVE, plane, programs, tmp_path_factory.mktemp(KSERVE.name)):
        runtimes = programs.manifests(KSERVE.name) / "kserve-cluster-resources.yaml"
        install = ("apply", "--server-side", "-f", str(runtimes))
        eventually(lambda: plane.kubectl(*install), what="KServe's runtimes are there")
        yield plane
    plane.request("DELETE", f"/api/v1/nodes/{NODE}")


@pytest.fixture(scope="module", params=["webhook", "policies"])
def guarded(
    request: pytest.FixtureRequest, cluster: ControlPlane, exports: Exports
) -> Iterator[str]:
    """A namespace in mode deny: of the webhook, or of the policies that gpuward exports."""
    if request.param == "webhook":
        request.getfixturevalue("server")
        yield cluster.namespace({MODE_LABEL: "deny"})
        return
    namespace = exports.add(default_policy(), ExportOptions(), fix_objects, policy_objects)
    yield namespace
    exports.remove(namespace)


@pytest.mark.parametrize("make", EXAMPLES)
def test_it_runs_once_and_leaves_nothing(
    cluster: ControlPlane, guarded: str, make: Callable[[], Example]
) -> None:
    started = datetime.datetime.now(datetime.UTC)
    example = make()
    apply(cluster, guarded, example.manifest)
    pods = wait_for_pods(cluster, guarded, example)
    assert len(gpu_pods(pods)) == example.gpu_pods
    assert {each["spec"]["nodeName"] for each in pods} == {NODE}
    unguarded = cluster.namespace()
    apply(cluster, unguarded, example.manifest)
    assert apply_again(cluster, guarded, example) == apply_again(cluster, unguarded, example)
    assert repeated_writes(cluster, guarded, started) == {}
    remove(cluster, guarded, example, MADE)


@pytest.mark.parametrize("make", EXAMPLES)
def test_a_refusal_reaches_the_user(
    cluster: ControlPlane, guarded: str, make: Callable[[int], Example]
) -> None:
    example = make(0)
    forget_events(cluster, guarded)
    apply(cluster, guarded, example.manifest)

    def is_told() -> bool:
        said = events(cluster, guarded)
        assert any("[visible-devices-env]" in text for text in said), said
        return True

    eventually(is_told, what="an event has the refusal")
    assert not list_pods(cluster, guarded)
    remove(cluster, guarded, example, MADE)


def test_the_cluster_answers_to_samples_as_without_gpuward(
    cluster: ControlPlane, guarded: str
) -> None:
    compare_answers(cluster, guarded, "kserve")

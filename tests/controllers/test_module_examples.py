"""Examples in the controllers' own Go modules get the same pods beside gpuward in mode deny.

gpuward's webhook guards a namespace, and then the policies that gpuward exports.

Nothing answers in simulated pods, so that what a RayJob or a RayService does next is not seen.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.testkit.control_plane.build import module_folder
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import TIMEOUT, eventually
from tests.testkit.control_plane.sources import KUEUE, WORKLOAD_CONTROLLERS
from tests.testkit.controllers.controller import Controller
from tests.testkit.controllers.steps import events, gpu_pods
from tests.testkit.end_to_end.steps import apply, list_pods

pytest_plugins = ["tests.testkit.controllers.fixtures"]
NODE, OTHER_NODE = "gpu-module-examples", "cpu-module-examples"
TRAINER = "github.com/kubeflow/trainer/v2"
KUBERAY, LWS = "github.com/ray-project/kuberay/ray-operator", "sigs.k8s.io/lws"
FILES = (
    *(
        (KUBERAY, f"config/samples/{name}.yaml")
        for name in (
            "pytorch-resnet-image-classifier/ray-job.pytorch-image-classifier",
            "pytorch-text-classifier/ray-job.pytorch-distributed-training",
            "ray-cluster.verl",
            "ray-job.batch-inference",
            "ray-service.deepseek",
            "ray-service.llm-serve",
            "ray-service.stable-diffusion",
            "ray-service.text-summarizer",
        )
    ),
    *((LWS, f"docs/examples/{name}/lws.yaml") for name in ("sglang", "tensorrt-llm", "vllm/GPU")),
)


@pytest.fixture(scope="module")
def cluster(plane: ControlPlane, running: dict[str, Controller]) -> Iterator[ControlPlane]:
    """A cluster with the controllers, a GPU node, and one for pods without GPUs."""
    assert running
    plane.gpu_node(NODE, gpus=16)
    plane.gpu_node(OTHER_NODE, gpus=0, taint=False)
    yield plane
    for node in (NODE, OTHER_NODE):
        plane.request("DELETE", f"/api/v1/nodes/{node}")


def _pods(plane: ControlPlane, namespace: str) -> Counter[tuple[str, bool]]:
    """The pods of a namespace: their images, and which have GPUs."""
    found = list_pods(plane, namespace)
    with_gpus = {pod["metadata"]["name"] for pod in gpu_pods(found)}
    return Counter(
        (pod["spec"]["containers"][0]["image"], pod["metadata"]["name"] in with_gpus)
        for pod in found
    )


@pytest.mark.parametrize(
    ("module", "path"),
    FILES,
    ids=[Path(path).parent.name + "-" + Path(path).stem for _, path in FILES],
)
def test_an_example_gets_its_pods(
    cluster: ControlPlane, new_namespace: Callable[[], str], module: str, path: str
) -> None:
    file = module_folder(WORKLOAD_CONTROLLERS, module) / path
    accounts = set(re.findall(r"serviceAccountName: (\S+)", file.read_text(encoding="utf-8")))
    guarded, unguarded = new_namespace(), cluster.namespace()
    for namespace in (guarded, unguarded):
        for account in accounts:  # which the documents beside the example tell users to create
            cluster.kubectl("create", "serviceaccount", account, "-n", namespace)
        cluster.kubectl("create", "-n", namespace, "-f", str(file))

    def same_pods() -> bool:
        without, beside = _pods(cluster, unguarded), _pods(cluster, guarded)
        assert any(has_gpus for _, has_gpus in without), without
        assert beside == without
        return True

    eventually(same_pods, what=f"{path} gets its pods")
    assert not [text for text in events(cluster, guarded) if "gpuward" in text]
    for namespace in (guarded, unguarded):
        cluster.kubectl("delete", "namespace", namespace, "--wait=false")


@pytest.mark.parametrize("name", ["llama3_2_1B", "llama3_2_3B", "qwen2_5_1.5B"])
def test_a_train_job_with_a_runtime_of_torchtune_gets_its_pods(
    cluster: ControlPlane, new_namespace: Callable[[], str], name: str
) -> None:
    """The initializers complete at once, and the pods with GPUs follow them."""
    folder = module_folder(KUEUE, TRAINER) / "manifests/base/runtimes/torchtune"
    [file] = folder.rglob(f"{name}.yaml")
    cluster.kubectl("apply", "-f", str(file))
    runtime = yaml.safe_load(file.read_text(encoding="utf-8"))["metadata"]["name"]
    guarded, unguarded = new_namespace(), cluster.namespace()
    for namespace in (guarded, unguarded):
        apply(cluster, namespace, _volume(namespace))
        _create_train_job(cluster, namespace, runtime)

    def same_pods() -> bool:
        without, beside = _pods(cluster, unguarded), _pods(cluster, guarded)
        assert any(has_gpus for _, has_gpus in without), without
        assert beside == without
        return True

    eventually(same_pods, what=f"{runtime} gets its pods")
    assert not [text for text in events(cluster, guarded) if "gpuward" in text]
    for namespace in (guarded, unguarded):
        cluster.kubectl("delete", "trainjob", "tune", "-n", namespace, TIMEOUT)
        cluster.kubectl("delete", "namespace", namespace, "--wait=false")
        cluster.kubectl("delete", "persistentvolume", f"tune-{namespace}", "--wait=false")
    # Trainer keeps it while a TrainJob uses it.
    cluster.kubectl("delete", "clustertrainingruntime", runtime, TIMEOUT)


def _create_train_job(plane: ControlPlane, namespace: str, runtime: str) -> None:
    made = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "tune"},
        "spec": {"runtimeRef": {"name": runtime}},
    }
    # Its webhook refuses a TrainJob whose runtime its cache does not have yet.
    eventually(lambda: apply(plane, namespace, made), what="the runtime is known")


def _volume(namespace: str) -> dict[str, Any]:
    """What the claim of the JobSet is bound to: no program makes volumes here."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"tune-{namespace}"},
        "spec": {
            "capacity": {"storage": "100Gi"},
            "accessModes": ["ReadWriteOnce", "ReadWriteMany"],
            "hostPath": {"path": "/data"},
        },
    }

"""The pods of a TrainJob are those that Kubeflow Trainer makes, as the rules merge them."""

from __future__ import annotations

from typing import Any

import pytest

from policies.loading import default_policy
from rules.objects.pod import Pod
from rules.workloads.discovery import find_subjects
from rules.workloads.pod_counts import pods_of_kueue_workload
from rules.workloads.referred_objects import add_objects, new_builder
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually
from tests.testkit.controllers.controller import Controller
from tests.testkit.end_to_end.steps import apply

pytest_plugins = ["tests.testkit.controllers.fixtures"]
API = "trainer.kubeflow.org/v1alpha1"
STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
GPU = "nvidia.com/gpu"
# What Trainer and JobSet neither complete nor copy from elsewhere.
POD_FIELDS = ("tolerations", "nodeSelector", "serviceAccountName", "affinity")
CONTAINER_FIELDS = ("name", "image", "command", "args")


def job(name: str, step: str, container: str = "", **fields: Any) -> dict[str, Any]:
    """A Job of a runtime; `fields` are those of its container, and `pods` those of its pods."""
    pods = fields.pop("pods", {})
    made = {"name": container or step, "image": "registry.example/train:1", **fields}
    labels = {STEP: step} if step else {}
    spec = {"template": {"spec": {"containers": [made], **pods}}}
    return {"name": name, "template": {"metadata": {"labels": labels}, "spec": spec}}


def patched(name: str, **spec: Any) -> list[dict[str, Any]]:
    changed = {
        "name": name,
        "template": {"spec": {"template": {"metadata": {"labels": {"a": "b"}}, "spec": spec}}},
    }
    template = {"spec": {"replicatedJobs": [changed]}}
    return [{"manager": "example.com/me", "trainingRuntimeSpec": {"template": template}}]


TORCH: dict[str, Any] = {"numNodes": 2, "torch": {}}
MPI: dict[str, Any] = {"numNodes": 1, "mpi": {"mpiImplementation": "OpenMPI"}}
LAUNCHER_IS_NODE = {"numNodes": 1, "mpi": {**MPI["mpi"], "runLauncherAsNode": True}}
LAUNCHER, NODE = job("launcher", "trainer", "node"), job("node", "", "node")
GPUS = {"resources": {"limits": {GPU: "2"}}}
TOLERATIONS = [{"key": GPU, "operator": "Exists"}]
VARIABLES = [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
# The policy and the Jobs of the runtime, and the fields of the TrainJob.
CASES: dict[str, tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]] = {
    "runtime-alone": (TORCH, [job("node", "trainer", "node", **GPUS)], {}),
    "trainer": (
        TORCH,
        [job("node", "trainer", "node", env=VARIABLES, pods={"tolerations": TOLERATIONS})],
        {
            "trainer": {
                "image": "registry.example/own:2",
                "command": ["train"],
                "args": ["--fast"],
                "env": [{"name": "B", "value": "3"}],
                "numNodes": 3,
                "resourcesPerNode": {"limits": {GPU: "4"}},
            }
        },
    ),
    "no-source-of-a-policy": (
        {"numNodes": 4},
        [job("node", "trainer", "node")],
        {"trainer": {"resourcesPerNode": {"limits": {GPU: "1"}}}},
    ),
    "patches": (
        TORCH,
        [
            job(
                "node",
                "trainer",
                "node",
                **GPUS,
                pods={"tolerations": TOLERATIONS, "nodeSelector": {"zone": "a"}},
            )
        ],
        {
            "runtimePatches": patched(
                "node",
                nodeSelector={"pool": "gpus"},
                tolerations=[{"key": "team", "operator": "Exists"}],
                volumes=[{"name": "data", "emptyDir": {}}],
                containers=[
                    {"name": "node", "volumeMounts": [{"name": "data", "mountPath": "/d"}]}
                ],
            )
        },
    ),
    "initializers": (
        TORCH,
        [
            job("dataset-initializer", "dataset-initializer", env=VARIABLES),
            job("model-initializer", "model-initializer"),
            job("node", "trainer", "node", **GPUS),
        ],
        {
            "initializer": {
                "dataset": {"env": [{"name": "B", "value": "3"}]},
                "model": {"env": [{"name": "C", "value": "4"}]},
            }
        },
    ),
    "mpi": (
        MPI,
        [LAUNCHER, NODE],
        {"trainer": {"numNodes": 4, "resourcesPerNode": {"limits": {GPU: "2"}}}},
    ),
    "mpi-with-a-launcher-that-is-a-node": (
        LAUNCHER_IS_NODE,
        [LAUNCHER, NODE],
        {"trainer": {"numNodes": 4, "resourcesPerNode": {"limits": {GPU: "2"}}}},
    ),
}


def _devices(container: Any) -> dict[str, Any]:
    """The resources of a container without CPU and memory, which versions merge differently."""
    limits = container.get("resources", {}).get("limits", {})
    return {name: str(amount) for name, amount in limits.items() if "/" in name}


def _essence(spec: Any) -> tuple[Any, ...]:
    """What is compared of the spec of pods, but for what Trainer adds to."""
    containers = [
        ({field: each.get(field) for field in CONTAINER_FIELDS}, _devices(each))
        for each in spec["containers"]
    ]
    return {field: spec.get(field) for field in POD_FIELDS}, containers


def _variables_and_mounts(spec: Any) -> set[tuple[str, str, str]]:
    """Each variable with its value, and each volume with its place: plugins add to both."""
    return {
        (container["name"], each["name"], each.get("value", each.get("mountPath", "")))
        for container in spec["containers"]
        for each in (*container.get("env", ()), *container.get("volumeMounts", ()))
    }


@pytest.mark.parametrize("kind", ["TrainingRuntime", "ClusterTrainingRuntime"])
@pytest.mark.parametrize("name", CASES)
def test_trainer_merges_a_train_job_as_the_rules_do(
    plane: ControlPlane, running: dict[str, Controller], name: str, kind: str
) -> None:
    assert running
    policy, jobs, fields = CASES[name]
    namespace = plane.namespace()
    metadata = {"name": f"runtime-{name}", "labels": {"trainer.kubeflow.org/framework": "torch"}}
    spec = {"mlPolicy": policy, "template": {"spec": {"replicatedJobs": jobs}}}
    apply(plane, namespace, {"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec})
    home = f"/apis/{API}/namespaces/{namespace}"
    place = f"/apis/{API}" if kind.startswith("Cluster") else home
    runtime = plane.request("GET", f"{place}/{kind.lower()}s/runtime-{name}").body
    reference = {"name": f"runtime-{name}", "kind": kind}
    job_spec = {"runtimeRef": reference, "suspend": True, **fields}
    made = {"apiVersion": API, "kind": "TrainJob", "metadata": {"name": "t"}, "spec": job_spec}
    # Its webhook refuses a TrainJob whose runtime its cache does not have yet.
    eventually(lambda: apply(plane, namespace, made), what="Trainer knows the runtime")
    path = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{namespace}/jobsets/t"
    eventually(lambda: plane.request("GET", path).status == 200, what="the JobSet is made")
    job_set = plane.request("GET", path).body
    builder = new_builder(default_policy().profile)
    add_objects(builder, runtime, namespace)
    subjects = find_subjects(
        plane.request("GET", f"{home}/trainjobs/t").body,
        default_policy().profile,
        namespace,
        inventory=builder.inventory(),
    )
    pods = {
        str(pod.path[-1]): pod for pod in subjects if isinstance(pod, Pod) and pod.layout.is_merged
    }
    by_trainer = {each["name"]: each for each in job_set["spec"]["replicatedJobs"]}
    assert pods.keys() == by_trainer.keys()
    for part, pod in pods.items():
        job_template = by_trainer[part]["template"]
        template = job_template["spec"]["template"]
        assert _essence(pod.spec) == _essence(template["spec"])
        assert _variables_and_mounts(pod.spec) <= _variables_and_mounts(template["spec"])
        labels = template.get("metadata", {}).get("labels", {})
        assert pod.labels.items() <= labels.items()
        assert pods_of_kueue_workload(pod) == job_template["spec"].get("parallelism", 1)
    plane.kubectl("delete", "trainjob", "t", "-n", namespace)
    plane.request("DELETE", f"{place}/{kind.lower()}s/runtime-{name}")

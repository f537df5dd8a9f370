"""A TrainJob is judged with the template of its runtime, where that is known."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from policies.loading import default_policy, load_policy
from rules.base.json_values import value_at
from rules.catalog.index import CATALOG
from rules.engine.bounds import TooManyStepsError
from rules.engine.fixing import check, fix
from rules.inventory.builder import MAX_JOBS_OF_RUNTIME
from rules.inventory.inventory import Inventory, from_json, to_json
from rules.objects.pod import Pod
from rules.profile.context import Context
from rules.workloads.discovery import find_subjects
from rules.workloads.pod_counts import pods_of_kueue_workload
from rules.workloads.referred_objects import add_objects, new_builder
from tests.testkit.cases import TODAY
from tests.testkit.workload_table import places

API, GPU = "trainer.kubeflow.org/v1alpha1", "nvidia.com/gpu"
NAMESPACE = "ml"


def job(name: str, step: str, **container: Any) -> dict[str, Any]:
    """A Job of a runtime with one container, which is called as Trainer looks for it."""
    named = {"trainer": "node"}.get(step, step) or "node"
    spec = {"containers": [{"name": named, "image": "registry.example/train:1", **container}]}
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": step} if step else {}
    template = {"metadata": {"labels": labels}, "spec": {"template": {"spec": spec}}}
    return {"name": name, "template": template}


def limits(*, gpus: int) -> dict[str, Any]:
    """The resources of a container with so many GPUs."""
    return {"limits": {GPU: gpus}}


def runtime(
    *jobs: dict[str, Any], policy: dict[str, Any] | None = None, kind: str = "TrainingRuntime"
) -> dict[str, Any]:
    """A runtime of the name `torch`."""
    spec = {
        "mlPolicy": {"numNodes": 1, "torch": {}} if policy is None else policy,
        "template": {"spec": {"replicatedJobs": [*jobs]}},
    }
    return {"apiVersion": API, "kind": kind, "metadata": {"name": "torch"}, "spec": spec}


def train_job(kind: str = "TrainingRuntime", **fields: Any) -> dict[str, Any]:
    """A TrainJob in a queue, with this runtime."""
    reference = {"name": "torch", "kind": kind} if kind else {"name": "torch"}
    labels = {"kueue.x-k8s.io/queue-name": "team"}
    metadata = {"name": "t", "namespace": NAMESPACE, "labels": labels}
    spec = {"runtimeRef": reference, **fields}
    return {"apiVersion": API, "kind": "TrainJob", "metadata": metadata, "spec": spec}


def patch(name: str, **spec: Any) -> list[dict[str, Any]]:
    """The `runtimePatches` that change the pods of one Job."""
    changed = {"name": name, "template": {"spec": {"template": {"spec": spec}}}}
    template = {"spec": {"replicatedJobs": [changed]}}
    return [{"manager": "example.com/me", "trainingRuntimeSpec": {"template": template}}]


TAINT = {"key": GPU, "value": "present", "effect": "NoSchedule"}
QUEUE = [
    {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ResourceFlavor",
        "metadata": {"name": "a100"},
        "spec": {"nodeTaints": [TAINT]},
    },
    {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": "research"},
        "spec": {
            "resourceGroups": [
                {
                    "coveredResources": [GPU],
                    "flavors": [{"name": "a100", "resources": [{"name": GPU, "nominalQuota": 8}]}],
                }
            ]
        },
    },
    {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": {"name": "team", "namespace": NAMESPACE},
        "spec": {"clusterQueue": "research"},
    },
]


def inventory(*objects: dict[str, Any]) -> Inventory:
    builder = new_builder(default_policy().profile)
    for made in objects:
        add_objects(builder, made, NAMESPACE)
    return builder.inventory()


def found(manifest: dict[str, Any], *objects: dict[str, Any]) -> set[tuple[str, str]]:
    """Each rule that reports something about a manifest, with the place."""
    context = Context(TODAY, namespace=NAMESPACE, inventory=inventory(*objects))
    findings = check(manifest, default_policy().rule_set(), context).findings
    return {(f.rule, "/".join(map(str, f.path))) for f in findings}


def merged(manifest: dict[str, Any], *objects: dict[str, Any]) -> dict[str, Pod]:
    """The pods that are merged with runtimes, by the Job that makes them."""
    profile = default_policy().profile
    subjects = find_subjects(manifest, profile, NAMESPACE, inventory=inventory(*objects))
    pods = [each for each in subjects if isinstance(each, Pod) and each.layout.is_merged]
    return {str(pod.path[-1]): pod for pod in pods}


NEVER_ADMITTED = ("untolerated-flavor", "spec/runtimeRef")


@pytest.mark.parametrize(
    ("jobs", "fields"),
    [
        ([job("node", "trainer", resources=limits(gpus=2))], {}),
        ([job("node", "trainer")], {"trainer": {"resourcesPerNode": limits(gpus=1)}}),
    ],
    ids=["gpus-of-the-runtime", "gpus-of-the-job"],
)
@pytest.mark.parametrize("kind", ["TrainingRuntime", "ClusterTrainingRuntime", ""])
def test_a_queue_that_never_admits_the_template_is_reported(
    jobs: list[dict[str, Any]], fields: dict[str, Any], kind: str
) -> None:
    of_kind = runtime(*jobs, kind=kind or "ClusterTrainingRuntime")
    assert NEVER_ADMITTED in found(train_job(kind, **fields), *QUEUE, of_kind)


TOLERATION = {"key": GPU, "operator": "Exists"}


def test_a_toleration_of_the_runtime_or_of_a_patch_is_enough() -> None:
    tolerant = job("node", "trainer", resources=limits(gpus=2))
    tolerant["template"]["spec"]["template"]["spec"]["tolerations"] = [TOLERATION]
    assert NEVER_ADMITTED not in found(train_job(), *QUEUE, runtime(tolerant))
    plain = runtime(job("node", "trainer", resources=limits(gpus=2)))
    of_job = train_job(runtimePatches=patch("node", tolerations=[TOLERATION]))
    assert NEVER_ADMITTED not in found(of_job, *QUEUE, plain)
    of_another = train_job(runtimePatches=patch("launcher", tolerations=[TOLERATION]))
    assert NEVER_ADMITTED in found(of_another, *QUEUE, plain)


@pytest.mark.parametrize(
    "fields",
    [
        {"runtimeRef": {"name": "other", "kind": "TrainingRuntime"}},
        {"runtimeRef": {"name": "torch", "kind": "TrainingRuntime", "apiGroup": "example.com"}},
        {"runtimeRef": {"name": "torch", "kind": "FluxRuntime"}},
        {"runtimeRef": {"name": "torch"}},
        {"runtimeRef": "torch"},
        {"podTemplateOverrides": [{"targetJobs": [{"name": "node"}], "spec": {}}]},
        {"trainer": {"resourcesPerNode": {"limits": {"cpu": 4}}}},
    ],
    ids=["name", "group", "kind", "cluster-wide", "malformed", "trainer-2.1", "amounts"],
)
def test_nothing_is_said_where_the_template_is_not_known(fields: dict[str, Any]) -> None:
    of_runtime = runtime(job("node", "trainer", resources=limits(gpus=2)))
    assert merged(train_job(**fields), of_runtime) == {}
    assert NEVER_ADMITTED not in found(train_job(**fields), *QUEUE, of_runtime)


@pytest.mark.parametrize("spec", [None, "text", {"template": []}, {"template": {"spec": 5}}])
def test_a_malformed_runtime_has_no_pods(spec: Any) -> None:
    broken = {**runtime(), "spec": spec}
    assert merged(train_job(), broken) == {}


def test_the_merged_pod_has_the_fields_of_both() -> None:
    node = job("node", "trainer", env=[{"name": "A", "value": "1"}, {"name": "B", "value": "2"}])
    model = job("model-initializer", "model-initializer")
    trainer = {
        "image": "registry.example/own:2",
        "command": ["train"],
        "env": [{"name": "B", "value": "3"}],
        "resourcesPerNode": limits(gpus=4),
        "numNodes": 3,
    }
    pods = merged(
        train_job(
            trainer=trainer,
            initializer={"model": {"env": [{"name": "C", "value": "4"}]}},
            runtimePatches=patch("node", nodeSelector={"pool": "gpus"}),
        ),
        runtime(node, model),
    )
    [container] = pods["node"].containers
    assert container.raw["image"] == "registry.example/own:2"
    assert container.raw["command"] == ["train"]
    assert container.limits == {GPU: 4}
    assert container.raw["env"] == [{"name": "A", "value": "1"}, {"name": "B", "value": "3"}]
    assert pods["node"].node_selector == {"pool": "gpus"}
    assert pods_of_kueue_workload(pods["node"]) == 3
    [container] = pods["model-initializer"].containers
    assert container.raw["env"] == [{"name": "C", "value": "4"}]
    assert pods_of_kueue_workload(pods["model-initializer"]) == 1


@pytest.mark.parametrize(
    ("is_node", "counts"),
    [(True, {"launcher": 1, "node": 3}), (False, {"launcher": 1, "node": 4})],
)
def test_the_nodes_of_mpi_are_beside_their_launcher(*, is_node: bool, counts: Any) -> None:
    policy = {"numNodes": 1, "mpi": {"runLauncherAsNode": is_node}}
    trainer = {"numNodes": 4, "resourcesPerNode": limits(gpus=2)}
    jobs = (job("launcher", "trainer"), job("node", ""))
    pods = merged(train_job(trainer=trainer), runtime(*jobs, policy=policy))
    assert {name: pods_of_kueue_workload(pod) for name, pod in pods.items()} == counts
    assert bool(pods["node"].containers[0].limits) is is_node


def test_what_the_runtime_is_reported_for_is_not_reported_again() -> None:
    bypass = {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
    of_runtime = runtime(job("node", "trainer", **bypass))
    assert "visible-devices-env" in {rule for rule, _ in found(of_runtime)}
    assert "visible-devices-env" not in {rule for rule, _ in found(train_job(), of_runtime)}
    own = found(train_job(trainer=bypass), runtime(job("node", "trainer")))
    assert ("visible-devices-env", "spec/trainer/env/0/value") in own
    assert ("visible-devices-env", "spec/runtimeRef") not in own


def test_more_processes_than_the_runtime_has_gpus() -> None:
    of_runtime = runtime(job("node", "trainer", resources=limits(gpus=2)))
    place = ("parallel-size-mismatch", "spec/trainer/numProcPerNode")
    assert place in found(train_job(trainer={"numProcPerNode": 4}), of_runtime)
    assert place not in found(train_job(trainer={"numProcPerNode": 2}), of_runtime)
    assert place not in found(train_job(trainer={"numProcPerNode": 4}))


def test_no_fix_changes_a_train_job_for_what_its_runtime_says() -> None:
    manifest = train_job()
    objects = (*QUEUE, runtime(job("node", "trainer", resources=limits(gpus=2))))
    context = Context(TODAY, namespace=NAMESPACE, inventory=inventory(*objects))
    fixed = fix(manifest, default_policy().rule_set(), context)
    assert fixed.manifest == manifest
    [finding] = [f for f in fixed.remaining.findings if f.rule == NEVER_ADMITTED[0]]
    assert finding.help.endswith("; the template is in the TrainingRuntime ml/torch")
    assert not finding.fixable


def test_runtimes_that_differ_are_not_known() -> None:
    known = (
        runtime(job("node", "trainer", resources=limits(gpus=2))),
        runtime(job("node", "trainer", resources=limits(gpus=3))),
    )
    assert merged(train_job(), *known) == {}


def test_a_written_inventory_keeps_runtimes() -> None:
    known = inventory(
        runtime(job("node", "trainer")),
        runtime(job("node", "trainer"), kind="ClusterTrainingRuntime"),
    )
    assert from_json(to_json(known)) == known


def test_the_merging_of_many_patches_takes_steps() -> None:
    patches = patch("node", tolerations=[]) * 10_000
    with pytest.raises(TooManyStepsError):
        found(train_job(runtimePatches=patches), runtime(*[job("node", "trainer")] * 20))


def test_a_runtime_of_too_many_jobs_is_not_known() -> None:
    jobs = [job(f"j{number}", "trainer") for number in range(MAX_JOBS_OF_RUNTIME + 1)]
    assert len(merged(train_job(), runtime(*jobs[1:]))) == MAX_JOBS_OF_RUNTIME
    assert merged(train_job(), runtime(*jobs)) == {}


ALL_FIXES = load_policy(
    "apiVersion: gpuward.io/v1\nkind: Policy\nrules:\n"
    + "".join(f"  {rule.name}: {{fix: true}}\n" for rule in CATALOG),
    "policy",
).rule_set()
ODD: tuple[Any, ...] = (None, [], {}, 0, "x", 1.5, 10**400, [[]], [None], [{"name": {}}], "\ud800")
FULL_JOB = train_job(
    trainer={
        "image": "nvidia/cuda:12",
        "numNodes": 3,
        "numProcPerNode": 2,
        "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}],
        "resourcesPerNode": limits(gpus=2),
    },
    initializer={"dataset": {"env": [{"name": "A", "value": "b"}]}},
    runtimePatches=patch("node", containers=[{"name": "node", "env": [{"name": "B"}]}]),
)
FULL_RUNTIME = runtime(
    job("node", "trainer", resources=limits(gpus=1), env=[{"name": "A", "value": "b"}]),
    job("dataset-initializer", "dataset-initializer"),
    policy={"numNodes": 2, "mpi": {"runLauncherAsNode": True}},
)


@pytest.mark.parametrize("number", [0, 1], ids=["job", "runtime"])
def test_no_odd_value_in_a_job_or_its_runtime_makes_anything_fail(number: int) -> None:
    for path in places((FULL_JOB, FULL_RUNTIME)[number])[1:]:
        for odd in ODD:
            made = copy.deepcopy([FULL_JOB, FULL_RUNTIME])
            holder: Any = value_at(made[number], path[:-1])
            holder[path[-1]] = odd
            known = inventory(made[1], *QUEUE)
            context = Context(TODAY, namespace=NAMESPACE, inventory=known)
            assert fix(made[0], ALL_FIXES, context).remaining.failures == [], (path, odd)

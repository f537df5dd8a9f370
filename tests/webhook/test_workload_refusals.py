"""Tests of `workloads: deny`: a workload whose pods will be refused is refused itself."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from policies.loading import default_policy
from rules.finding import Action
from rules.workloads.future_pods import future_pods
from tests.testkit.admission.reviews import Admission, container, deployment, gpus, pod, variable
from webhook.admission.decision import IGNORED_DECISION

DENY = Admission("workloads: deny\n")
BYPASS = container(**variable("all"))
BAD = deployment(BYPASS)
GOOD = deployment(container(**gpus(limits=1)))
FIXED_IN_PODS = deployment(container(**gpus(limits=1), **variable("all")))


def custom_resource(api_version: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}, "spec": spec}


def template(*containers: dict[str, Any]) -> dict[str, Any]:
    return {"spec": pod(*containers)["spec"]}


PYTORCH = custom_resource(
    "kubeflow.org/v1",
    "PyTorchJob",
    {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": template(BYPASS)}}},
)
CLUSTER = {"workerGroupSpecs": [{"groupName": "gpu", "template": template(BYPASS)}]}
FINAL = [
    PYTORCH,
    custom_resource(
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        {"replicatedJobs": [{"name": "w", "template": {"spec": {"template": template(BYPASS)}}}]},
    ),
    custom_resource(
        "leaderworkerset.x-k8s.io/v1",
        "LeaderWorkerSet",
        {"leaderWorkerTemplate": {"size": 4, "workerTemplate": template(BYPASS)}},
    ),
    custom_resource(
        "batch.volcano.sh/v1alpha1",
        "Job",
        {"tasks": [{"name": "w", "replicas": 2, "template": template(BYPASS)}]},
    ),
    custom_resource("ray.io/v1", "RayCluster", CLUSTER),
    custom_resource("ray.io/v1", "RayJob", {"rayClusterSpec": CLUSTER}),
    custom_resource("ray.io/v1", "RayService", {"rayClusterConfig": CLUSTER}),
]
NOT_FINAL = [
    custom_resource(
        "kubeflow.org/v2beta1",
        "MPIJob",
        {"mpiReplicaSpecs": {"Launcher": {"template": template(BYPASS)}}},
    ),
    custom_resource(
        "trainer.kubeflow.org/v1alpha1",
        "TrainingRuntime",
        {"template": {"spec": {"replicatedJobs": [{"template": {"spec": template(BYPASS)}}]}}},
    ),
    custom_resource("example.com/v1", "Training", {"template": template(BYPASS)}),
]


def names(manifest: dict[str, Any]) -> str:
    kind: str = manifest["kind"]
    return kind


def test_a_workload_whose_pods_will_be_refused_is_refused() -> None:
    answer = DENY.mutate(BAD)
    assert not answer.allowed
    assert answer.message.startswith("gpuward [visible-devices-env] its pods will be refused: ")
    [cause] = answer.causes
    assert cause["field"] == "spec.template.spec.containers[0].env[0].value"
    assert answer.rule_outcomes == {"visible-devices-env": "denied"}
    assert not answer.operations


@pytest.mark.parametrize("allowed", [GOOD, FIXED_IN_PODS], ids=["good", "fixed in pods"])
def test_a_workload_whose_pods_will_be_admitted_is_admitted(allowed: dict[str, Any]) -> None:
    assert DENY.mutate(allowed).allowed


def test_what_the_api_server_refuses_itself_is_left_to_it() -> None:
    answer = DENY.mutate(deployment(container(**gpus(requests=1))))
    assert answer.allowed
    assert "request-only" in answer.warnings[0]


def test_without_the_policy_a_workload_is_only_warned_about() -> None:
    assert Admission().mutate(BAD).allowed
    assert Admission("workloads: fix\n").mutate(BAD).allowed


@pytest.mark.parametrize("manifest", FINAL, ids=names)
def test_a_custom_resource_whose_controller_keeps_the_template_is_refused(
    manifest: dict[str, Any],
) -> None:
    assert not DENY.mutate(manifest).allowed
    (line,) = Admission().mutate(manifest).warnings
    assert "[visible-devices-env] its pods will be refused: " in line


def test_a_job_of_a_queue_is_refused_before_it_takes_quota() -> None:
    labels = {"kueue.x-k8s.io/queue-name": "research"}
    spec = {"suspend": True, "template": template(BYPASS)}
    job = {**custom_resource("batch/v1", "Job", spec), "metadata": {"name": "x", "labels": labels}}
    assert not DENY.mutate(job).allowed
    (line,) = Admission().mutate(job).warnings
    assert "[visible-devices-env] its pods will be refused: " in line


@pytest.mark.parametrize(
    ("of_job", "of_template", "scheduler"),
    [({}, {}, "volcano"), ({"schedulerName": "own"}, {}, "own"), ({}, {"schedulerName": "b"}, "b")],
)
def test_the_pods_of_a_job_of_volcano_have_its_scheduler(
    of_job: dict[str, Any], of_template: dict[str, Any], scheduler: str
) -> None:
    task = {"name": "w", "template": {"spec": {**pod(BYPASS)["spec"], **of_template}}}
    job = custom_resource("batch.volcano.sh/v1alpha1", "Job", {**of_job, "tasks": [task]})
    (made,) = future_pods(job, default_policy().profile, "ml")
    made_pod: Any = made.manifest
    assert made_pod["spec"]["schedulerName"] == scheduler


@pytest.mark.parametrize("manifest", NOT_FINAL, ids=names)
def test_a_custom_resource_whose_controller_may_change_the_template_is_admitted(
    manifest: dict[str, Any],
) -> None:
    answer = DENY.mutate(manifest)
    assert answer.allowed
    assert answer.warnings
    assert not any("refused" in line for line in answer.warnings)


def test_a_pod_template_is_admitted_because_its_user_may_correct_the_pods() -> None:
    unused = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "x"}}
    assert DENY.mutate({**unused, "template": template(BYPASS)}).allowed


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"replicas": 5}},
        {"metadata": {"labels": {"team": "vision"}}},
        {"metadata": {"annotations": {"deployment.kubernetes.io/revision": "2"}}},
        {"metadata": {"finalizers": ["example.com/wait"]}},
        {"status": {"replicas": 2}},
    ],
    ids=["scale", "labels", "annotations", "finalizers", "status"],
)
def test_an_update_that_makes_nothing_worse_is_admitted(change: dict[str, Any]) -> None:
    changed = copy.deepcopy(BAD)
    for field, values in change.items():
        changed.setdefault(field, {}).update(values)
    answer = DENY.mutate(changed, BAD)
    assert answer.allowed
    assert not answer.warnings


def test_an_update_that_adds_a_fault_is_refused_for_it_alone() -> None:
    worse = copy.deepcopy(BAD)
    containers = worse["spec"]["template"]["spec"]["containers"]
    containers.append(container("second", **variable("all")))
    answer = DENY.mutate(worse, BAD)
    assert not answer.allowed
    assert 'container "second"' in answer.message
    assert 'container "main"' not in answer.message
    assert not DENY.mutate(BAD, GOOD).allowed
    assert DENY.mutate(GOOD, BAD).allowed


def test_what_a_controller_owns_is_ignored() -> None:
    owned = copy.deepcopy(BAD)
    owned["metadata"]["ownerReferences"] = [{"kind": "Rollout", "name": "x", "controller": True}]
    controller = "system:serviceaccount:argo-rollouts:argo-rollouts"
    assert DENY.mutate(owned, user=controller) is IGNORED_DECISION
    assert not DENY.mutate(owned, user="alice").allowed


@pytest.mark.parametrize(
    "match",
    [
        "{namespace: team-vision}",
        "{namespace: team-vision, kind: Pod, name: 'trainer-*'}",
        "{namespace: team-vision, kind: Pod, name: 'trainer-*-*'}",
    ],
)
def test_an_exception_for_the_pods_lets_their_workload_pass(match: str) -> None:
    exception = f"{{rules: [visible-devices-env], reason: seen, match: {match}}}"
    admission = Admission(f"workloads: deny\nexceptions: [{exception}]\n")
    assert admission.mutate(BAD).allowed


@pytest.mark.parametrize(
    ("mode", "outcome"), [(Action.WARN, "would-be-denied"), (Action.AUDIT, "would-be-denied")]
)
def test_other_modes_say_what_deny_would_do(mode: Action, outcome: str) -> None:
    answer = Admission("workloads: deny\n", mode).mutate(BAD)
    assert answer.allowed
    assert answer.rule_outcomes == {"visible-devices-env": outcome}
    if mode is Action.WARN:
        (line,) = answer.warnings
        assert "[visible-devices-env] would be refused in mode deny: " in line
    else:
        assert not answer.warnings


def test_a_workload_too_large_to_evaluate_is_admitted() -> None:
    huge = deployment(*(container(f"c{number}") for number in range(20_000)))
    assert DENY.mutate(huge).allowed


def test_each_of_several_templates_is_judged_by_itself() -> None:
    """Both pods have a container of the same name; only one of them will be refused."""
    fixed = template(container(**gpus(limits=1), **variable("all")))
    replicas = {"Master": {"template": fixed}, "Worker": {"template": template(BYPASS)}}
    job = custom_resource("kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": replicas})
    answer = DENY.mutate(job)
    fields = [cause["field"] for cause in answer.causes]
    assert len(fields) == 1
    assert fields[0].startswith("spec.pytorchReplicaSpecs.Worker.template.spec.containers[0]")

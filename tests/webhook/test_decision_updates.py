"""Tests of updates of pods: what counts as a change, and who may make which."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.testkit.admission.reviews import Admission, container, gpus, pod, variable
from webhook.admission.decision import IGNORED_DECISION

ADMISSION = Admission()
BYPASS_POD = pod(container(**variable("all")))
JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "1", "controller": True}
STRICT = Admission("extends: [strict]\nprofiles: [nvidia]\n")


def _with_owner(manifest: Any, owner: dict[str, Any]) -> Any:
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [owner]}}


def test_an_owner_that_a_user_adds_later_is_one_that_creation_refuses() -> None:
    old = pod(container(**gpus(limits=1)))
    owned = _with_owner(old, JOB)
    assert not STRICT.validate(owned, user="alice").allowed
    assert not STRICT.validate(owned, old, user="alice").allowed
    replaced = _with_owner(old, {**JOB, "uid": "2"})
    assert not STRICT.validate(replaced, owned, user="alice").allowed
    labelled = copy.deepcopy(owned)
    labelled["metadata"]["labels"] = {"team": "vision"}
    assert STRICT.validate(labelled, owned, user="alice").allowed, "the owner was there"


def test_controllers_may_adopt_a_pod() -> None:
    old = pod(container(**gpus(limits=1)))
    for user in (
        "system:serviceaccount:kube-system:replicaset-controller",
        "system:serviceaccount:kube-system:generic-garbage-collector",
        "system:kube-controller-manager",
        "system:serviceaccount:kubeflow:training-operator",
    ):
        assert STRICT.validate(_with_owner(old, JOB), old, user=user).allowed
        assert STRICT.validate(old, _with_owner(old, JOB), user=user).allowed


def test_a_pod_that_is_too_large_may_be_adopted_but_gets_no_owner_from_its_user() -> None:
    old = pod(container(), volumes=[{"name": f"v{n}", "emptyDir": {}} for n in range(100_000)])
    old["metadata"]["labels"] = {"team": "vision", "kueue.x-k8s.io/queue-name": "research"}
    controller = "system:serviceaccount:kube-system:replicaset-controller"
    assert not STRICT.validate(old, user="alice").allowed
    assert not STRICT.validate(_with_owner(old, JOB), old, user="alice").allowed
    assert STRICT.validate(_with_owner(old, JOB), old, user=controller).allowed
    assert STRICT.validate(old, _with_owner(old, JOB), user="alice").allowed
    relabelled = copy.deepcopy(old)
    relabelled["metadata"]["labels"]["team"] = "speech"
    assert STRICT.validate(relabelled, old, user="alice").allowed
    del relabelled["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]
    assert not STRICT.validate(relabelled, old, user="alice").allowed


@pytest.mark.parametrize(
    "field",
    [
        *("managedFields", "resourceVersion", "generation", "selfLink"),
        *("deletionTimestamp", "deletionGracePeriodSeconds"),
    ],
)
def test_what_the_api_server_writes_itself_is_no_change(field: str) -> None:
    changed = copy.deepcopy(BYPASS_POD)
    changed["metadata"][field] = "new"
    changed["status"] = {"phase": "Running"}
    assert ADMISSION.validate(changed, BYPASS_POD) is IGNORED_DECISION


@pytest.mark.parametrize("field", ["annotations", "labels", "ownerReferences", "unknownField"])
def test_any_other_field_of_the_metadata_is_a_change(field: str) -> None:
    changed = copy.deepcopy(BYPASS_POD)
    changed["metadata"][field] = {"a": "b"}
    decision = ADMISSION.validate(changed, BYPASS_POD)
    assert decision is not IGNORED_DECISION
    assert decision.allowed, "the fault was there"


def test_only_finalizers_of_queues_are_evaluated_and_none_of_a_pod_that_is_deleted() -> None:
    old = pod(container(**gpus(limits=1)))
    old["metadata"]["finalizers"] = ["batch.kubernetes.io/job-tracking", "kueue.x-k8s.io/managed"]
    tracked = copy.deepcopy(old)
    tracked["metadata"]["finalizers"] = ["kueue.x-k8s.io/managed"]
    assert ADMISSION.validate(tracked, old, user="alice") is IGNORED_DECISION
    released = copy.deepcopy(tracked)
    released["metadata"]["finalizers"] = []
    assert not ADMISSION.validate(released, tracked, user="alice").allowed
    controller = "system:serviceaccount:kueue-system:kueue-controller-manager"
    assert ADMISSION.validate(released, tracked, user=controller).allowed
    for each in (released, tracked):
        each["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    assert ADMISSION.validate(released, tracked, user="alice") is IGNORED_DECISION


@pytest.mark.parametrize("every", ["false", "true"])
def test_an_image_that_shows_all_gpus_is_refused_in_place_of_another(every: str) -> None:
    """Nothing hides the GPUs in a pod that is older than the policy."""
    admission = Admission(f"voidEveryContainer: {every}\n")
    old, other = (pod(container(image=f"registry.example.com/app:{tag}")) for tag in "12")
    assert admission.validate(other, old).allowed
    cuda = pod(container(image="nvcr.io/nvidia/cuda:13.0.0-base-ubuntu24.04"))
    refused = admission.validate(cuda, old)
    assert not refused.allowed
    assert "[image-default-all]" in refused.message

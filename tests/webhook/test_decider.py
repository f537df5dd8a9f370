"""Tests of the webhook's decisions: what it fixes, refuses, warns about and ignores."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import jsonpatch
import pytest

from policies.loading import default_policy
from rules.base.traits import GPU
from rules.catalog.index import CATALOG
from rules.engine.fixing import check
from rules.finding import Action, Finding
from rules.inventory.inventory import (
    EMPTY_INVENTORY,
    ClusterQueue,
    FlavorTaint,
    Inventory,
    KaiQueue,
    LocalQueue,
    ResourceFlavor,
)
from rules.placement.node_affinity import REQUIRED_AFFINITY
from rules.rule import indexed_rule
from tests.testkit.admission.reviews import (
    Admission,
    container,
    decider_of,
    deployment,
    gpus,
    pod,
    response,
    review,
    variable,
)
from tests.testkit.cases import TODAY, Case, cases
from tests.testkit.for_every_case import for_every_case
from webhook.admission.decider import Decider
from webhook.admission.decision import IGNORED_DECISION, RULE_OUTCOMES, Decision, reasons_of
from webhook.admission.enforcement import FIXED_ANNOTATION
from webhook.admission.request import NAMESPACE_LIMIT_KINDS

ADMISSION = Admission()
BYPASS_POD = pod(container(**variable("all")))
GPU_CONTAINER = container(**gpus(limits=1))
MODES = [Action.DENY, Action.WARN, Action.AUDIT]
ALL = [case for case in cases() if case.manifest.get("kind") in ("Pod", *NAMESPACE_LIMIT_KINDS)]


def patched(new: Any, operations: Any) -> Any:
    """`new` after the patch of `operations`, as the API server would store it."""
    return jsonpatch.apply_patch(new, list(operations))


def is_silent(answer: Any) -> bool:
    return bool(answer.allowed and not answer.warnings and not answer.operations)


# Pods


def test_a_fixed_pod_has_an_annotation_and_a_warning() -> None:
    answer = ADMISSION.mutate(pod(container(**gpus(requests=2))))
    fixed = patched(pod(container(**gpus(requests=2))), answer.operations)
    assert answer.outcome == "fixed"
    assert fixed["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": 2}
    assert "request-only" in fixed["metadata"]["annotations"][FIXED_ANNOTATION].split(",")
    line = 'gpuward [request-only] fixed in container "main": '
    assert any(warning.startswith(line) for warning in answer.warnings)
    assert answer.annotations["request-only"] == "fixed"


def test_a_refusal_lists_every_finding() -> None:
    answer = ADMISSION.validate(
        pod(container("a", **variable("all")), container("b", **variable("0,1")))
    )
    assert not answer.allowed
    first, second = answer.message.split("\n")
    assert first.startswith('gpuward [visible-devices-env] container "a" ')
    assert first.endswith("; and 1 more fault:")
    assert second.startswith('- [visible-devices-env] container "b" ')
    assert [cause["field"] for cause in answer.causes] == [
        "spec.containers[0].env[0].value",
        "spec.containers[1].env[0].value",
    ]
    assert {cause["reason"] for cause in answer.causes} == {"visible-devices-env"}


@pytest.mark.parametrize("kind", ["Pod", "Deployment"])
def test_a_refusal_names_the_worst_fault_first(kind: str) -> None:
    admission = Admission("rules: {unknown-gpu-resource: {action: deny}}\nworkloads: deny\n")
    misspelt = {"resources": {"limits": {"nvidia.com/gpus": 1}}}
    containers = container("a", **misspelt), container("b", **variable("all"))
    if kind == "Pod":
        answer = admission.validate(pod(*containers))
    else:
        answer = admission.mutate(deployment(*containers))
    assert not answer.allowed
    reasons = [cause["reason"] for cause in answer.causes]
    assert reasons == ["visible-devices-env", "unknown-gpu-resource"]
    first = answer.message.split("\n")[0]
    assert first.startswith("gpuward [visible-devices-env] ")
    assert 'container "b" sets NVIDIA_VISIBLE_DEVICES="all"' in first


def with_metadata(made: Any, **metadata: Any) -> Any:
    return {**made, "metadata": {**made["metadata"], **metadata}}


KAI = Admission("profiles: [kai]")
KAI_QUEUE = {"kai.scheduler/queue": "team-a"}


def test_a_share_by_annotation_gets_the_scheduler_and_what_whole_gpus_get() -> None:
    share = with_metadata(pod(container()), labels=KAI_QUEUE, annotations={"gpu-fraction": "0.5"})
    fixed = patched(share, KAI.mutate(share).operations)
    assert fixed["spec"]["schedulerName"] == "kai-scheduler"
    assert [each["key"] for each in fixed["spec"]["tolerations"]] == ["nvidia.com/gpu"]
    assert is_silent(KAI.validate(fixed))


def test_whoever_makes_a_pod_or_a_workload_learns_that_it_passes_kais_queue() -> None:
    whole = with_metadata(pod(GPU_CONTAINER), labels=KAI_QUEUE)
    job = with_metadata(deployment(GPU_CONTAINER), labels=KAI_QUEUE)
    fault = 'gpuward [queue-without-scheduler] the pod is of the queue "team-a" of KAI'
    for answer in (KAI.validate(whole), KAI.mutate(job), ADMISSION.validate(whole)):
        (warning,) = answer.warnings
        assert answer.allowed
        assert warning.startswith(fault)


def test_a_single_finding_is_reported_on_one_line() -> None:
    answer = ADMISSION.validate(BYPASS_POD)
    assert answer.message.startswith('gpuward [visible-devices-env] container "main" sets ')
    assert "\n" not in answer.message


def test_the_validating_path_refuses_what_was_not_fixed() -> None:
    unfixed = pod(container(**gpus(limits=1), **variable("all")))
    assert ADMISSION.mutate(unfixed).outcome == "fixed"
    assert not ADMISSION.validate(unfixed).allowed


def test_a_bypass_that_was_not_fixed_is_refused() -> None:
    image = pod(container(image="nvcr.io/nvidia/pytorch:25.01-py3"))
    answer = ADMISSION.validate(image)
    assert not answer.allowed
    assert answer.message.startswith("gpuward [image-default-all] ")
    assert "gpuward's fix is missing" in answer.message
    assert answer.rule_outcomes == {"image-default-all": "denied"}
    assert ADMISSION.validate(patched(image, ADMISSION.mutate(image).operations)).allowed
    # Fixes of other rules are not required, and an update of a pod cannot make this one.
    assert ADMISSION.validate(pod(GPU_CONTAINER)).allowed
    assert ADMISSION.validate(image, old=image).allowed


def test_an_update_may_bring_no_image_that_would_be_fixed_in_a_new_pod() -> None:
    """Nothing can be fixed in a pod that exists."""
    before = pod(container(), container("other"))
    after = pod(container(image="nvcr.io/nvidia/pytorch:25.01-py3"), container("other"))
    answer = ADMISSION.validate(after, old=before)
    assert answer.message.startswith('gpuward [image-default-all] container "main" ')
    assert answer.message.endswith("in new pods only: delete the pod, and create it anew")
    (warning,) = Admission(mode=Action.WARN).validate(after, old=before).warnings
    assert "would be refused" in warning
    assert Admission(mode=Action.WARN).validate(after, old=before).allowed
    # A pod that was created before gpuward keeps what it has, also with another version.
    newer = pod(container(image="nvcr.io/nvidia/pytorch:25.02-py3"), container("other"))
    assert ADMISSION.validate(newer, old=after).allowed
    assert ADMISSION.validate(before, old=after).allowed
    hidden = pod(container(**variable("void")), container("other"))
    hidden["spec"]["containers"][0]["image"] = "nvcr.io/nvidia/pytorch:25.01-py3"
    assert ADMISSION.validate(hidden, old=pod(container(**variable("void")))).allowed


def test_an_update_may_choose_gpu_nodes_for_a_pod_without_a_gpu() -> None:
    """As Kueue does for a pod with a scheduling gate, which would wait for ever."""
    gated = pod(container(), schedulingGates=[{"name": "kueue.x-k8s.io/admission"}])
    chosen = pod(container(), nodeSelector={"nvidia.com/gpu.present": "true"})
    assert ADMISSION.mutate(chosen).outcome == "fixed"
    assert ADMISSION.validate(chosen, old=gated).allowed


def test_a_fix_that_the_policy_turns_off_is_not_required() -> None:
    image = pod(container(image="nvcr.io/nvidia/pytorch:25.01-py3"))
    assert Admission("rules: {image-default-all: {fix: false}}").validate(image).allowed
    assert Admission(mode=Action.WARN).validate(image).allowed


def test_the_annotation_of_fixes_keeps_earlier_rules() -> None:
    new = pod(container(**gpus(requests=1)))
    new["metadata"]["annotations"] = {FIXED_ANNOTATION: "toleration-default,nonsense"}
    marked = patched(new, ADMISSION.mutate(new).operations)["metadata"]["annotations"][
        FIXED_ANNOTATION
    ]
    assert marked.split(",")[0] == "toleration-default"
    assert "request-only" in marked
    assert "nonsense" not in marked


def test_a_clean_pod_is_admitted_unchanged() -> None:
    for answer in (ADMISSION.mutate(pod(container())), ADMISSION.validate(pod(container()))):
        assert answer.outcome == "clean"
        assert is_silent(answer)
        assert not answer.annotations


def test_the_mutating_path_explains_what_the_api_server_refuses_next() -> None:
    fraction = pod(container(**gpus(limits="500m")))
    (warning,) = [w for w in ADMISSION.mutate(fraction).warnings if "fractional-gpu" in w]
    assert "a fraction, which the API server refuses" in warning
    assert "write a whole number" in warning
    assert not ADMISSION.validate(fraction).allowed


@pytest.mark.parametrize("mode", [Action.WARN, Action.AUDIT])
def test_the_warning_names_the_remedy_where_nothing_is_fixed(
    mode: Action,
) -> None:
    answer = Admission(mode=mode).mutate(pod(container(**gpus(requests=1))))
    names_remedy = any(
        'write "nvidia.com/gpu: 1" under resources.limits' in w for w in answer.warnings
    )
    assert names_remedy == (mode is Action.WARN)


def test_mirror_pods_are_never_changed() -> None:
    mirror = copy.deepcopy(BYPASS_POD)
    mirror["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "hash"}
    assert is_silent(ADMISSION.mutate(mirror, user="system:node:gpu-1"))
    assert is_silent(ADMISSION.validate(mirror, user="system:node:gpu-1"))
    assert not ADMISSION.validate(mirror, user="alice").allowed, "anybody can write the annotation"


def test_a_pod_that_is_being_deleted_is_evaluated_as_it_keeps_its_gpu() -> None:
    old = pod(container())
    old["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    old["metadata"]["finalizers"] = ["example.com/kept"]
    forged = copy.deepcopy(old)
    forged["metadata"]["annotations"] = {"hami.io/bind-phase": "success"}
    assert not ADMISSION.validate(forged, old).allowed
    assert not ADMISSION.validate(BYPASS_POD, old).allowed
    released = copy.deepcopy(forged)
    del released["metadata"]["finalizers"]
    assert ADMISSION.validate(released, forged) is IGNORED_DECISION, (
        "what rules read stays as it was"
    )


@pytest.mark.parametrize("operation", ["DELETE", "CONNECT", "PATCH"])
def test_other_operations_are_ignored(operation: str) -> None:
    assert ADMISSION.mutate(BYPASS_POD, operation=operation) is IGNORED_DECISION
    assert ADMISSION.validate(BYPASS_POD, operation=operation) is IGNORED_DECISION


def test_an_object_without_a_kind_is_evaluated_by_that_of_the_request() -> None:
    request = review(BYPASS_POD)
    bare = {key: value for key, value in BYPASS_POD.items() if key not in ("kind", "apiVersion")}
    answer = ADMISSION.decider.validate(request._replace(object=bare), Action.DENY, TODAY)
    assert not answer.allowed


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeName": "gpu-node-1"},
        {"schedulerName": "kai-scheduler"},
        {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]},
    ],
)
def test_a_pod_that_others_place_gets_every_fix_but_placement(spec: dict[str, Any]) -> None:
    new = pod(container(**gpus(limits=1), **variable("all")), **spec)
    fixed = patched(new, ADMISSION.mutate(new).operations)
    assert "env" not in fixed["spec"]["containers"][0] or not fixed["spec"]["containers"][0]["env"]
    assert "affinity" not in fixed["spec"]


def test_generate_name_matches_exceptions_like_the_generated_name() -> None:
    accepting = Admission(
        "exceptions:\n  - {rules: [visible-devices-env], reason: seen, "
        'match: {namespace: team-vision, name: "probe-*"}}\n'
    )
    new = copy.deepcopy(BYPASS_POD)
    new["metadata"] = {"generateName": "probe-"}
    assert is_silent(accepting.mutate(new))
    new["metadata"]["name"] = "probe-x7k2p"
    answer = accepting.validate(new)
    assert is_silent(answer)
    assert answer.rule_outcomes == {"visible-devices-env": "excepted"}
    assert answer.outcome == "excepted"


# Updates


def test_an_update_is_evaluated_by_what_it_changes() -> None:
    relabelled = copy.deepcopy(BYPASS_POD)
    relabelled["metadata"]["labels"] = {"a": "b"}
    assert ADMISSION.validate(relabelled, BYPASS_POD).outcome == "clean"
    annotated = copy.deepcopy(BYPASS_POD)
    annotated["metadata"]["annotations"] = {"nvidia.cdi.k8s.io/pod": "nvidia.com/gpu=all"}
    answer = ADMISSION.validate(annotated, BYPASS_POD)
    assert [finding.rule for finding in answer.findings] == ["nri-cdi-annotation"]
    assert not answer.allowed


def test_a_finding_that_got_worse_is_new() -> None:
    old = pod(container(**variable("0")))
    assert not ADMISSION.validate(pod(container(**variable("all"))), old).allowed


def test_nothing_is_fixed_on_update() -> None:
    assert ADMISSION.mutate(BYPASS_POD, pod(container())) is IGNORED_DECISION


def test_new_ephemeral_containers_are_fixed_at_any_index() -> None:
    fixing = Admission("rules: {visible-devices-env: {fix: true}}\n")
    old = pod(GPU_CONTAINER, ephemeralContainers=[container("before", **variable("all"))])
    new = copy.deepcopy(old)
    new["spec"]["ephemeralContainers"].insert(0, container("debug", **variable("all")))
    answer = fixing.mutate(new, old, subresource="ephemeralcontainers")
    assert answer.operations
    for operation in answer.operations:
        assert operation["path"].startswith("/spec/ephemeralContainers/0/")
    fixed = patched(new, answer.operations)
    allowed = ADMISSION.validate(fixed, old, subresource="ephemeralcontainers")
    assert allowed.allowed
    refused = ADMISSION.validate(new, old, subresource="ephemeralcontainers")
    assert not refused.allowed
    assert 'ephemeral container "debug"' in refused.message
    assert "before" not in refused.message


def test_an_ephemeral_container_with_the_name_of_another_changes_no_other() -> None:
    old = pod(container(**gpus(limits=1), **variable("all")))
    new = copy.deepcopy(old)
    new["spec"]["ephemeralContainers"] = [container("main", **variable("all"))]
    fixing = Admission("rules: {visible-devices-env: {fix: true}}\n")
    answer = fixing.mutate(new, old, subresource="ephemeralcontainers")
    assert not answer.operations
    assert answer.failures


def test_an_ephemeral_container_without_a_name_changes_nothing() -> None:
    """The API server refuses it. Findings about the whole pod are not those of this container."""
    old = pod(container(resources={"requests": {"nvidia.com/gpu": 1}}))
    new = copy.deepcopy(old)
    new["spec"]["ephemeralContainers"] = [{"image": "nvidia/cuda:12", **variable("all")}]
    fixing = Admission("rules: {visible-devices-env: {fix: true}}\n")
    answer = fixing.mutate(new, old, subresource="ephemeralcontainers")
    assert not answer.operations
    assert not answer.failures


# Workloads and quotas


def test_a_workload_only_gets_warnings() -> None:
    answer = ADMISSION.mutate(deployment(container(**gpus(requests=1))))
    assert answer.allowed
    assert not answer.operations
    (warning,) = answer.warnings
    assert 'write "nvidia.com/gpu: 1" under resources.limits' in warning
    assert ADMISSION.validate(deployment(container(**variable("all")))) is IGNORED_DECISION


def test_a_warning_says_that_the_pods_of_a_workload_will_be_refused() -> None:
    bypass = deployment(container(**variable("all")))
    (warning,) = ADMISSION.mutate(bypass).warnings
    assert warning.startswith("gpuward [visible-devices-env] its pods will be refused: ")
    (warning,) = Admission(mode=Action.WARN).mutate(bypass).warnings
    assert "its pods would be refused in mode deny: " in warning
    gpu_user = deployment(container(**gpus(limits=1), **variable("all")))
    (warning,) = ADMISSION.mutate(gpu_user).warnings
    assert "refused" not in warning, "its pods will be fixed"


@pytest.mark.parametrize("mode", [Action.DENY, Action.WARN])
def test_the_owner_of_a_workload_is_told_which_scheduler_is_missing(mode: Action) -> None:
    sharing = container(resources={"limits": {"aliyun.com/gpu-mem": 3}})
    registered = Admission("profiles: [ack-registered]", mode)
    (warning,) = registered.mutate(deployment(sharing)).warnings
    assert "[scheduler-name]" in warning
    assert "schedulerName: ack-co-scheduler" in warning
    named = deployment(sharing, schedulerName="ack-co-scheduler")
    assert not registered.mutate(named).warnings
    managed = Admission("profiles: [ack]", mode)
    assert not managed.mutate(deployment(sharing)).warnings
    (warning,) = managed.mutate(deployment(sharing, schedulerName="volcano")).warnings
    assert "[scheduler-mismatch]" in warning


def test_the_rule_that_refuses_is_in_the_audit_annotations() -> None:
    bad = pod(container(**variable("all")))
    assert Admission().validate(bad).annotations == {"visible-devices-env": "denied"}


def test_an_excepted_finding_is_in_the_audit_annotations() -> None:
    accepting = Admission(
        "exceptions:\n  - {rules: [visible-devices-env], reason: seen, "
        "match: {namespace: team-vision}}\n"
    )
    answer = accepting.validate(BYPASS_POD)
    assert answer.annotations == {"visible-devices-env": "excepted"}
    assert is_silent(answer)


def test_an_update_of_a_workload_gets_warnings_for_new_findings_only() -> None:
    good, bad = deployment(GPU_CONTAINER), deployment(container(**variable("all")))
    assert is_silent(ADMISSION.mutate(bad, bad))
    assert is_silent(ADMISSION.mutate(good, bad))
    assert ADMISSION.mutate(bad, good).warnings


def test_an_object_that_a_controller_owns_is_ignored() -> None:
    owned = deployment(container(**variable("all")))
    owned["kind"] = "ReplicaSet"
    owned["metadata"]["ownerReferences"] = [
        {"kind": "Deployment", "name": "trainer", "controller": True}
    ]
    assert ADMISSION.mutate(owned, user=JOB_CONTROLLER) is IGNORED_DECISION
    # Any user may write an owner.
    assert ADMISSION.mutate(owned).warnings


def test_a_custom_resource_gets_warnings() -> None:
    template = {"spec": pod(container(**variable("all")))["spec"]}
    workers = [{"groupName": "w", "template": template}]
    cluster = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "r"},
        "spec": {"workerGroupSpecs": workers},
    }
    answer = ADMISSION.mutate(cluster)
    assert not answer.operations
    assert answer.warnings


def test_a_component_is_recognized_whoever_applies_its_workload() -> None:
    admission = Admission(
        "profiles:\n  - {name: ours, extends: [nvidia], components: "
        "[{namespaces: [gpu-system], serviceAccounts: [exporter]}]}\n"
    )
    daemons = deployment(container(**variable("all")), serviceAccountName="exporter")
    daemons["kind"] = "DaemonSet"
    daemons["metadata"]["namespace"] = "gpu-system"
    assert is_silent(admission.mutate(daemons, namespace="gpu-system", user="alice"))
    made = pod(container(**variable("all")), serviceAccountName="exporter")
    made["metadata"]["namespace"] = "gpu-system"
    assert not admission.validate(made, namespace="gpu-system", user="alice").allowed


def test_a_policy_may_have_limits_added_to_workloads() -> None:
    fixing = Admission("workloads: fix\n")
    new = deployment(container(**gpus(requests=1), **variable("all")))
    answer = fixing.mutate(new)
    fixed = patched(new, answer.operations)
    (main,) = fixed["spec"]["template"]["spec"]["containers"]
    assert main["resources"]["limits"] == {"nvidia.com/gpu": 1}
    assert main["env"] == new["spec"]["template"]["spec"]["containers"][0]["env"]
    assert any("visible-devices-env" in warning for warning in answer.warnings)
    # On update as well, because `kubectl replace` would remove the limit again.
    assert fixing.mutate(new, fixed).operations


def test_a_policy_that_fixes_workloads_does_not_fix_custom_resources() -> None:
    template = {"spec": pod(container(**gpus(requests=1)))["spec"]}
    job = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {"tasks": [{"name": "t", "template": template}]},
    }
    assert not Admission("workloads: fix\n").mutate(job).operations


QUEUED = {"kueue.x-k8s.io/queue-name": "gpus"}


def queue_with(taint: FlavorTaint) -> Inventory:
    """A queue whose only flavor states this taint."""
    shared = ClusterQueue(frozenset(), dict.fromkeys(("nvidia.com/gpu", "cpu"), ("a100",)))
    return Inventory(
        {
            LocalQueue: {"team-vision": {"gpus": LocalQueue("shared")}},
            ClusterQueue: {"": {"shared": shared}},
            ResourceFlavor: {"": {"a100": ResourceFlavor((taint,), ())}},
        }
    )


GPU_TEMPLATE = {"spec": pod(container(**gpus(limits=1)))["spec"]}


def workload(api_version: str, kind: str, spec: Any, **labels: str) -> dict[str, Any]:
    metadata = {"name": "train", "labels": labels}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


QUEUED_BY_TEMPLATE = {
    "Job": workload("batch/v1", "Job", {"template": GPU_TEMPLATE}, **QUEUED),
    "JobSet": workload(
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        {"replicatedJobs": [{"name": "a", "template": {"spec": {"template": GPU_TEMPLATE}}}]},
        **QUEUED,
    ),
}


@pytest.mark.parametrize("kind", QUEUED_BY_TEMPLATE)
def test_a_policy_that_fixes_workloads_adds_the_toleration_that_kueue_compares(kind: str) -> None:
    """Kueue compares the template with its flavors before any Pod can be fixed."""
    fixing, new = Admission("workloads: fix\n"), QUEUED_BY_TEMPLATE[kind]
    answer = fixing.mutate(new)
    [added] = answer.operations
    assert added["path"].endswith("/template/spec/tolerations")
    assert [toleration["key"] for toleration in added["value"]] == ["nvidia.com/gpu"]
    assert any("[toleration-default] fixed" in warning for warning in answer.warnings)
    fixed = patched(new, answer.operations)
    assert not fixing.mutate(fixed).operations
    # A template that is stored already may be immutable: it stays as it is.
    suspended = {**new, "spec": {**new["spec"], "suspend": True}}
    assert not fixing.mutate(suspended, new).operations
    assert patched(new, fixing.mutate(new, fixed).operations) == fixed
    assert not ADMISSION.mutate(new).operations


def test_an_update_keeps_a_stored_toleration_though_another_taint_is_known_now() -> None:
    """The stored template is immutable: it lacks the new toleration, and keeps the other one."""
    new = QUEUED_BY_TEMPLATE["Job"]
    stored = patched(new, Admission("workloads: fix\n").mutate(new).operations)
    admission = Admission(
        "workloads: fix\nrules: {untolerated-flavor: {fix: true}}\n",
        inventory=queue_with(FlavorTaint("example.com/team", "vision", "NoSchedule")),
    )
    assert patched(new, admission.mutate(new, stored).operations) == stored
    assert "example.com/team" in str(admission.mutate(new).operations)
    # What was stored with that taint known keeps both.
    stored = patched(new, admission.mutate(new).operations)
    assert len(stored["spec"]["template"]["spec"]["tolerations"]) == 2
    assert patched(new, admission.mutate(new, stored).operations) == stored


def test_a_daemon_set_makes_no_pods_for_nodes_that_pods_without_a_gpu_are_kept_off() -> None:
    rule = "gpu-node-without-request: {action: deny, options: {nodes: [pool]}}"
    fixing = Admission(f"workloads: fix\nrules: {{{rule}}}\n")
    new = {**deployment(container(image="nginx:1")), "kind": "DaemonSet"}
    fixed = patched(new, fixing.mutate(new).operations)
    node = fixed["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = node[REQUIRED_AFFINITY]["nodeSelectorTerms"]
    assert term == {"matchExpressions": [{"key": "pool", "operator": "DoesNotExist"}]}
    # The same manifest again keeps it; one that is stored without it is not changed.
    assert patched(new, fixing.mutate(new, fixed).operations) == fixed
    assert not fixing.mutate(new, new).operations
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "controller": True}
    made = {
        **new,
        "kind": "ReplicaSet",
        "metadata": {**new["metadata"], "ownerReferences": [owner]},
    }
    controller = "system:serviceaccount:kube-system:deployment-controller"
    assert not fixing.mutate(made, user=controller).operations
    assert fixing.mutate(made, user="alice").operations, "any user may write an owner"


def test_an_update_may_not_add_a_toleration_of_gpu_nodes() -> None:
    admission = Admission("rules: {gpu-node-without-request: {action: deny}}\n")
    old = pod(container(image="nginx:1"), tolerations=[{"key": "nvidia.com/gpu", "value": "old"}])
    new = copy.deepcopy(old)
    assert admission.validate(new, old).allowed
    new["spec"]["tolerations"].append({"operator": "Exists"})
    refused = admission.validate(new, old)
    assert not refused.allowed
    assert "tolerates every taint of GPU nodes" in str(refused)
    assert not admission.mutate(new, old).operations


@pytest.mark.parametrize(
    "new",
    [
        workload("batch/v1", "Job", {"template": GPU_TEMPLATE}),
        workload("apps/v1", "Deployment", {"template": GPU_TEMPLATE}, **QUEUED),
        workload("kubeflow.org/v1", "MPIJob", {"mpiReplicaSpecs": {"Worker": GPU_TEMPLATE}}),
    ],
    ids=["without a queue", "queued by its pods", "pods are not as the template"],
)
def test_it_adds_none_to_other_templates(new: Any) -> None:
    assert not Admission("workloads: fix\n").mutate(new).operations


def test_a_workload_that_its_queue_never_admits_is_warned_about() -> None:
    """With the queues in the inventory: `clusterInventory.queues`."""
    known = queue_with(FlavorTaint("example.com/team", "vision", "NoSchedule"))
    admission = Admission(inventory=known)
    answer = admission.mutate(QUEUED_BY_TEMPLATE["Job"])
    told = [warning for warning in answer.warnings if "[untolerated-flavor]" in warning]
    assert "does not tolerate the taint example.com/team=vision:NoSchedule" in told[0]
    assert not answer.operations
    fixed = Admission("workloads: fix\nrules: {untolerated-flavor: {fix: true}}\n", inventory=known)
    added = fixed.mutate(QUEUED_BY_TEMPLATE["Job"]).operations
    assert "example.com/team" in str(added)


def test_what_gke_tolerates_in_pods_is_added_to_templates_where_the_flavor_is_known() -> None:
    """The admission of GKE comes after Kueue has compared the template."""
    policy, new = "profiles: [gke]\nworkloads: fix\n", QUEUED_BY_TEMPLATE["Job"]
    assert not Admission(policy).mutate(new).operations
    known = queue_with(FlavorTaint("nvidia.com/gpu", "present", "NoSchedule"))
    fixed = patched(new, Admission(policy, inventory=known).mutate(new).operations)
    [toleration] = fixed["spec"]["template"]["spec"]["tolerations"]
    assert toleration["key"] == "nvidia.com/gpu"


def test_a_template_without_gpus_that_its_queue_never_admits_is_warned_about() -> None:
    """It is no reason to let it onto GPU nodes: no fix adds the toleration."""
    known = queue_with(FlavorTaint("nvidia.com/gpu", "present", "NoSchedule"))
    template = {"spec": {"containers": [container(resources={"requests": {"cpu": "1"}})]}}
    new = workload("batch/v1", "Job", {"template": template}, **QUEUED)
    for policy in ("", "workloads: fix\n"):
        answer = Admission(policy, inventory=known).mutate(new)
        assert "which asks for no GPU, does not tolerate the taint" in str(answer.warnings)
        assert not answer.operations
    assert not Admission().mutate(new).warnings


@pytest.mark.parametrize("queue", ["research", "team", ""])
def test_a_pod_that_kai_never_schedules_is_warned_about(queue: str) -> None:
    """With the queues of KAI in the inventory, which are then all that there are."""
    known = {"team": KaiQueue("", None), "vision": KaiQueue("team", 2 * 10**9)}
    new = pod(GPU_CONTAINER, schedulerName="kai-scheduler")
    new["metadata"]["labels"] = {"kai.scheduler/queue": queue} if queue else {}
    admission = Admission(inventory=Inventory({KaiQueue: {"": known}}))
    answer = admission.validate(new)
    assert answer.allowed
    assert "[unusable-kai-queue]" in str(answer.warnings)
    new["metadata"]["labels"] = {"kai.scheduler/queue": "vision"}
    assert "[unusable-kai-queue]" not in str(admission.validate(new).warnings)
    assert "[unusable-kai-queue]" not in str(Admission().validate(new).warnings)


UNQUEUED = {
    "Job": workload("batch/v1", "Job", {"template": GPU_TEMPLATE}),
    "Deployment": workload("apps/v1", "Deployment", {"template": GPU_TEMPLATE}),
}
ONE_QUEUE = Inventory({LocalQueue: {"team-vision": {"gpus": LocalQueue("shared")}}})
JOB_CONTROLLER = "system:serviceaccount:kube-system:job-controller"
EVERYBODY = "rules: {missing-queue: {action: deny, options: {namespaces: [team-*]}}}\n"


@pytest.mark.parametrize("kind", UNQUEUED)
def test_a_workload_without_a_queue_is_refused_where_the_policy_wants_one(kind: str) -> None:
    new = UNQUEUED[kind]
    queued = {**new, "metadata": {**new["metadata"], "labels": QUEUED}}
    refusing = Admission(f"workloads: deny\n{EVERYBODY}")
    answer = refusing.mutate(new)
    assert not answer.allowed
    assert 'every workload with GPUs in the namespace "team-vision" must' in answer.message
    assert refusing.mutate(queued).allowed
    assert not refusing.mutate(new, queued).allowed  # an update that removes the label
    assert refusing.mutate({**new, "metadata": {"name": "train"}}, new).allowed  # nothing is worse
    told = Admission(f"workloads: deny\n{EVERYBODY}", mode=Action.WARN).mutate(new)
    assert told.allowed
    assert "would be refused in mode deny: the" in told.warnings[0]
    told = Admission(EVERYBODY).mutate(new)
    assert told.allowed
    assert "names no queue" in told.warnings[0]


def test_a_pod_without_a_queue_is_refused_and_the_pods_of_workloads_are_not() -> None:
    admission = Admission(EVERYBODY)
    assert not admission.validate(pod(GPU_CONTAINER)).allowed
    made = pod(GPU_CONTAINER)
    made["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "j", "controller": True}]
    assert admission.validate(made, user=JOB_CONTROLLER).allowed
    held = pod(GPU_CONTAINER, schedulingGates=[{"name": "kueue.x-k8s.io/admission"}])
    assert admission.validate(held).allowed


@pytest.mark.parametrize("is_controller", [True, False])
def test_an_owner_that_a_user_has_written_stands_for_no_queue(*, is_controller: bool) -> None:
    admission = Admission(f"workloads: deny\n{EVERYBODY}")
    reference = {"kind": "ConfigMap", "name": "x", "controller": is_controller}
    for raw, decide in ((pod(GPU_CONTAINER), admission.validate), *_unqueued(admission)):
        owned = {**raw, "metadata": {**raw["metadata"], "ownerReferences": [reference]}}
        for user in ("alice", "system:serviceaccount:team-vision:default"):
            answer = decide(owned, user=user)
            assert not answer.allowed, (raw["kind"], user)
            assert "names no queue" in answer.message
        assert decide(owned, user=JOB_CONTROLLER).allowed == is_controller


def _unqueued(admission: Admission) -> Iterator[tuple[Any, Callable[..., Decision]]]:
    for raw in UNQUEUED.values():
        yield raw, admission.mutate


def test_a_policy_that_fixes_workloads_adds_the_only_queue_and_what_the_queue_needs() -> None:
    rules = "rules: {missing-queue: {fix: true}}\n"
    fixing, new = Admission(f"workloads: fix\n{rules}", inventory=ONE_QUEUE), UNQUEUED["Job"]
    fixed = patched(new, fixing.mutate(new).operations)
    assert fixed["metadata"]["labels"] == QUEUED
    tolerations = fixed["spec"]["template"]["spec"]["tolerations"]
    assert [toleration["key"] for toleration in tolerations] == ["nvidia.com/gpu"]
    assert not fixing.mutate(fixed).operations
    assert not fixing.mutate(new, new).operations  # Kueue reads the label of new workloads only
    assert not Admission(rules, inventory=ONE_QUEUE).mutate(new).operations
    assert not Admission("workloads: fix\n", inventory=ONE_QUEUE).mutate(new).operations


def test_a_policy_may_have_the_only_queue_added_to_pods() -> None:
    allowed = "fix: true"
    everybody = f"{allowed}, options: {{namespaces: [team-*]}}"
    for setting, expected in ((everybody, QUEUED), (allowed, {})):
        policy = f"rules: {{missing-queue: {{{setting}}}}}\n"
        fixing = Admission(policy, inventory=ONE_QUEUE)
        fixed = patched(pod(GPU_CONTAINER), fixing.mutate(pod(GPU_CONTAINER)).operations)
        assert fixed["metadata"].get("labels", {}) == expected


def quota(**hard: str) -> dict[str, Any]:
    keys = {f"{prefix}.nvidia.com/gpu": amount for prefix, amount in hard.items()}
    metadata = {"name": "q"}
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": metadata,
        "spec": {"hard": keys},
    }


def test_a_quota_that_never_counts_gets_findings() -> None:
    new = quota(limits="4", requests="500m")
    found = {finding.rule for finding in ADMISSION.validate(new).findings}
    assert found == {"quota-fraction", "quota-inert-key"}
    assert is_silent(ADMISSION.mutate(new))


def test_a_quota_that_the_api_server_refuses_next_is_explained() -> None:
    answer = ADMISSION.mutate(quota(limits="500m"))
    assert [finding.rule for finding in answer.findings] == ["quota-inert-key"]
    assert "a fraction, which the API server refuses" in answer.warnings[0]


def test_a_kind_of_the_same_name_in_another_group_is_no_quota() -> None:
    other = {**quota(limits="500m"), "apiVersion": "example.com/v1"}
    assert not ADMISSION.mutate(other).warnings


def limit_range(**amounts: str) -> dict[str, Any]:
    item = {"type": "Container", **{f: {"nvidia.com/gpu": text} for f, text in amounts.items()}}
    metadata = {"name": "l"}
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": metadata,
        "spec": {"limits": [item]},
    }


def test_a_limit_range_that_gives_gpus_is_warned_about_and_refused_where_a_policy_says_so() -> None:
    giving = limit_range(default="1")
    answer = ADMISSION.validate(giving)
    assert answer.allowed
    assert "[limit-range-gpu]" in answer.warnings[0]
    assert is_silent(ADMISSION.mutate(giving))
    strict = Admission("rules: {limit-range-gpu: {action: deny}}\n")
    assert not strict.validate(giving).allowed
    # A user who changes something else about it need not repair it first.
    assert is_silent(strict.validate({**giving, "metadata": {"name": "l", "labels": {}}}, giving))


def test_a_limit_range_that_the_api_server_refuses_next_is_explained() -> None:
    answer = ADMISSION.mutate(limit_range(default="2", defaultRequest="1"))
    assert "so the API server refuses the LimitRange" in answer.warnings[0]


def claim(owners: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    exactly = {"deviceClassName": "gpu.nvidia.com", "adminAccess": True}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "all-cards", "ownerReferences": owners or []},
        "spec": {"devices": {"requests": [{"name": "all", "exactly": exactly}]}},
    }


def test_a_claim_for_devices_in_use_is_warned_about_and_refused_where_a_policy_says_so() -> None:
    answer = ADMISSION.validate(claim())
    assert answer.allowed
    assert "[admin-access-claim]" in answer.warnings[0]
    strict = Admission("rules: {admin-access-claim: {action: deny}}\n")
    assert not strict.validate(claim()).allowed


@pytest.mark.parametrize(
    ("user", "kind", "outcome"),
    [
        ("system:serviceaccount:kube-system:resource-claim-controller", "ResourceClaim", "ignored"),
        ("system:kube-controller-manager", "ResourceClaim", "ignored"),
        ("alice", "ResourceClaim", "denied"),
        ("system:serviceaccount:team:resource-claim-controller", "ResourceClaim", "denied"),
        ("alice", "ResourceClaimTemplate", "denied"),
        ("system:kube-controller-manager", "ResourceClaimTemplate", "denied"),
    ],
)
def test_only_the_controller_of_claims_makes_copies_of_templates(
    user: str, kind: str, outcome: str
) -> None:
    """Any user may write that a controller owns a claim."""
    strict = Admission("rules: {admin-access-claim: {action: deny}}\n")
    pod_owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1", "controller": True}
    new = claim([pod_owner])
    if kind == "ResourceClaimTemplate":
        new |= {"kind": kind, "spec": {"spec": new["spec"]}}
    answer = strict.validate(new, user=user)
    assert (answer == IGNORED_DECISION, answer.allowed) == (
        outcome == "ignored",
        outcome == "ignored",
    )


@pytest.mark.parametrize(
    ("user", "allowed"),
    [
        ("system:kube-scheduler", True),
        ("system:serviceaccount:kai-scheduler:binder", True),
        ("system:serviceaccount:team-vision:default", True),
        ("alice", False),
    ],
)
def test_only_schedulers_say_that_a_pod_has_paid_for_a_claim(user: str, *, allowed: bool) -> None:
    new = claim()
    new["spec"]["devices"]["requests"][0]["exactly"].pop("adminAccess")
    new["metadata"]["annotations"] = {"resource.kubernetes.io/extended-resource-claim": "true"}
    answer = ADMISSION.validate(new, user=user)
    assert answer.allowed is allowed
    assert bool(answer.warnings) == (user == "system:serviceaccount:team-vision:default")


# Modes


def test_mode_warn_changes_nothing_and_says_what_deny_would_have_done() -> None:
    admission = Admission(mode=Action.WARN)
    new = pod(container(**gpus(requests=1)), container("taker", **variable("all")), hostPID=True)
    mutating, validating = admission.mutate(new), admission.validate(new)
    assert not mutating.operations
    assert validating.allowed
    assert any("[request-only] would be fixed" in w for w in mutating.warnings)
    warnings = "\n".join(validating.warnings)
    assert "request-only" not in warnings
    assert "[host-namespaces] the pod is for GPUs" in warnings


def test_mode_warn_says_what_would_be_refused() -> None:
    answer = Admission(mode=Action.WARN).validate(
        pod(container(**gpus(limits=1), securityContext={"privileged": True}))
    )
    assert answer.allowed
    assert any(
        w.startswith("gpuward [privileged-gpu] would be refused in mode deny: ")
        for w in answer.warnings
    )
    assert answer.annotations["privileged-gpu"] == "would-be-denied"


def test_mode_audit_shows_the_user_nothing() -> None:
    admission = Admission(mode=Action.AUDIT)
    new = pod(container(**gpus(requests=1), securityContext={"privileged": True}))
    for answer in (
        admission.mutate(new),
        admission.validate(new),
        admission.mutate(deployment(GPU_CONTAINER)),
    ):
        assert is_silent(answer)
    assert admission.mutate(new).annotations["request-only"] == "would-be-fixed"
    assert admission.validate(new).annotations["privileged-gpu"] == "would-be-denied"


def test_mode_off_ignores_everything() -> None:
    admission = Admission(mode=Action.OFF)
    assert admission.mutate(BYPASS_POD) is IGNORED_DECISION
    assert admission.validate(BYPASS_POD) is IGNORED_DECISION


# Size


def test_a_large_existing_pod_may_still_be_labelled() -> None:
    old = pod(*(container(f"c{number}") for number in range(20_000)))
    new = copy.deepcopy(old)
    new["metadata"]["labels"] = {"a": "b"}
    assert ADMISSION.validate(new, old).allowed
    new["metadata"]["annotations"] = {"nvidia.cdi.k8s.io/pod": "nvidia.com/gpu=all"}
    assert not ADMISSION.validate(new, old).allowed


def test_a_pod_with_many_variables_is_evaluated() -> None:
    padding = [{"name": f"V{number}", "value": "x"} for number in range(1000)]
    many = [container(f"c{number}", env=padding) for number in range(100)]
    large = pod(*many, container("last", **variable("all")))
    assert 'container "last"' in ADMISSION.validate(large).message


def test_a_pod_too_large_to_evaluate_is_refused() -> None:
    huge = pod(*(container(f"c{number}") for number in range(20_000)))
    answer = ADMISSION.validate(huge)
    assert not answer.allowed
    assert "cannot evaluate this object" in answer.message
    assert not ADMISSION.mutate(huge).allowed, "the mutating path refuses it too"
    warned = Admission(mode=Action.WARN).validate(huge)
    assert warned.allowed
    assert "cannot evaluate" in warned.warnings[0]
    assert is_silent(Admission(mode=Action.AUDIT).validate(huge))


def test_a_workload_too_large_to_evaluate_is_admitted_with_a_warning() -> None:
    huge = deployment(*(container(f"c{number}") for number in range(20_000)))
    answer = ADMISSION.mutate(huge)
    assert answer.allowed
    assert "cannot evaluate this object" in answer.warnings[0]


def test_every_field_of_a_custom_resource_counts_towards_its_size() -> None:
    hidden = [{"a": {"b": number}} for number in range(20_000)]
    cluster = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "r"},
        "spec": {"env": hidden, "status": hidden},
    }
    assert ADMISSION.mutate(cluster).outcome == "not-evaluated"


def test_the_status_of_a_new_pod_does_not_count_towards_its_size() -> None:
    new = pod(
        container(image="nvcr.io/nvidia/pytorch:24.01-py3"), GPU_CONTAINER | {"name": "holder"}
    )
    conditions = [{"type": f"example.com/c{n}", "status": "True"} for n in range(14_000)]
    answer = ADMISSION.mutate({**new, "status": {"conditions": conditions}})
    assert "image-default-all" in answer.rule_outcomes
    assert answer.operations


def test_a_pod_whose_patch_would_be_too_large_is_refused() -> None:
    same = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}] * 20_000
    answer = ADMISSION.mutate(pod(GPU_CONTAINER | {"env": [{"name": "A", "value": "x"}, *same]}))
    assert not answer.allowed
    assert not answer.operations
    assert "cannot evaluate this object" in answer.message


def test_the_annotation_is_omitted_where_it_would_not_fit() -> None:
    new = pod(container(**gpus(requests=1)))
    new["metadata"]["annotations"] = {"notes": "x" * (256 * 1024 - 20)}
    fixed = patched(new, ADMISSION.mutate(new).operations)
    assert fixed["spec"]["containers"][0]["resources"]["limits"]
    assert list(fixed["metadata"]["annotations"]) == ["notes"]


# Bugs in gpuward


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes one rule raise on every object."""

    def explode(*_: Any) -> Any:
        raise ZeroDivisionError("a secret of the tenant")

    original_init = Decider.__init__

    def init(self: Decider, *given: Any) -> None:
        original_init(self, *given)
        rules = tuple(
            active._replace(rule=active.rule._replace(check=explode))
            if active.rule.name == "visible-devices-env"
            else active
            for active in self.rules.rules
        )
        self.rules = self.rules._replace(rules=rules)

    monkeypatch.setattr(Decider, "__init__", init)


def test_a_rule_whose_module_is_broken_is_found_before_the_first_pod(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    missing = indexed_rule(
        "rules.catalog.bypass.no_such_rule", "", action=Action.DENY, since="0.1", needs=(GPU,)
    )
    monkeypatch.setattr("policies.policy.CATALOG", (*CATALOG, missing))
    with pytest.raises(ModuleNotFoundError, match="no_such_rule"):
        Decider(default_policy())


@pytest.mark.usefixtures("broken")
def test_a_rule_that_fails_refuses_nothing_and_is_named() -> None:
    answer = Admission().validate(BYPASS_POD)
    assert answer.allowed
    assert [failure.rule for failure in answer.failures] == ["visible-devices-env"]
    assert any("[visible-devices-env] failed" in warning for warning in answer.warnings)
    assert "secret" not in "".join(answer.warnings)


@pytest.mark.usefixtures("broken")
def test_a_policy_may_refuse_what_a_failed_rule_has_not_evaluated() -> None:
    answer = Admission("onRuleError: deny\n").validate(BYPASS_POD)
    assert not answer.allowed
    assert "[visible-devices-env] failed" in answer.message
    assert "secret" not in answer.message
    assert Admission("onRuleError: deny\n", mode=Action.WARN).validate(BYPASS_POD).allowed


@pytest.mark.usefixtures("broken")
def test_the_fixes_of_the_other_rules_are_made() -> None:
    answer = Admission().mutate(pod(container(**gpus(requests=1))))
    assert "request-only" in {finding.rule for finding in answer.fixed}


# Every case, in every mode


def decider_and_request(case: Case) -> tuple[Decider, Any]:
    given = case.circumstances
    manifest = json.loads(json.dumps(case.manifest))
    request = review(
        manifest,
        user=given.get("user", "alice"),
        namespace=given.get("namespace", manifest.get("metadata", {}).get("namespace", "")),
    )
    return decider_of(case), request


@for_every_case(ALL)
def test_every_case_gets_a_valid_response(case: Case) -> None:
    decider, request = decider_and_request(case)
    for mode in MODES:
        mutating = response(request, decider.mutate(request, mode, TODAY))
        validating = response(request, decider.validate(request, mode, TODAY))
        assert ("patch" in mutating) == ("patchType" in mutating)
        assert "patch" not in validating
        assert mutating["allowed"]
        assert "patch" not in mutating or mode is Action.DENY
        assert validating["allowed"] or mode is Action.DENY
        for sent in (mutating, validating):
            check_limits(sent)


def check_limits(sent: dict[str, Any]) -> None:
    """Check the limits beyond which an API server drops, cuts or refuses something."""
    warnings = sent.get("warnings", [])
    assert sum(len(w.encode()) for w in warnings) <= 4096
    assert all(w.isprintable() and w for w in warnings)
    assert len(warnings) == len(set(warnings))
    for key, value in sent.get("auditAnnotations", {}).items():
        assert len(key) <= 63
        assert key.replace("-", "").isalnum()
        assert value in RULE_OUTCOMES
    if not sent["allowed"]:
        status = sent["status"]
        assert status["code"] == 403
        assert status["reason"] == "Forbidden"
        assert status["message"]
        assert status["details"]["causes"]


@for_every_case(ALL)
def test_mutating_twice_is_mutating_once_even_with_a_sidecar_in_between(case: Case) -> None:
    decider, request = decider_and_request(case)
    if request.kind != "Pod":
        return
    once = patched(request.object, decider.mutate(request, Action.DENY, TODAY).operations)
    again = decider.mutate(request._replace(object=once), Action.DENY, TODAY)
    assert not again.operations
    injected = copy.deepcopy(once)
    injected["spec"].setdefault("containers", []).append(container("istio-proxy"))
    injected["metadata"].setdefault("annotations", {})["sidecar.istio.io/status"] = "injected"
    third = decider.mutate(request._replace(object=injected), Action.DENY, TODAY)
    last = f"/spec/containers/{len(injected['spec']['containers']) - 1}/"
    for operation in third.operations:
        assert operation["path"].startswith((last, "/metadata/annotations/"))


@for_every_case(ALL)
def test_a_case_gets_the_same_findings_at_admission_as_in_a_file(case: Case) -> None:
    decider, request = decider_and_request(case)
    context = case.context._replace(
        namespace=request.namespace, user=request.user, inventory=EMPTY_INVENTORY
    )
    context = context._replace(operation="CREATE", old_metadata=None)
    in_a_file = check(request.object, case.rules, context).findings
    at_admission = decider.validate(request, Action.DENY, TODAY).findings
    assert [(f.rule, f.message, f.path) for f in at_admission] == [
        (f.rule, f.message, f.path) for f in in_a_file
    ]


def test_reasons_have_a_bounded_number_and_length() -> None:
    """They are made of names that tenants choose, and go into the log."""
    short, long = "/" + "a" * 499, "/" + "a" * 500
    paths = [short[1:], long[1:], *map(str, range(30))]
    findings = [Finding(path=(path,), key="k", message="m") for path in paths]
    decision = IGNORED_DECISION._replace(findings=findings)
    reasons = reasons_of(decision, {})
    assert len(reasons) == 20
    assert [reason.path for reason in reasons[:3]] == [short, long[:499] + "…", "/0"]

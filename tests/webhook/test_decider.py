"""What becomes of objects at the cluster's door."""

from __future__ import annotations

import copy
import json
from typing import Any

import jsonpatch
import pytest

from rules.engine.fixing import check
from rules.finding import Action
from tests.testkit.admission.reviews import (
    Door,
    container,
    deployment,
    gpus,
    pod,
    response,
    review,
    variable,
)
from tests.testkit.cases import TODAY, Case, cases
from webhook.admission.decider import Decider
from webhook.admission.decision import IGNORED
from webhook.admission.fixed_annotation import FIXED_ANNOTATION
from webhook.admission.outcomes import RULE_OUTCOMES

DOOR = Door()
GRANT = pod(container(**variable("all")))
HOLDING = container(**gpus(limits=1))
MODES = [Action.DENY, Action.WARN, Action.AUDIT]
ALL = [case for case in cases() if case.manifest.get("kind") in ("Pod", "ResourceQuota")]


def patched(new: Any, operations: Any) -> Any:
    """`new` as the API server would store it."""
    return jsonpatch.apply_patch(new, list(operations))


def quiet(answer: Any) -> bool:
    return bool(answer.allowed and not answer.warnings and not answer.operations)


# Pods


def test_a_pod_is_fixed_and_says_so() -> None:
    answer = DOOR.mutate(pod(container(**gpus(requests=2))))
    fixed = patched(pod(container(**gpus(requests=2))), answer.operations)
    assert answer.outcome == "fixed"
    assert fixed["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": 2}
    assert "request-only" in fixed["metadata"]["annotations"][FIXED_ANNOTATION].split(",")
    line = 'gpuward [request-only] fixed in container "main": '
    assert any(warning.startswith(line) for warning in answer.warnings)
    assert answer.annotations["request-only"] == "fixed"


def test_a_grant_is_refused_with_everything_that_is_wrong() -> None:
    answer = DOOR.validate(
        pod(container("a", **variable("all")), container("b", **variable("0,1")))
    )
    assert not answer.allowed
    assert answer.message.startswith("gpuward found 2 faults\n- [visible-devices-env] ")
    assert 'container "a"' in answer.message
    assert 'container "b"' in answer.message
    assert [cause["field"] for cause in answer.causes] == [
        "spec.containers[0].env[0].value",
        "spec.containers[1].env[0].value",
    ]
    assert {cause["reason"] for cause in answer.causes} == {"visible-devices-env"}


def test_one_fault_is_told_on_one_line() -> None:
    answer = DOOR.validate(GRANT)
    assert answer.message.startswith('gpuward [visible-devices-env] container "main" sets ')
    assert "\n" not in answer.message


def test_the_validating_path_judges_what_the_mutating_one_has_not_seen() -> None:
    asked = pod(container(**gpus(limits=1), **variable("all")))
    assert DOOR.mutate(asked).outcome == "fixed"
    assert not DOOR.validate(asked).allowed


def test_a_way_to_a_gpu_that_was_not_fixed_is_refused_at_the_end() -> None:
    image = pod(container(image="nvcr.io/nvidia/pytorch:25.01-py3"))
    answer = DOOR.validate(image)
    assert not answer.allowed
    assert answer.message.startswith("gpuward [image-default-all] ")
    assert "gpuward's fix is missing" in answer.message
    assert answer.rule_outcomes == {"image-default-all": "denied"}
    assert DOOR.validate(patched(image, DOOR.mutate(image).operations)).allowed
    # Other fixes are a help and not a guard, and an update cannot make this one.
    assert DOOR.validate(pod(HOLDING)).allowed
    assert DOOR.validate(image, old=image).allowed


def test_what_a_policy_leaves_unfixed_is_not_missed() -> None:
    image = pod(container(image="nvcr.io/nvidia/pytorch:25.01-py3"))
    assert Door("rules: {image-default-all: {fix: false}}").validate(image).allowed
    assert Door(mode=Action.WARN).validate(image).allowed


def test_the_mark_of_a_fix_adds_to_an_earlier_round() -> None:
    new = pod(container(**gpus(requests=1)))
    new["metadata"]["annotations"] = {FIXED_ANNOTATION: "toleration-default,nonsense"}
    marked = patched(new, DOOR.mutate(new).operations)["metadata"]["annotations"][FIXED_ANNOTATION]
    assert marked.split(",")[0] == "toleration-default"
    assert "request-only" in marked
    assert "nonsense" not in marked


def test_a_pod_that_nothing_is_wrong_with_is_left_alone() -> None:
    for answer in (DOOR.mutate(pod(container())), DOOR.validate(pod(container()))):
        assert answer.outcome == "clean"
        assert quiet(answer)
        assert not answer.annotations


def test_what_the_api_server_refuses_next_is_explained_by_the_mutating_path() -> None:
    fraction = pod(container(**gpus(limits="500m")))
    (warning,) = [w for w in DOOR.mutate(fraction).warnings if "fractional-gpu" in w]
    assert "a fraction, which the API server refuses" in warning
    assert "write a whole number" in warning
    assert not DOOR.validate(fraction).allowed


@pytest.mark.parametrize("mode", [Action.WARN, Action.AUDIT])
def test_what_the_api_server_refuses_next_has_its_remedy_where_nothing_is_fixed(
    mode: Action,
) -> None:
    answer = Door(mode=mode).mutate(pod(container(**gpus(requests=1))))
    told = any('write "nvidia.com/gpu: 1" under resources.limits' in w for w in answer.warnings)
    assert told == (mode is Action.WARN)


def test_mirror_pods_and_pods_being_deleted_are_never_touched() -> None:
    mirror = copy.deepcopy(GRANT)
    mirror["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "hash"}
    leaving = copy.deepcopy(GRANT)
    leaving["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    old = pod(container())
    old["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    assert quiet(DOOR.mutate(mirror))
    assert quiet(DOOR.validate(mirror))
    assert DOOR.validate(leaving, old) is IGNORED
    assert not DOOR.validate(leaving).allowed, "what is new cannot be on its way out"


@pytest.mark.parametrize("operation", ["DELETE", "CONNECT", "PATCH"])
def test_other_operations_are_ignored(operation: str) -> None:
    assert DOOR.mutate(GRANT, operation=operation) is IGNORED
    assert DOOR.validate(GRANT, operation=operation) is IGNORED


def test_an_object_without_its_kind_is_judged_by_that_of_the_call() -> None:
    asked = review(GRANT)
    bare = {key: value for key, value in GRANT.items() if key not in ("kind", "apiVersion")}
    answer = DOOR.judge.validate(asked._replace(object=bare), Action.DENY, TODAY)
    assert not answer.allowed


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeName": "gpu-node-1"},
        {"schedulerName": "kai-scheduler"},
        {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]},
    ],
)
def test_where_others_place_the_pod_only_placement_is_left_to_them(spec: dict[str, Any]) -> None:
    new = pod(container(**gpus(limits=1), **variable("all")), **spec)
    fixed = patched(new, DOOR.mutate(new).operations)
    assert "env" not in fixed["spec"]["containers"][0] or not fixed["spec"]["containers"][0]["env"]
    assert "affinity" not in fixed["spec"]


def test_a_name_yet_to_be_generated_serves_exceptions_as_it_will_be() -> None:
    accepting = Door(
        "exceptions:\n  - {rules: [visible-devices-env], reason: seen, "
        'match: {namespace: team-vision, name: "probe-*"}}\n'
    )
    new = copy.deepcopy(GRANT)
    new["metadata"] = {"generateName": "probe-"}
    assert quiet(accepting.mutate(new))
    new["metadata"]["name"] = "probe-x7k2p"
    answer = accepting.validate(new)
    assert quiet(answer)
    assert answer.rule_outcomes == {"visible-devices-env": "excepted"}
    assert answer.outcome == "excepted"


# Updates


def test_an_update_is_judged_by_what_it_changes() -> None:
    relabelled = copy.deepcopy(GRANT)
    relabelled["metadata"]["labels"] = {"a": "b"}
    assert DOOR.validate(relabelled, GRANT).outcome == "clean"
    annotated = copy.deepcopy(GRANT)
    annotated["metadata"]["annotations"] = {"nvidia.cdi.k8s.io/pod": "nvidia.com/gpu=all"}
    answer = DOOR.validate(annotated, GRANT)
    assert [finding.rule for finding in answer.findings] == ["nri-cdi-annotation"]
    assert not answer.allowed


def test_what_gets_worse_is_new() -> None:
    old = pod(container(**variable("0")))
    assert not DOOR.validate(pod(container(**variable("all"))), old).allowed


def test_nothing_is_fixed_on_update() -> None:
    assert DOOR.mutate(GRANT, pod(container())) is IGNORED


def test_ephemeral_containers_are_fixed_if_they_are_new_and_wherever_they_stand() -> None:
    fixing = Door("rules: {visible-devices-env: {fix: true}}\n")
    old = pod(HOLDING, ephemeralContainers=[container("before", **variable("all"))])
    new = copy.deepcopy(old)
    new["spec"]["ephemeralContainers"].insert(0, container("debug", **variable("all")))
    answer = fixing.mutate(new, old, subresource="ephemeralcontainers")
    assert answer.operations
    for operation in answer.operations:
        assert operation["path"].startswith("/spec/ephemeralContainers/0/")
    fixed = patched(new, answer.operations)
    allowed = DOOR.validate(fixed, old, subresource="ephemeralcontainers")
    assert allowed.allowed
    refused = DOOR.validate(new, old, subresource="ephemeralcontainers")
    assert not refused.allowed
    assert 'ephemeral container "debug"' in refused.message
    assert "before" not in refused.message


def test_an_ephemeral_container_that_borrows_a_name_changes_no_other() -> None:
    old = pod(container(**gpus(limits=1), **variable("all")))
    new = copy.deepcopy(old)
    new["spec"]["ephemeralContainers"] = [container("main", **variable("all"))]
    fixing = Door("rules: {visible-devices-env: {fix: true}}\n")
    answer = fixing.mutate(new, old, subresource="ephemeralcontainers")
    assert not answer.operations
    assert answer.failures


# Workloads and quotas


def test_of_a_workload_we_only_speak() -> None:
    answer = DOOR.mutate(deployment(container(**gpus(requests=1))))
    assert answer.allowed
    assert not answer.operations
    (warning,) = answer.warnings
    assert 'write "nvidia.com/gpu: 1" under resources.limits' in warning
    assert DOOR.validate(deployment(container(**variable("all")))) is IGNORED


def test_a_workload_whose_pods_will_be_refused_says_so() -> None:
    taker = deployment(container(**variable("all")))
    (warning,) = DOOR.mutate(taker).warnings
    assert warning.startswith("gpuward [visible-devices-env] its pods will be refused: ")
    (warning,) = Door(mode=Action.WARN).mutate(taker).warnings
    assert "its pods would be refused: " in warning
    holder = deployment(container(**gpus(limits=1), **variable("all")))
    (warning,) = DOOR.mutate(holder).warnings
    assert "refused" not in warning, "its pods will be fixed"


def test_what_an_exception_accepts_leaves_a_trace() -> None:
    accepting = Door(
        "exceptions:\n  - {rules: [visible-devices-env], reason: seen, "
        "match: {namespace: team-vision}}\n"
    )
    answer = accepting.validate(GRANT)
    assert answer.annotations == {"visible-devices-env": "excepted"}
    assert quiet(answer)


def test_an_update_of_a_workload_is_spoken_of_if_it_brings_a_fault() -> None:
    good, bad = deployment(HOLDING), deployment(container(**variable("all")))
    assert quiet(DOOR.mutate(bad, bad))
    assert quiet(DOOR.mutate(good, bad))
    assert DOOR.mutate(bad, good).warnings


def test_what_a_controller_owns_has_been_spoken_of() -> None:
    owned = deployment(container(**variable("all")))
    owned["kind"] = "ReplicaSet"
    owned["metadata"]["ownerReferences"] = [
        {"kind": "Deployment", "name": "trainer", "controller": True}
    ]
    assert DOOR.mutate(owned) is IGNORED


def test_a_custom_resource_is_spoken_of() -> None:
    template = {"spec": pod(container(**variable("all")))["spec"]}
    workers = [{"groupName": "w", "template": template}]
    cluster = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "r"},
        "spec": {"workerGroupSpecs": workers},
    }
    answer = DOOR.mutate(cluster)
    assert not answer.operations
    assert answer.warnings


def test_a_component_is_known_whoever_applies_its_workload() -> None:
    door = Door(
        "profiles:\n  - {name: ours, extends: [nvidia], components: "
        "[{namespaces: [gpu-system], serviceAccounts: [exporter]}]}\n"
    )
    daemons = deployment(container(**variable("all")), serviceAccountName="exporter")
    daemons["kind"] = "DaemonSet"
    daemons["metadata"]["namespace"] = "gpu-system"
    assert quiet(door.mutate(daemons, namespace="gpu-system", user="alice"))
    made = pod(container(**variable("all")), serviceAccountName="exporter")
    made["metadata"]["namespace"] = "gpu-system"
    assert not door.validate(made, namespace="gpu-system", user="alice").allowed


def test_a_policy_may_have_limits_added_to_workloads() -> None:
    fixing = Door("workloads: fix\n")
    new = deployment(container(**gpus(requests=1), **variable("all")))
    answer = fixing.mutate(new)
    fixed = patched(new, answer.operations)
    (main,) = fixed["spec"]["template"]["spec"]["containers"]
    assert main["resources"]["limits"] == {"nvidia.com/gpu": 1}
    assert main["env"] == new["spec"]["template"]["spec"]["containers"][0]["env"]
    assert any("visible-devices-env" in warning for warning in answer.warnings)
    # On update as well: `kubectl replace` would take the limit away again.
    assert fixing.mutate(new, fixed).operations


def test_a_policy_that_fixes_workloads_leaves_custom_resources_alone() -> None:
    template = {"spec": pod(container(**gpus(requests=1)))["spec"]}
    job = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {"tasks": [{"name": "t", "template": template}]},
    }
    assert not Door("workloads: fix\n").mutate(job).operations


def quota(**hard: str) -> dict[str, Any]:
    keys = {f"{prefix}.nvidia.com/gpu": amount for prefix, amount in hard.items()}
    metadata = {"name": "q"}
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": metadata,
        "spec": {"hard": keys},
    }


def test_a_quota_that_never_counts_is_spoken_of() -> None:
    new = quota(limits="4", requests="500m")
    found = {finding.rule for finding in DOOR.validate(new).findings}
    assert found == {"quota-fraction", "quota-inert-key"}
    assert quiet(DOOR.mutate(new))


def test_a_quota_that_the_api_server_refuses_next_is_explained() -> None:
    answer = DOOR.mutate(quota(limits="500m"))
    assert [finding.rule for finding in answer.findings] == ["quota-inert-key"]
    assert "a fraction, which the API server refuses" in answer.warnings[0]


# Modes


def test_mode_warn_changes_nothing_and_says_what_deny_would_have_done() -> None:
    door = Door(mode=Action.WARN)
    new = pod(container(**gpus(requests=1)), container("taker", **variable("all")), hostPID=True)
    mutating, validating = door.mutate(new), door.validate(new)
    assert not mutating.operations
    assert validating.allowed
    assert any("[request-only] would be fixed" in w for w in mutating.warnings)
    told = "\n".join(validating.warnings)
    assert "request-only" not in told
    assert "[host-namespaces] the pod is for GPUs" in told


def test_mode_warn_says_what_would_be_refused() -> None:
    answer = Door(mode=Action.WARN).validate(
        pod(container(**gpus(limits=1), securityContext={"privileged": True}))
    )
    assert answer.allowed
    assert any(w.startswith("gpuward [privileged-gpu] would be refused: ") for w in answer.warnings)
    assert answer.annotations["privileged-gpu"] == "would-be-denied"


def test_mode_audit_shows_the_user_nothing() -> None:
    door = Door(mode=Action.AUDIT)
    new = pod(container(**gpus(requests=1), securityContext={"privileged": True}))
    for answer in (door.mutate(new), door.validate(new), door.mutate(deployment(HOLDING))):
        assert quiet(answer)
    assert door.mutate(new).annotations["request-only"] == "would-be-fixed"
    assert door.validate(new).annotations["privileged-gpu"] == "would-be-denied"


def test_mode_off_ignores_everything() -> None:
    door = Door(mode=Action.OFF)
    assert door.mutate(GRANT) is IGNORED
    assert door.validate(GRANT) is IGNORED


# Size


def test_a_heavy_pod_that_is_there_may_still_be_labelled() -> None:
    old = pod(*(container(f"c{number}") for number in range(20_000)))
    new = copy.deepcopy(old)
    new["metadata"]["labels"] = {"a": "b"}
    assert DOOR.validate(new, old).allowed
    new["metadata"]["annotations"] = {"nvidia.cdi.k8s.io/pod": "nvidia.com/gpu=all"}
    assert not DOOR.validate(new, old).allowed


def test_variables_may_be_many() -> None:
    padding = [{"name": f"V{number}", "value": "x"} for number in range(1000)]
    many = [container(f"c{number}", env=padding) for number in range(100)]
    asked = pod(*many, container("last", **variable("all")))
    assert 'container "last"' in DOOR.validate(asked).message


def test_a_pod_too_large_to_be_judged_is_refused_and_never_admitted_unseen() -> None:
    huge = pod(*(container(f"c{number}") for number in range(20_000)))
    answer = DOOR.validate(huge)
    assert not answer.allowed
    assert "cannot evaluate this object" in answer.message
    assert not DOOR.mutate(huge).allowed, "and nothing that would be fixed slips by"
    spared = Door(mode=Action.WARN).validate(huge)
    assert spared.allowed
    assert "cannot evaluate" in spared.warnings[0]
    assert quiet(Door(mode=Action.AUDIT).validate(huge))


def test_a_workload_too_large_to_be_judged_is_let_pass_with_a_word() -> None:
    huge = deployment(*(container(f"c{number}") for number in range(20_000)))
    answer = DOOR.mutate(huge)
    assert answer.allowed
    assert "cannot evaluate this object" in answer.warnings[0]


def test_nothing_hides_under_a_light_name_in_a_custom_resource() -> None:
    hidden = [{"a": {"b": number}} for number in range(20_000)]
    cluster = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "r"},
        "spec": {"env": hidden, "status": hidden},
    }
    assert DOOR.mutate(cluster).outcome == "not-evaluated"


def test_what_the_api_server_forgets_of_a_new_pod_weighs_nothing() -> None:
    new = pod(container(image="nvcr.io/nvidia/pytorch:24.01-py3"), HOLDING | {"name": "holder"})
    conditions = [{"type": f"example.com/c{n}", "status": "True"} for n in range(14_000)]
    answer = DOOR.mutate({**new, "status": {"conditions": conditions}})
    assert "image-default-all" in answer.rule_outcomes
    assert answer.operations


def test_a_pod_with_more_faults_than_a_patch_may_have_is_refused() -> None:
    same = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}] * 20_000
    answer = DOOR.mutate(pod(HOLDING | {"env": [{"name": "A", "value": "x"}, *same]}))
    assert not answer.allowed
    assert not answer.operations
    assert "cannot evaluate this object" in answer.message


def test_the_mark_is_left_out_where_it_would_not_fit() -> None:
    new = pod(container(**gpus(requests=1)))
    new["metadata"]["annotations"] = {"notes": "x" * (256 * 1024 - 20)}
    fixed = patched(new, DOOR.mutate(new).operations)
    assert fixed["spec"]["containers"][0]["resources"]["limits"]
    assert list(fixed["metadata"]["annotations"]) == ["notes"]


# Faults of our own


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """One rule raises whatever it is asked about."""

    def explode(*_: Any) -> Any:
        raise ZeroDivisionError("a secret of the tenant")

    whole = Decider.__init__

    def init(self: Decider, policy: Any) -> None:
        whole(self, policy)
        rules = tuple(
            active._replace(rule=active.rule._replace(check=explode))
            if active.rule.name == "visible-devices-env"
            else active
            for active in self._rules.rules
        )
        self._rules = self._rules._replace(rules=rules)

    monkeypatch.setattr(Decider, "__init__", init)


@pytest.mark.usefixtures("broken")
def test_a_rule_that_fails_refuses_nothing_and_is_named() -> None:
    answer = Door().validate(GRANT)
    assert answer.allowed
    assert [failure.rule for failure in answer.failures] == ["visible-devices-env"]
    assert any("[visible-devices-env] failed" in warning for warning in answer.warnings)
    assert "secret" not in "".join(answer.warnings)


@pytest.mark.usefixtures("broken")
def test_a_policy_may_refuse_what_a_failed_rule_has_not_judged() -> None:
    answer = Door("onRuleError: deny\n").validate(GRANT)
    assert not answer.allowed
    assert "[visible-devices-env] failed" in answer.message
    assert "secret" not in answer.message
    assert Door("onRuleError: deny\n", mode=Action.WARN).validate(GRANT).allowed


@pytest.mark.usefixtures("broken")
def test_the_fixes_of_the_other_rules_are_made() -> None:
    answer = Door().mutate(pod(container(**gpus(requests=1))))
    assert "request-only" in {finding.rule for finding in answer.fixed}


# Every case, in every mode


def asked_of(case: Case) -> tuple[Decider, Any]:
    given = case.circumstances
    manifest = json.loads(json.dumps(case.manifest))
    call = review(
        manifest,
        user=given.get("user", "alice"),
        namespace=given.get("namespace", manifest.get("metadata", {}).get("namespace", "")),
    )
    return Decider(case.policy), call


@pytest.mark.parametrize("case", ALL, ids=[case.name for case in ALL])
def test_every_case_is_answered_as_the_protocol_wants_it(case: Case) -> None:
    judge, asked = asked_of(case)
    for mode in MODES:
        mutating = response(asked, judge.mutate(asked, mode, TODAY))
        validating = response(asked, judge.validate(asked, mode, TODAY))
        assert ("patch" in mutating) == ("patchType" in mutating)
        assert "patch" not in validating
        assert mutating["allowed"]
        assert "patch" not in mutating or mode is Action.DENY
        assert validating["allowed"] or mode is Action.DENY
        for told in (mutating, validating):
            check_limits(told)


def check_limits(told: dict[str, Any]) -> None:
    """What an API server would drop, cut or refuse."""
    warnings = told.get("warnings", [])
    assert sum(len(w.encode()) for w in warnings) <= 4096
    assert all(w.isprintable() and w for w in warnings)
    assert len(warnings) == len(set(warnings))
    for key, value in told.get("auditAnnotations", {}).items():
        assert len(key) <= 63
        assert key.replace("-", "").isalnum()
        assert value in RULE_OUTCOMES
    if not told["allowed"]:
        status = told["status"]
        assert status["code"] == 403
        assert status["reason"] == "Forbidden"
        assert status["message"]
        assert status["details"]["causes"]


@pytest.mark.parametrize("case", ALL, ids=[case.name for case in ALL])
def test_mutating_twice_is_mutating_once_even_with_a_sidecar_in_between(case: Case) -> None:
    judge, asked = asked_of(case)
    if asked.kind != "Pod":
        return
    once = patched(asked.object, judge.mutate(asked, Action.DENY, TODAY).operations)
    again = judge.mutate(asked._replace(object=once), Action.DENY, TODAY)
    assert not again.operations
    injected = copy.deepcopy(once)
    injected["spec"].setdefault("containers", []).append(container("istio-proxy"))
    injected["metadata"].setdefault("annotations", {})["sidecar.istio.io/status"] = "injected"
    third = judge.mutate(asked._replace(object=injected), Action.DENY, TODAY)
    last = f"/spec/containers/{len(injected['spec']['containers']) - 1}/"
    for operation in third.operations:
        assert operation["path"].startswith((last, "/metadata/annotations/"))


@pytest.mark.parametrize("case", ALL, ids=[case.name for case in ALL])
def test_a_case_is_found_at_the_door_as_in_a_file(case: Case) -> None:
    judge, asked = asked_of(case)
    context = case.context._replace(operation="CREATE", namespace=asked.namespace, user=asked.user)
    in_a_file = check(asked.object, case.policy.rule_set(), context).findings
    at_the_door = judge.validate(asked, Action.DENY, TODAY).findings
    assert [(f.rule, f.message, f.path) for f in at_the_door] == [
        (f.rule, f.message, f.path) for f in in_a_file
    ]

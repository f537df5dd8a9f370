"""The GpuExceptions that a policy accepts, and its messages about the others."""

from __future__ import annotations

import datetime
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.gpu_exceptions import (
    HINT_DAYS,
    MAX_ACCEPTED,
    MAX_COUNTED_IN_NAMESPACE,
    MAX_SPEC_CHARACTERS,
    Acceptance,
    AcceptanceReason,
    acceptance,
    acceptances,
    spec_hash,
)
from policies.loading import load_policy
from rules.engine.rule_set import PolicyException
from tests.testkit.policy_mistakes import POLICY_HEADER

TODAY = datetime.date(2030, 6, 15)
POLICY = load_policy(
    f"""{POLICY_HEADER}
gpuExceptions:
  - {{rules: [privileged-gpu, absurd-count], namespaces: [vision, "team-*"], longestDays: 30}}
  - {{rules: [absurd-count], namespaces: vision, longestDays: 7, approval: none}}
  - {{rules: [quota-fraction], namespaces: "*", longestDays: 7, approval: none}}
""",
    "p.yaml",
)
APPROVED = "approved"  # by the hash of its spec


def gpu_exception(
    namespace: Any = "vision",
    labels: Any = None,
    created: Any = "2030-06-10T09:00:00Z",
    **spec: Any,
) -> dict[str, Any]:
    metadata = {
        "name": "x",
        "namespace": namespace,
        "creationTimestamp": created,
        "labels": labels,
    }
    defaults = {"rules": ["absurd-count"], "reason": "benchmarks", "expires": "2030-06-17"}
    made: dict[str, Any] = {
        "apiVersion": "gpuward.io/v1alpha1",
        "kind": "GpuException",
        "metadata": metadata,
        "spec": {k: v for k, v in {**defaults, **spec}.items() if v is not None},
    }
    if labels == APPROVED:
        made["metadata"]["labels"] = {"gpuward.io/approved": spec_hash(made)}
    return made


def accept(raw: dict[str, Any], today: datetime.date = TODAY) -> Acceptance:
    return acceptance(raw, POLICY.gpu_exception_limits, today)


def test_an_accepted_object_becomes_an_exception_of_its_own_namespace() -> None:
    match = {"serviceAccount": ["tester"], "image": ["example.com/*"], "kind": ["Pod"]}
    assert accept(gpu_exception(match=match)) == Acceptance(
        AcceptanceReason.ACCEPTED,
        "findings of absurd-count are accepted until 2030-06-17",
        PolicyException(
            rules=("absurd-count",),
            reason="benchmarks",
            expires=datetime.date(2030, 6, 17),
            namespaces=("vision",),
            kinds=("Pod",),
            service_accounts=("tester",),
            images=("example.com/*",),
        ),
    )


SECURITY = {"rules": ["privileged-gpu"]}
# Keys of the object, the reason, and a part of the message.
CASES: list[tuple[dict[str, Any], str, str]] = [
    ({}, "Accepted", "until 2030-06-17"),
    ({"expires": "2030-06-18"}, "NotApproved", "it needs the label gpuward.io/approved="),
    ({"expires": "2030-07-10", "labels": APPROVED}, "Accepted", ""),
    ({"expires": "2030-07-11", "labels": APPROVED}, "TooLong", "30 days, until 2030-07-10"),
    # An object of tomorrow is one of today.
    ({"created": "2031-01-01T00:00:00Z", "expires": "2030-06-22"}, "Accepted", ""),
    ({"created": "2031-01-01T00:00:00Z", "expires": "2030-06-23"}, "NotApproved", ""),
    ({"created": "2031-01-01", "expires": "2031-01-02", "labels": APPROVED}, "TooLong", "07-15"),
    ({"created": None, "expires": "2030-06-22"}, "Accepted", ""),
    ({"created": "soon", "expires": "2030-06-22"}, "Accepted", ""),
    (SECURITY, "NotApproved", "only approvers may set"),
    ({**SECURITY, "labels": {"gpuward.io/approved": "true"}}, "NotApproved", "does not approve"),
    ({**SECURITY, "labels": "gpuward.io/approved"}, "NotApproved", ""),
    ({**SECURITY, "labels": APPROVED}, "Accepted", ""),
    ({**SECURITY, "labels": APPROVED, "namespace": "team-a"}, "Accepted", ""),
    (
        {**SECURITY, "labels": APPROVED, "namespace": "other"},
        "NotAllowed",
        "in the namespace other",
    ),
    ({"rules": ["absurd-count", "runtime-socket"]}, "NotAllowed", "to runtime-socket"),
    ({"rules": ["absurd-count", "privileged-gpu"]}, "NotApproved", ""),
    ({"rules": ["quota-fraction"], "namespace": "anything"}, "Accepted", ""),
    ({"expires": "2030-06-15"}, "Accepted", ""),
    ({"expires": "2030-06-14"}, "Ended", "it ended after 2030-06-14"),
    ({"rules": ["absurd-cont"]}, "Invalid", 'did you mean "absurd-count"?'),
    ({"rules": []}, "Invalid", "/spec/rules: this must not be empty"),
    ({"rules": ["absurd-count"] * 21}, "Invalid", "at most 20 items"),
    ({"reason": " "}, "Invalid", "/spec/reason: this should be a reason in words"),
    ({"reason": None}, "Invalid", "the key 'reason' is missing"),
    ({"expires": None}, "Invalid", "the key 'expires' is missing"),
    ({"expires": "2031-02-31"}, "Invalid", "'2031-02-31' is not a date"),
    ({"expires": "2030-06-17\n"}, "Invalid", "a date such as"),
    ({"match": {"namespace": ["kube-system"]}}, "Invalid", "unknown key 'namespace'"),
    ({"match": {"container": "main"}}, "Invalid", "should be a list"),
    ({"match": {"name": ["x" * 254]}}, "Invalid", "a name, or a pattern"),
    ({"rules": ["quota-fraction"], "match": {"image": ["a"]}}, "Invalid", "cannot match by image"),
    ({"spec": 1}, "Invalid", "unknown key 'spec'"),
    # A namespace becomes a pattern: a star would reach other namespaces.
    ({**SECURITY, "labels": APPROVED, "namespace": "team-*"}, "Invalid", "name of a namespace"),
    ({"rules": ["quota-fraction"], "namespace": "*"}, "Invalid", "name of a namespace"),
    ({"namespace": ["vision"]}, "Invalid", "name of a namespace"),
    ({"namespace": None}, "Invalid", "name of a namespace"),
    ({"reason": "x" * MAX_SPEC_CHARACTERS}, "TooLarge", "more than 2048 characters"),
]


def test_an_approval_is_for_the_spec_that_was_read_alone() -> None:
    read = gpu_exception(rules=["privileged-gpu"], match={"image": ["a:*"], "kind": ["Pod"]})
    (message,) = {accept(read).message, accept(json.loads(json.dumps(read))).message}
    value = message.partition("gpuward.io/approved=")[2].partition(",")[0]
    approved = {**read, "metadata": {**read["metadata"], "labels": {"gpuward.io/approved": value}}}
    assert accept(approved).is_accepted
    other_order = dict(sorted(read["spec"].items(), reverse=True))
    assert accept({**approved, "spec": other_order}).is_accepted
    for change in ({"match": {"image": ["*"]}}, {"expires": "2030-06-18"}, {"reason": "other"}):
        changed = {**approved, "spec": {**read["spec"], **change}}
        assert accept(changed).reason is AcceptanceReason.NOT_APPROVED
        assert value not in accept(changed).message


@pytest.mark.parametrize(("keys", "reason", "says"), CASES)
def test_the_condition_says_whether_an_object_is_accepted_and_why(
    keys: dict[str, Any], reason: str, says: str
) -> None:
    found = accept(gpu_exception(**keys))
    assert (found.reason.value, found.is_accepted) == (reason, reason == "Accepted")
    assert says in found.message
    assert (found.exception is not None) is (reason in {"Accepted", "Ended"})


def test_refusals_name_the_end_for_two_weeks_if_it_was_accepted_before() -> None:
    ends = datetime.date(2030, 6, 17)
    for days, is_hint in ((1, True), (HINT_DAYS, True), (HINT_DAYS + 1, False)):
        found = accept(gpu_exception(), ends + datetime.timedelta(days))
        assert found.reason is AcceptanceReason.ENDED
        assert (found.exception is not None) is is_hint
    never_accepted = accept(gpu_exception(**SECURITY), ends + datetime.timedelta(1))
    assert (never_accepted.reason, never_accepted.exception) == (AcceptanceReason.ENDED, None)


def test_of_a_namespace_only_the_first_count() -> None:
    objects = [gpu_exception()] * (MAX_COUNTED_IN_NAMESPACE + 1) + [gpu_exception("other")]
    found = [acceptance.reason for _, acceptance in acceptances(objects, POLICY, TODAY)]
    accepted = [AcceptanceReason.ACCEPTED] * MAX_COUNTED_IN_NAMESPACE
    assert found == [*accepted, AcceptanceReason.TOO_MANY, AcceptanceReason.NOT_ALLOWED]


def test_the_number_of_accepted_objects_in_the_cluster_is_bounded() -> None:
    quota = {"rules": ["quota-fraction"]}
    objects = [gpu_exception(f"n{number // 10}", **quota) for number in range(MAX_ACCEPTED + 1)]
    found = [acceptance for _, acceptance in acceptances(objects, POLICY, TODAY)]
    assert [a.is_accepted for a in found] == [True] * MAX_ACCEPTED + [False]
    assert found[-1].reason is AcceptanceReason.TOO_MANY
    assert found[-1].exception is None


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


@given(ANY_JSON, ANY_JSON, st.sampled_from(["rules", "match", "reason", "expires", "more"]))
def test_no_content_raises_an_error(metadata: Any, value: Any, key: str) -> None:
    raw = gpu_exception()
    for changed in ({**raw, "metadata": metadata}, {**raw, "spec": value}):
        assert not accept(changed).is_accepted
    accept(gpu_exception(**{key: value}))


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ([], AcceptanceReason.NOT_ALLOWED),
        (["visible-devices-env"], AcceptanceReason.NOT_ALLOWED),
        (
            ["visible-devices-env", "visible-devices-valuefrom", "gpu-container-hidden"],
            AcceptanceReason.ACCEPTED,
        ),
    ],
)
def test_rules_that_would_be_silenced_must_be_allowed_too(
    more: list[str], reason: AcceptanceReason
) -> None:
    rules = ["share-visible-devices", *more]
    limits = {"rules": rules, "namespaces": "vision", "longestDays": 30, "approval": "none"}
    policy = load_policy(f"{POLICY_HEADER}\ngpuExceptions: [{json.dumps(limits)}]", "p")
    found = acceptance(gpu_exception(rules=rules[:1]), policy.gpu_exception_limits, TODAY)
    assert found.reason is reason, found.message

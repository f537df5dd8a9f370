"""Tests of what users read: whom to ask, what mode warn mentions, what a second apply does."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rules.finding import Action
from tests.testkit.admission.reviews import Admission, container, deployment, gpus, pod, variable
from webhook.admission.enforcement import SECOND_APPLY_WARNING

SITE = "contact: '#gpu-help'\ndocsUrl: https://wiki.example.com/gpus\n"
LINE = "contact: #gpu-help; docs: https://wiki.example.com/gpus"
BYPASS = container(**variable("all"))
GPU = container(**gpus(limits=1))


def test_every_refusal_ends_with_whom_to_ask() -> None:
    admission = Admission(SITE)
    single = admission.validate(pod(BYPASS)).message
    assert single.endswith(f"; {LINE}")
    assert "\n" not in single
    several = admission.validate(pod(BYPASS, container("b", **variable("all")))).message
    assert several.endswith(f"\n{LINE}")
    large = admission.validate(pod(*(container(f"c{number}") for number in range(20_000))))
    assert large.message.endswith(f"; {LINE}")
    workload = Admission(f"{SITE}workloads: deny\n").mutate(deployment(BYPASS))
    assert workload.message.endswith(f"; {LINE}")
    assert admission.validate(pod(GPU)).message == ""


@pytest.mark.parametrize(
    ("policy", "ending"),
    [
        ("contact: '#gpu-help'\n", "; contact: #gpu-help"),
        ("docsUrl: https://wiki.example.com\n", "; docs: https://wiki.example.com"),
    ],
)
def test_a_site_may_give_only_one_of_the_two(policy: str, ending: str) -> None:
    assert Admission(policy).validate(pod(BYPASS)).message.endswith(ending)


def test_a_long_refusal_keeps_whom_to_ask() -> None:
    long = pod(*(container(f"c{number}", **variable("all")) for number in range(60)))
    message = Admission(SITE).validate(long).message
    assert "and 40 more" in message
    assert message.endswith(f"\n{LINE}")


def test_warnings_do_not_name_whom_to_ask() -> None:
    answer = Admission(SITE, Action.WARN).validate(pod(BYPASS))
    assert LINE not in "".join(answer.warnings)


def test_mode_warn_does_not_mention_defaults_unless_the_policy_asks_for_it() -> None:
    quiet = Admission(mode=Action.WARN).mutate(pod(GPU))
    assert not quiet.warnings
    assert set(quiet.rule_outcomes.values()) == {"would-be-fixed"}
    nagging = Admission("nag: true\n", Action.WARN).mutate(pod(GPU))
    rules = {line.split()[1] for line in nagging.warnings}
    assert rules == {"[affinity-default]", "[toleration-default]"}
    assert len(Admission().mutate(pod(GPU)).warnings) == 2, "what is changed is always mentioned"


def test_mode_warn_mentions_every_other_fix() -> None:
    image = pod(container(image="nvcr.io/nvidia/pytorch:25.01-py3"))
    (line,) = Admission(mode=Action.WARN).mutate(image).warnings
    assert "[image-default-all] would be fixed" in line


def applied(manifest: dict[str, Any]) -> dict[str, Any]:
    """`manifest` as client-side apply creates it."""
    key = "kubectl.kubernetes.io/last-applied-configuration"
    metadata = {**manifest["metadata"], "annotations": {key: json.dumps(manifest)}}
    return {**manifest, "metadata": metadata}


def applied_server_side(manifest: dict[str, Any]) -> dict[str, Any]:
    managers = [{"manager": "kubectl", "operation": "Apply", "fieldsV1": {}}]
    return {**manifest, "metadata": {**manifest["metadata"], "managedFields": managers}}


DEFAULTED = [
    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
    {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"},
]
TERM = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
PREFERRED = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "preference": TERM}]}
CONTRADICTED = {
    "a removed variable": pod(container(**gpus(limits=1), **variable("all"))),
    "a toleration beside the file's": pod(GPU, tolerations=[{"key": "a", "operator": "Exists"}]),
    "a term beside the file's": pod(GPU, affinity={"nodeAffinity": PREFERRED}),
}
ADDED = {
    "placement": pod(GPU),
    "a toleration beside those of the API server": pod(GPU, tolerations=DEFAULTED),
    "a limit": pod(container(**gpus(requests=1))),
    "a variable": pod(container(image="nvcr.io/nvidia/cuda:13.0.0", env=[{"name": "A"}])),
}


@pytest.mark.parametrize("how", [applied, applied_server_side])
@pytest.mark.parametrize("case", CONTRADICTED)
def test_the_first_apply_says_that_a_second_one_will_fail(case: str, how: Any) -> None:
    answer = Admission().mutate(how(CONTRADICTED[case]))
    assert answer.operations
    assert answer.warnings[-1] == SECOND_APPLY_WARNING


@pytest.mark.parametrize("how", [applied, applied_server_side])
@pytest.mark.parametrize("case", ADDED)
def test_what_is_only_added_survives_a_second_apply(case: str, how: Any) -> None:
    answer = Admission().mutate(how(ADDED[case]))
    assert answer.operations
    assert SECOND_APPLY_WARNING not in answer.warnings


def test_only_users_of_apply_are_told() -> None:
    answer = Admission().mutate(CONTRADICTED["a removed variable"])
    assert answer.operations
    assert SECOND_APPLY_WARNING not in answer.warnings
    warned = Admission(mode=Action.WARN).mutate(applied(CONTRADICTED["a removed variable"]))
    assert SECOND_APPLY_WARNING not in warned.warnings

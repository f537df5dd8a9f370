"""Tests of rules that apply to the same problem: which of them reports it."""

from __future__ import annotations

from typing import Any

import pytest

from policies.loading import load_policy
from rules.engine.fixing import check, fix
from rules.profile.context import Context
from tests.testkit.cases import TODAY

CONTEXT = Context(TODAY, namespace="ml")


def pod(resources: dict[str, Any], env: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "example.com/app:1", "env": env}
    spec = {"containers": [{**container, "resources": {"limits": resources}}], **fields}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}


def rules_of(manifest: dict[str, Any], policy: str = "") -> list[str]:
    text = f"apiVersion: gpuward.io/v1\nkind: Policy\n{policy}"
    findings = check(manifest, load_policy(text, "p").rule_set(), CONTEXT).findings
    return sorted(f.rule for f in findings if f.action > 1)


SHARE = {"aliyun.com/gpu-mem": 2}
ALL = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
VOID = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
REFERENCE = [
    {
        "name": "NVIDIA_VISIBLE_DEVICES",
        "valueFrom": {"configMapKeyRef": {"name": "gpus", "key": "all"}},
    }
]


@pytest.mark.parametrize(
    ("env", "general"),
    [
        (ALL, "visible-devices-env"),
        (VOID, "gpu-container-hidden"),
        (REFERENCE, "visible-devices-valuefrom"),
    ],
    ids=["all", "void", "reference"],
)
def test_the_rule_about_shares_supersedes_the_general_rules(
    env: list[dict[str, Any]], general: str
) -> None:
    manifest = pod(SHARE, env)
    assert rules_of(manifest) == ["share-visible-devices"]
    assert rules_of(manifest, 'rules: {share-visible-devices: {action: "off"}}') == [general]
    excepted = "exceptions: [{rules: [share-visible-devices], match: {namespace: ml}, reason: x}]"
    assert rules_of(manifest, excepted) == []


def test_half_a_gib_is_reported_once() -> None:
    manifest = pod({"aliyun.com/gpu-mem": "0.5"}, [])
    assert rules_of(manifest) == ["gpu-mem-fraction"]
    off = 'rules: {gpu-mem-fraction: {action: "off"}}'
    assert rules_of(manifest, off) == ["fractional-gpu"]


def test_a_fix_that_enables_another_fix_is_followed_by_it() -> None:
    """A zero amount beside a misspelt name: the zero must go before the name can be fixed."""
    policy = load_policy(
        "apiVersion: gpuward.io/v1\nkind: Policy\n"
        "rules: {zero-gpu: {fix: true}, unknown-gpu-resource: {fix: true}}\n",
        "p",
    ).rule_set()
    manifest = pod({"nvidia.com/gpu": 0, "nvidia.com/gpus": 1}, [])
    once = fix(manifest, policy, CONTEXT)
    limits = {"nvidia.com/gpu": 1}
    assert once.manifest["spec"]["containers"][0]["resources"]["limits"] == limits  # type: ignore[call-overload, index]
    assert fix(once.manifest, policy, CONTEXT).operations == []


def test_a_privileged_gpu_pod_with_sys_admin_gets_both_findings() -> None:
    manifest = pod({"nvidia.com/gpu": 1}, [])
    manifest["spec"]["containers"][0]["securityContext"] = {
        "privileged": True,
        "capabilities": {"add": ["SYS_ADMIN"]},
    }
    assert rules_of(manifest) == ["privileged-gpu", "sys-admin-gpu"]

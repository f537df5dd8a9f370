"""Of very many labels, or values of them, users are told that the last are not checked."""

from __future__ import annotations

from typing import Any

import pytest

from policies.loading import load_policy
from rules.engine.fixing import check
from rules.placement.node_labels import MAX_COMPARED_LABELS, MAX_COMPARED_VALUES
from rules.profile.context import Context
from tests.testkit.admission.heavy_parts import heavy_pod, required, term
from tests.testkit.cases import TODAY

POLICY = "apiVersion: gpuward.io/v1\nkind: Policy\nprofiles: [ack]\n"
RULES = load_policy(POLICY, "policy").rule_set()
MODELS, MODES = "cloud.google.com/gke-accelerator", "ack.node.gpu.schedule"


def pod(label: str, values: list[str]) -> dict[str, Any]:
    return heavy_pod(affinity=required([term(label, "In", *values)]))


def pool(label: str, values: list[str]) -> dict[str, Any]:
    requirement = {"key": label, "operator": "In", "values": values}
    spec = {"template": {"spec": {"requirements": [requirement]}}}
    meta = {"name": "pool"}
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": meta, "spec": spec}


def join(label: str, values: list[str]) -> dict[str, Any]:
    labels = ",".join(f"{label}={value}" for value in values)
    registration = {"kubeletExtraArgs": {"node-labels": labels}}
    api = {"apiVersion": "kubeadm.k8s.io/v1beta3", "kind": "JoinConfiguration"}
    return {**api, "nodeRegistration": registration}


def findings(manifest: dict[str, Any]) -> list[str]:
    rules = {"unknown-node-label-value", "unknown-node-mode"}
    result = check(manifest, RULES, Context(TODAY))
    return [each.message for each in result.findings if each.rule in rules]


@pytest.mark.parametrize(
    ("make", "label"), [(pod, MODELS), (pool, MODELS), (pod, MODES), (join, MODES)]
)
def test_the_first_that_is_not_checked_is_named_and_those_before_it_are_checked(
    make: Any, label: str
) -> None:
    wrong = "l4" if label == MODELS else "cGPU"
    others = [f"new-{number}" for number in range(10_000)]
    few = findings(make(label, [wrong, *others[: MAX_COMPARED_VALUES - 1]]))
    many = findings(make(label, [wrong, *others]))
    assert wrong in few[0]
    assert not any("are not checked" in message for message in few)
    assert many[: len(few)] == few
    assert len(many) == len(few) + 1
    assert "more than 100 values" in many[-1]


def test_the_same_value_many_times_is_one_value() -> None:
    assert len(findings(pod(MODELS, ["l4"] * 1_000))) == 1


def test_the_same_mode_of_many_pools_is_one_value() -> None:
    groups = [{"name": f"pool-{n}", "labels": {MODES: "cgpu"}} for n in range(1_000)]
    api = {"apiVersion": "eksctl.io/v1alpha5", "kind": "ClusterConfig"}
    assert findings({**api, "metadata": {"name": "a"}, "managedNodeGroups": groups}) == []


def selecting_pod(labels: list[str]) -> dict[str, Any]:
    return heavy_pod(nodeSelector=dict.fromkeys(labels, "a"))


def demanding_pod(labels: list[str]) -> dict[str, Any]:
    return heavy_pod(affinity=required([term(label, "Exists") for label in labels]))


def node(labels: list[str]) -> dict[str, Any]:
    meta = {"name": "node", "labels": dict.fromkeys(labels, "a")}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta}


@pytest.mark.parametrize("make", [selecting_pod, demanding_pod, node])
def test_the_first_label_that_is_not_compared_is_named(make: Any) -> None:
    wrong = "ack.node.gpu.scheduler"
    others = [f"ack.node.gpu.sched{number}" for number in range(10_000)]
    few = findings(make([wrong, *others[: MAX_COMPARED_LABELS - 1]]))
    many = findings(make([wrong, *others, "ack.node.gpu.schedul"]))
    assert len(few) == 1
    assert wrong in few[0]
    assert many[0] == few[0]
    assert len(many) == 2
    assert f'"{others[MAX_COMPARED_LABELS - 1]}" and those behind it are not checked' in many[1]


def test_the_same_label_many_times_is_one_label() -> None:
    assert findings(demanding_pod(["gpu"] * 1_000)) == []

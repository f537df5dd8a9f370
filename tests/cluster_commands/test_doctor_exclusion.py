"""The answers of `gpuward doctor` about the nodes that pods without a GPU are kept off."""

from __future__ import annotations

from typing import Any

from cluster.doctor.rows import Row, State
from policies.loading import load_policy
from tests.testkit.cluster_commands.doctor_rows import rows
from tests.testkit.cluster_commands.gpu_objects import Object, node
from tests.testkit.policy_mistakes import POLICY_HEADER

GPU = "nvidia.com/gpu"
PRESENT = {"nvidia.com/gpu.present": "true"}
ON = load_policy(f"{POLICY_HEADER}rules: {{gpu-node-without-request: {{action: deny}}}}", "a test")


def found(*nodes: Object, policy: Any = ON) -> list[Row]:
    return rows(*nodes, policy=policy).get("labels of GPU nodes", [])


def test_a_policy_without_the_rule_asks_for_no_label() -> None:
    assert found(node("n1", {GPU: 8}), policy=load_policy(POLICY_HEADER, "a test")) == []


def test_every_gpu_node_has_the_label() -> None:
    (row,) = found(node("n1", {GPU: 8}, labels=PRESENT), node("n2", {}))
    assert (row.state, row.message) == (
        State.OK,
        "all GPU nodes have the label nvidia.com/gpu.present=true",
    )


def test_gpu_nodes_without_the_label() -> None:
    named = [node(f"n{number}", {GPU: 8}) for number in (1, 2)]
    (row,) = found(*named, node("n3", {GPU: 8}, labels=PRESENT))
    assert (row.state, row.subject, row.names) == (State.WRONG, "n1, n2", ("n1", "n2"))
    assert "pods without a GPU may run there" in row.message


def test_a_label_that_every_node_has() -> None:
    (row,) = found(node("n1", {GPU: 8}, labels=PRESENT), node("n2", {}, labels=PRESENT))
    assert (row.state, row.message) == (
        State.WRONG,
        "each of 2 nodes has the label nvidia.com/gpu.present=true",
    )


def test_one_of_several_labels_that_no_node_has() -> None:
    """It may be that of a pool without nodes, or misspelled."""
    settings = "{action: deny, options: {nodes: [pool=gpus, pool=h100, accelerated]}}"
    text = f"{POLICY_HEADER}rules: {{gpu-node-without-request: {settings}}}"
    policy = load_policy(text, "a test")
    nodes = [node("n1", {GPU: 8}, labels={"pool": "gpus", "accelerated": ""}), node("n2", {})]
    (row,) = found(*nodes, policy=policy)
    assert (row.state, row.message) == (State.NOT_KNOWN, "no node has the label pool=h100")
    (row,) = found(*nodes, node("n3", {GPU: 8}, labels={"pool": "h100"}), policy=policy)
    assert row.state is State.OK


def test_nothing_is_certain_where_nothing_was_seen() -> None:
    (row,) = found(node("n1", {}))
    assert row.state is State.NOT_KNOWN
    (row,) = rows(node("n1", {}), policy=ON, forbidden=("pods",))["labels of GPU nodes"]
    assert row.state is State.NOT_KNOWN

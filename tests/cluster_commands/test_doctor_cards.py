"""The answers of `gpuward doctor` about cards that are sick, or that two have or offer."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.doctor.rows import State
from tests.testkit.cluster_commands.doctor_rows import rows, states
from tests.testkit.cluster_commands.gpu_objects import Object, node, pod

GPU = "nvidia.com/gpu"
PRESENT = {"nvidia.com/gpu.present": "true"}


def claim(name: str, **result: Any) -> Object:
    has = {"driver": "gpu.nvidia.com", "pool": "n1", "device": "gpu-0", **result}
    return {
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "ml"},
        "status": {"allocation": {"devices": {"results": [has]}}},
    }


def test_two_claims_with_one_device() -> None:
    (row,) = rows(claim("a"), claim("b"))["cards given twice"]
    assert (row.subject, row.state) == (
        "resourceclaim/a in ml, resourceclaim/b in ml",
        State.WRONG,
    )
    assert (
        row.message == "each have the device gpu-0 of the pool n1 (gpu.nvidia.com) for themselves"
    )


@pytest.mark.parametrize(
    "other",
    [
        {"device": "gpu-1"},
        {"pool": "n2"},
        {"adminAccess": True},
        {"shareID": "a7"},
        {"consumedCapacity": {"memory": "1Gi"}},
    ],
)
def test_claims_that_may_have_one_device(other: dict[str, Any]) -> None:
    assert "cards given twice" not in rows(claim("a", **other), claim("b"))


def with_device(name: str, device: str, *, resource: str = GPU, health: str = "Healthy") -> Object:
    made = pod(name, {GPU: 1}, on="n1")
    given = [{"name": resource, "resources": [{"resourceID": device, "health": health}]}]
    made["status"]["containerStatuses"] = [{"name": "main", "allocatedResourcesStatus": given}]
    return made


def test_two_pods_with_one_device() -> None:
    found = rows(with_device("a", "GPU-x"), with_device("b", "GPU-x"), with_device("c", "GPU-y"))
    (row,) = found["cards given twice"]
    assert row.subject == "pod/a in team-a, pod/b in team-a"
    assert row.message == "have the same device GPU-x of n1 as nvidia.com/gpu"


def test_pods_that_share_a_claim_or_replicas_of_a_card() -> None:
    claimed = [with_device(name, "x/n1/gpu-0", resource="claim:shared/gpu") for name in "ab"]
    assert "cards given twice" not in rows(*claimed)
    assert "cards given twice" not in rows(with_device("a", "G::0"), with_device("b", "G::1"))


def test_a_pod_that_has_ended_has_no_device() -> None:
    ended = with_device("a", "GPU-x")
    ended["status"]["phase"] = "Succeeded"
    assert "cards given twice" not in rows(ended, with_device("b", "GPU-x"))


def test_a_pod_with_a_sick_device() -> None:
    (row,) = rows(with_device("a", "GPU-x", health="Unhealthy"))["sick cards"]
    assert (row.subject, row.state) == ("pod/a in team-a (GPU-x of n1)", State.WRONG)


def test_nodes_that_offer_fewer_devices_than_they_have() -> None:
    lost = [node(f"n{n}", {GPU: "7"}, capacity={GPU: "8"}) for n in range(2)]
    none = node("none", {GPU: "0"}, capacity={GPU: "8"})
    found = rows(*lost, none, node("well", {GPU: "8"}))["sick cards"]
    assert [(row.subject, row.message) for row in found] == [
        ("none", "offer 0 of 8 nvidia.com/gpu: the others are not healthy"),
        ("n0, n1", "offer 7 of 8 nvidia.com/gpu: the others are not healthy"),
    ]


def test_a_plugin_that_finds_no_card() -> None:
    found = rows(node("gone", {GPU: "0"}), node("cpu"))["GPU nodes"]
    assert states(found) == {"gone": State.WRONG}
    assert "the device plugin has stopped, or finds no card" in found[0].message
    # Beside partitions, 0 whole cards are as they should be.
    mig = rows(node("mig", {GPU: "0", "nvidia.com/mig-1g.10gb": "7"}))["GPU nodes"]
    assert states(mig) == {"mig": State.OK}


def test_cards_for_virtual_machines_are_not_known() -> None:
    name = "nvidia.com/GP107_GeForce_GTX_1050"
    found = rows(node("kv", {GPU: "0", name: "1"}, labels=PRESENT))["GPU nodes"]
    assert states(found) == {"kv": State.NOT_KNOWN}
    assert name in found[0].message


def plugin(*tolerations: dict[str, str], **spec: Any) -> Object:
    volume = {"name": "v", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}
    pods = {"tolerations": [*tolerations], "volumes": [volume], "containers": [], **spec}
    metadata = {"name": "plugin", "namespace": "gpus"}
    return {"kind": "DaemonSet", "metadata": metadata, "spec": {"template": {"spec": pods}}}


@pytest.mark.parametrize(
    ("daemon_set", "is_kept_away"),
    [
        (plugin(), True),
        (plugin({"key": GPU, "operator": "Exists"}), True),
        (plugin({"key": "gpu", "operator": "Exists"}), False),
        (plugin({"operator": "Exists"}), False),
        (plugin(nodeSelector={"other": "node"}), False),
    ],
)
def test_a_plugin_that_the_taint_of_gpu_nodes_keeps_away(
    daemon_set: Object,
    is_kept_away: bool,  # noqa: FBT001  # of a table
) -> None:
    taints = [{"key": "gpu", "effect": "NoSchedule"}, {"key": "node.kubernetes.io/x"}]
    tainted = node("own", labels=PRESENT, spec={"taints": taints})
    found = {row.subject: row.message for row in rows(tainted, daemon_set)["GPU nodes"]}
    assert ("daemonset/plugin in gpus" in found) is is_kept_away
    if is_kept_away:
        message = "does not tolerate the taint gpu:NoSchedule of own, so it offers no GPU there"
        assert found["daemonset/plugin in gpus"] == message


VGPU = {"volcano.sh/vgpu-number": "4", "volcano.sh/vgpu-memory": "24576"}
REGISTER = {"volcano.sh/node-vgpu-register": "GPU-a,4,24576,RTX,true,hami-core:"}
COUNT = {"nvidia.com/gpu.count": "1", "nvidia.com/gpu.replicas": "4"}


@pytest.mark.parametrize(
    ("amounts", "labels", "state"),
    [
        ({GPU: "4", **VGPU}, COUNT, State.WRONG),
        ({GPU: "4", **VGPU}, {**COUNT, "nvidia.com/gpu.count": "2"}, None),
        ({GPU: "4", **VGPU}, {}, State.NOT_KNOWN),
        ({GPU: "0", **VGPU}, COUNT, None),
        (VGPU, COUNT, None),
        ({GPU: "2", "aliyun.com/gpu-count": "2"}, {"nvidia.com/gpu.count": "2"}, State.WRONG),
        ({GPU: "2", "volcano.sh/gpu-number": "1"}, {"nvidia.com/gpu.count": "2"}, State.WRONG),
    ],
)
def test_cards_that_two_plugins_offer(
    amounts: dict[str, str], labels: dict[str, str], state: State | None
) -> None:
    has_vgpu = "volcano.sh/vgpu-number" in amounts
    annotations = REGISTER if has_vgpu else {}
    found = rows(node("n", amounts, labels=labels, annotations=annotations))
    expected = {} if state is None else {"n": state}
    assert states(found.get("cards offered by two plugins", [])) == expected


def test_different_faults_of_one_rule_are_different_rows() -> None:
    mode = "ack.node.gpu.schedule"
    nodes = [node("a", labels={mode: "core_mem"}), node("b", labels={mode: "cgpu"})]
    nodes.append(node("c", labels={mode: "cgpu"}))
    found = rows(*nodes)["node-mode-without-resource"]
    assert {row.subject for row in found} == {"a", "b, c"}


MIXED = {"nvidia.com/gpu.count": "8", "nvidia.com/mig.strategy": "mixed"}


@pytest.mark.parametrize(
    ("amounts", "labels", "is_wrong"),
    [
        ({GPU: "8", "nvidia.com/mig-1g.5gb": "56"}, MIXED, True),
        ({GPU: "7", "nvidia.com/mig-1g.5gb": "8"}, MIXED, True),  # eight parts are of two cards
        ({GPU: "7", "nvidia.com/mig-3g.20gb": "2"}, MIXED, False),
        ({GPU: "0", "nvidia.com/mig-1g.5gb": "56"}, MIXED, False),
        (
            {GPU: "14", "nvidia.com/mig-1g.5gb": "7"},
            {**MIXED, "nvidia.com/gpu.replicas": "2"},
            False,
        ),
        (
            {GPU: "8", "nvidia.com/mig-1g.5gb": "56"},
            {},
            False,
        ),  # how many cards there are is unknown
    ],
)
def test_cards_that_a_node_offers_whole_and_in_parts(
    amounts: dict[str, str],
    labels: dict[str, str],
    is_wrong: bool,  # noqa: FBT001  # of a table
) -> None:
    found = rows(node("n", amounts, labels=labels)).get("whole cards and partitions", [])
    assert states(found) == ({"n": State.WRONG} if is_wrong else {})


def test_partitions_that_the_plugin_does_not_offer() -> None:
    product = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB-MIG-INVALID"}
    applied = {"nvidia.com/mig.config.state": "success"}
    found = rows(node("a", labels=product | applied), node("b", labels=applied))["MIG"]
    assert states(found) == {"a": State.WRONG, "b": State.OK}
    assert "MIG-INVALID" in found[0].message


def test_cards_for_virtual_machines_are_not_known_with_the_way_to_declare_them() -> None:
    """Their node needs no label that says so, and `gpuward gpus` counts them."""
    offers = node("n", {"nvidia.com/GP107_GEFORCE_GTX_1050": "2"})
    network = node("m", {"nvidia.com/hostdev": "2"})
    (row,) = rows(offers, network)["GPU nodes"]
    assert (row.subject, row.state) == ("n", State.NOT_KNOWN)
    assert "nvidia.com/GP107_GEFORCE_GTX_1050" in row.message
    assert "declare it" in row.remedy

"""Tests of `gpuward why`: what it says about pods and nodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cluster.accounting.account import NodeLoad
from cluster.why.cli import main
from cluster.why.explanation import Answer, Explanation, Namespace, explain
from cluster.why.filters import Wanted
from cluster.why.nodes import read_node

GPU = "nvidia.com/gpu"
NANO = 10**9


def node(
    name: str = "n", *, model: str = "", taken: dict[str, int] | None = None, **spec: Any
) -> Any:
    """A node with 8 GPUs, 16 CPUs and 64Gi; `taken` are whole amounts."""
    amounts = {"cpu": "16", "memory": "64Gi", "pods": "110", GPU: "8", **spec.pop("amounts", {})}
    labels = {
        "kubernetes.io/hostname": name,
        "nvidia.com/gpu.product": model,
        **spec.pop("labels", {}),
    }
    load = NodeLoad()
    if taken:
        load.add({key: amount * NANO for key, amount in taken.items()})
    raw = {
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": {"allocatable": amounts},
    }
    return read_node(raw, load)


def pod(gpus: int = 1, *, cpu: str = "1", **spec: Any) -> dict[str, Any]:
    limits = {"cpu": cpu, **({GPU: str(gpus)} if gpus else {})}
    containers = [{"name": "main", "resources": {"limits": limits}}]
    metadata = {"name": "p", "namespace": "ml", "uid": "1"}
    return {"metadata": metadata, "spec": {"containers": containers, **spec}}


def only_group(found: Explanation) -> tuple[str, tuple[str, ...]]:
    (group,) = found.groups
    return "; ".join(group.reasons), group.remedies


def test_a_pod_may_ask_for_more_memory_than_there_is_in_the_world() -> None:
    asking = pod()
    asking["spec"]["containers"][0]["resources"]["limits"]["memory"] = "1e40"
    reason, _ = only_group(explain(asking, [node()]))
    assert "Ti memory" in reason


def test_a_node_that_fits_is_named() -> None:
    found = explain(pod(8), [node("a"), node("b", taken={GPU: 1})])
    assert found.fitting == ("a",)
    assert found.verdict == "1 node can take it: a"
    assert found.summary == "1/2 nodes are available: 1 Insufficient nvidia.com/gpu."


def test_cards_that_are_taken_now_can_be_waited_for() -> None:
    found = explain(pod(4), [node("a", taken={GPU: 6}), node("b", taken={GPU: 7})])
    reason, remedies = only_group(found)
    assert reason == "the pod asks for 4 nvidia.com/gpu, and at most 2 of 8 are free on one node"
    assert remedies == ("wait until 2 more nvidia.com/gpu is released there",)


def test_more_than_a_node_has_is_never_free() -> None:
    reason, remedies = only_group(explain(pod(16), [node()]))
    assert reason == "the pod asks for 16 nvidia.com/gpu, and a node has at most 8"
    assert remedies == ("ask for at most 8 nvidia.com/gpu in one pod, and use several pods",)


def test_too_little_beside_free_cards_strands_them() -> None:
    reason, remedies = only_group(explain(pod(2, cpu="4"), [node(taken={"cpu": 14})]))
    assert reason == "the pod asks for 4 cpu, and at most 2 of 16 are free on one node"
    stranded = "the nvidia.com/gpu there is free, and stranded by too little cpu beside it"
    assert remedies == (f"ask for at most 2 cpu: {stranded}",)
    _, remedies = only_group(explain(pod(2, cpu="4"), [node(taken={"cpu": 16})]))
    assert remedies == (f"wait until 4 more cpu is released there: {stranded}",)


def test_nodes_of_another_device_say_what_to_ask_for() -> None:
    other = node(amounts={GPU: "0", "amd.com/gpu": "4"})
    reason, remedies = only_group(explain(pod(), [other]))
    assert reason == "the pod asks for 1 nvidia.com/gpu, which the nodes do not offer"
    assert remedies == ("ask for what these nodes offer: amd.com/gpu",)


TAINT = {"key": "dedicated", "value": "vision", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        ({"key": "dedicated", "operator": "Exists"}, True),
        ({"key": "dedicated", "operator": "Equal", "value": "vision"}, True),
        ({"key": "dedicated", "value": "search"}, False),
        ({"key": "dedicated", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"operator": "Exists"}, True),
    ],
)
def test_a_taint_must_be_tolerated(toleration: dict[str, str], fits: bool) -> None:  # noqa: FBT001  # of a table
    found = explain(pod(tolerations=[toleration]), [node(taints=[TAINT])])
    assert bool(found.fitting) is fits
    if not fits:
        reason, (remedy,) = only_group(found)
        assert reason == "the pod does not tolerate the taint dedicated=vision:NoSchedule"
        assert remedy.startswith("add a toleration for dedicated=vision:NoSchedule")


def test_a_taint_that_only_prefers_others_keeps_nobody_away() -> None:
    soft = {**TAINT, "effect": "PreferNoSchedule"}
    assert explain(pod(), [node(taints=[soft])]).fitting == ("n",)


def test_a_taint_of_kubernetes_itself_is_not_to_be_tolerated() -> None:
    taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}
    _, (remedy,) = only_group(explain(pod(), [node(taints=[taint])]))
    assert remedy == "wait until the node is well: Kubernetes itself has set the taint"


def test_what_comes_after_the_first_reason_is_said_too() -> None:
    found = explain(pod(nodeSelector={"zone": "a"}), [node("a", taints=[TAINT], taken={GPU: 8})])
    (group,) = found.groups
    assert group.messages == ("node(s) had untolerated taint(s)",)
    assert group.further == (
        "the pod selects zone=a",
        "the pod asks for 1 nvidia.com/gpu, and at most 0 of 8 are free on one node",
    )


def test_the_nodes_that_come_nearest_are_first() -> None:
    far = [node(f"far-{n}", taints=[TAINT], amounts={GPU: "0"}) for n in range(9)]
    found = explain(pod(4), [*far, node("near", taken={GPU: 6})])
    assert found.groups[0].names == ("near",)
    assert "at most 2 of 8 are free" in found.verdict


def requirement(operator: str, *values: str) -> dict[str, Any]:
    return {"key": "size", "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("terms", "fits"),
    [
        ([[requirement("In", "10", "20")]], True),
        ([[requirement("NotIn", "10")]], False),
        ([[requirement("Exists")]], True),
        ([[requirement("DoesNotExist")]], False),
        ([[requirement("Gt", "9")]], True),
        ([[requirement("Gt", "10")]], False),
        ([[requirement("Lt", "11")]], True),
        ([[requirement("Lt", "x")]], False),
        ([[requirement("Gt", "9" * 40)]], False),
        ([[requirement("In", "1")], [requirement("In", "10")]], True),
        ([[requirement("In", "10"), requirement("In", "1")]], False),
        ([[]], False),
        ([], False),
    ],
)
def test_node_affinity_is_read_as_the_scheduler_reads_it(terms: Any, fits: bool) -> None:  # noqa: FBT001  # the same
    selector = {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}
    found = explain(pod(affinity=affinity), [node(labels={"size": "10"})])
    assert bool(found.fitting) is fits


def test_a_pod_of_a_daemon_set_names_its_node() -> None:
    field = {"key": "metadata.name", "operator": "In", "values": ["a"]}
    selector = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}
    found = explain(pod(affinity=affinity), [node("a"), node("b")])
    assert found.fitting == ("a",)
    assert found.summary.endswith("1 node(s) didn't satisfy plugin(s) [NodeAffinity].")


def hurdle(found: Explanation) -> str:
    (one,) = found.hurdles
    assert found.verdict == one.what
    return one.what


def test_a_gate_comes_before_all_nodes() -> None:
    gated = pod(schedulingGates=[{"name": "kueue.x-k8s.io/admission"}])
    found = explain(gated, [node()])
    assert hurdle(found) == "it waits for the scheduling gates kueue.x-k8s.io/admission"


def test_what_another_scheduler_decides_is_not_known() -> None:
    for gpus in (1, 9):
        found = explain(pod(gpus, schedulerName="volcano"), [node()])
        assert found.verdict.startswith("the scheduler volcano decides about it; by what is known")
        assert (found.answer, found.summary) == (Answer.NOT_KNOWN, "")


def test_a_claim_that_does_not_exist_is_named() -> None:
    claims = [{"name": "gpu", "resourceClaimName": "mine"}]
    found = explain(pod(0, resourceClaims=claims), [node()], namespace=Namespace({}))
    assert hurdle(found) == "the claim mine does not exist"
    assert (
        explain(pod(0, resourceClaims=claims), [node()], namespace=Namespace({"mine": {}})).hurdles
        == ()
    )


def test_a_claim_with_devices_elsewhere_binds_the_pod_to_them() -> None:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}
    allocation = {"nodeSelector": {"nodeSelectorTerms": [term]}}
    claims = {"mine": {"status": {"allocation": allocation}}}
    wanted = pod(0, resourceClaims=[{"name": "gpu", "resourceClaimName": "mine"}])
    found = explain(wanted, [node("a"), node("b")], namespace=Namespace(claims))
    assert found.fitting == ("b",)
    assert only_group(found)[0] == "its claim mine has devices elsewhere"


def test_a_quota_counts_only_for_a_pod_that_does_not_exist_yet() -> None:
    quota = {
        "metadata": {"name": "gpus"},
        "spec": {"hard": {f"requests.{GPU}": "8"}},
        "status": {"used": {f"requests.{GPU}": "6"}},
    }
    limited = Namespace(quotas=(quota,))
    assert explain(pod(4), [node()], namespace=limited).hurdles == ()
    assert hurdle(explain(pod(4), [node()], namespace=limited, exists=False)) == (
        "the quota gpus refuses it: it asks for 4 of requests.nvidia.com/gpu, and 2 of 8 are left"
    )
    assert explain(pod(2), [node()], namespace=limited, exists=False).hurdles == ()
    assert explain(pod(0), [node()], namespace=limited, exists=False).hurdles == ()


def test_what_is_not_looked_at_is_said() -> None:
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
    spread = {"whenUnsatisfiable": "DoNotSchedule"}
    found = explain(pod(volumes=[volume], topologySpreadConstraints=[spread]), [node()])
    assert found.unchecked == (
        "where the volume of its claim c is",
        "topology spread constraints",
    )


@pytest.mark.parametrize("odd", [None, [], "x", 7, {"a": 1}])
def test_odd_values_are_no_error(odd: Any) -> None:
    fields = ("affinity", "tolerations", "nodeSelector", "resourceClaims", "volumes", "containers")
    for field in fields:
        raw = {"metadata": odd, "status": odd, "spec": {field: odd}}
        explain(raw, [read_node({"metadata": odd, "spec": odd, "status": odd}, None)])
        assert Wanted(raw).requests == {}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": odd}}
    explain({"spec": {"affinity": affinity}}, [node()])


CLUSTER = """\
apiVersion: v1
kind: List
items:
  - apiVersion: v1
    kind: Node
    metadata: {name: a}
    status: {allocatable: {cpu: "4", memory: 8Gi, pods: "10", nvidia.com/gpu: "2"}}
  - &pod
    apiVersion: v1
    kind: Pod
    metadata: {name: one, namespace: ml, uid: "1"}
    spec:
      containers: [{name: main, resources: {limits: {nvidia.com/gpu: "4"}}}]
    status: {phase: Pending}
  - <<: *pod
    metadata: {name: one, namespace: other, uid: "2"}
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER, encoding="utf-8")
    return str(path)


def test_the_command_explains_for_people(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["one", "-n", "ml", "-f", file]) == 1
    out = capsys.readouterr().out
    assert out.startswith("ml/one asks for 4 nvidia.com/gpu\nThe only node cannot take it: the pod")
    assert "    -> ask for at most 2 nvidia.com/gpu in one pod" in out
    assert out.endswith("0/1 nodes are available: 1 Insufficient nvidia.com/gpu.\n")


def test_the_command_explains_for_programs(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pod/one", "-n", "ml", "-f", file, "-o", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["version"], document["nodes"], document["fitting"]) == (1, 1, [])
    assert document["groups"][0]["nodes"] == ["a"]


def test_a_manifest_can_be_asked_about(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = tmp_path / "pod.yaml"
    text = "apiVersion: v1\nkind: Pod\nmetadata: {name: new}\nspec: {containers: [{name: main}]}\n"
    manifest.write_text(text, encoding="utf-8")
    assert main(["--manifest", str(manifest), "-f", file]) == 0
    assert "1 node can take it: a" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["one"], "several namespaces have a pod 'one': give one of ml, other by -n"),
        (["none"], "there is no pod 'none'"),
        (["one", "-n", "x"], "there is no pod 'one' in namespace x"),
    ],
)
def test_the_command_says_which_pod_it_lacks(
    file: str, capsys: pytest.CaptureFixture[str], arguments: list[str], error: str
) -> None:
    assert main([*arguments, "-f", file]) == 2
    assert capsys.readouterr().err == f"gpuward why: {error}\n"

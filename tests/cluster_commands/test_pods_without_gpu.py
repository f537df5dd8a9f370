"""Pods on GPU nodes that ask for no GPU: `gpus` lists them, with what they take and why."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, cast

import pytest

from cluster.accounting.account import Account, count_pod
from cluster.audit.cli import main as audit
from cluster.audit.evaluation import Evaluated
from cluster.audit.pods_on_gpu_nodes import PodsOnGpuNodes
from cluster.gpus.cli import main as gpus
from cluster.modes.cli import main as modes
from cluster.snapshot.snapshot import Snapshot
from cluster.source.objects import ObjectReader, SourceError
from policies.loading import default_policy
from rules.finding import Finding
from rules.objects.object_ref import object_ref
from tests.testkit.cluster_commands.doctor_rows import Objects
from tests.testkit.cluster_commands.gpu_objects import Object, listed, node, pod

GPU = "nvidia.com/gpu"
RULE = "gpu-node-without-request"
TAINT = {"key": GPU, "value": "present", "effect": "NoSchedule"}
CORDONED = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
TOLERATION = {"key": GPU, "operator": "Exists", "effect": "NoSchedule"}
PASSING = [
    {"key": key, "effect": "NoSchedule"}
    for key in (
        *("karpenter.sh/disrupted", "ToBeDeletedByClusterAutoscaler"),
        "node.cloudprovider.kubernetes.io/uninitialized",
    )
]
TEAM = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}}
PRESENT = {"nvidia.com/gpu.present": "true"}
HAS_GPU = {"matchExpressions": [{"key": "nvidia.com/gpu.present", "operator": "Exists"}]}
NAMED = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gpu"]}]}
OF_ZONE = {
    "matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]}]
}


def running(name: str, **fields: Any) -> Object:
    """A running pod as an API server lists it, on the node `gpu` unless `fields` say another."""
    made = pod(name, fields.pop("limits", {"cpu": "1"}), on=fields.pop("on", "gpu"), **fields)
    made["metadata"]["uid"] = name
    made["spec"]["containers"][0]["image"] = "registry.example.com/app:1"
    return made


def affinity(*terms: Object) -> Object:
    """The fields of a pod that requires a node which one of these terms selects."""
    required = {"nodeSelectorTerms": list(terms)}
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    }


def written(folder: Path, *objects: Object) -> str:
    file = folder / "cluster.json"
    file.write_text(json.dumps(listed(*objects)), encoding="utf-8")
    return str(file)


def document(capsys: pytest.CaptureFixture[str], file: str, *arguments: str) -> Any:
    assert gpus(["-f", file, "-o", "json", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


def names(found: Any) -> list[str]:
    return [each["name"] for each in found["podsWithoutGpu"]]


def test_it_lists_who_takes_cpu_and_memory_from_pods_with_gpus(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hungry = {"cpu": "6500m", "memory": "3Gi"}
    file = written(
        tmp_path,
        node("gpu", {GPU: "4"}, labels=PRESENT, cpu="8"),
        node("cpu"),
        running("web-5d-1", limits=hungry, owner=("ReplicaSet", "web-5d")),
        running("train", limits={GPU: 1, "cpu": "500m"}),
        running("elsewhere", on="cpu"),
        running("done", phase="Succeeded"),
        running("waits", on=""),
    )
    assert gpus(["-f", file]) == 0
    assert capsys.readouterr().out.endswith(
        "\n\n1 pod on 1 GPU node asks for no GPU, and takes 6500m CPU and 3.0Gi memory. Without "
        "those not of the platform, 2 nvidia.com/gpu would not be stranded.\n`gpuward gpus "
        "--without-gpu` lists them.\n"
    )
    assert gpus(["-f", file, "--without-gpu"]) == 0
    assert capsys.readouterr().out == (
        "NODE   NAMESPACE   POD        OWNER               CPU     MEMORY   PLATFORM   WHY\n"
        "gpu    team-a      web-5d-1   replicaset/web-5d   6500m   3.0Gi    no         "
        "no lasting taint keeps pods off the node\n"
    )
    found = document(capsys, file)
    assert found["podsWithoutGpu"] == [
        {
            "namespace": "team-a",
            "name": "web-5d-1",
            "owner": "replicaset/web-5d",
            "node": "gpu",
            "why": "no lasting taint keeps pods off the node",
            "cpu": 6.5,
            "memoryBytes": 3 << 30,
            "platform": False,
            "daemonSet": False,
            "pods": 1,
        }
    ]
    assert found["nodes"][0]["resources"][0]["stranded"] == 2
    assert found["nodes"][0]["strandedByPodsWithoutGpu"] == {GPU: 2}


def test_cards_that_others_strand_are_not_laid_at_their_door(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pods with GPUs have the CPU themselves, or nothing is stranded."""
    cramped = running("train", limits={GPU: 1, "cpu": "8"}, on="full")
    small = running("small", limits={"memory": "1Gi"}, on="full")
    roomy = running("web", on="roomy")
    full, wide = node("full", {GPU: "4"}, cpu="8"), node("roomy", {GPU: "4"})
    found = document(capsys, written(tmp_path, full, wide, cramped, small, roomy))
    assert names(found) == ["small", "web"]
    assert [each["strandedByPodsWithoutGpu"] for each in found["nodes"]] == [{}, {}]


@pytest.mark.parametrize(
    ("taints", "fields", "why"),
    [
        ([], {}, "no lasting taint keeps pods off the node"),
        ([CORDONED], {}, "no lasting taint keeps pods off the node"),
        ([TAINT], {"tolerations": [TOLERATION]}, f"tolerates {GPU}=present:NoSchedule"),
        ([TAINT], {"tolerations": [{"operator": "Exists"}]}, "tolerates every taint"),
        (
            [TAINT],
            {"tolerations": [TOLERATION, {"operator": "Exists", "effect": "NoExecute"}]},
            f"tolerates {GPU}=present:NoSchedule",
        ),
        ([TAINT, *PASSING], {"tolerations": [TOLERATION]}, f"tolerates {GPU}=present:NoSchedule"),
        (PASSING, {}, "no lasting taint keeps pods off the node"),
        ([{**TAINT, "effect": "PreferNoSchedule"}], {}, "no lasting taint keeps pods off the node"),
        (
            [TAINT],
            {},
            f"named the node, or came before its taint {GPU}=present:NoSchedule",
        ),
        (
            [TAINT],
            {"nodeSelector": PRESENT},
            "selects nodes with nvidia.com/gpu.present: true",
        ),
        ([], {"nodeSelector": {"kubernetes.io/hostname": "gpu"}}, "selects nodes by name"),
        ([], affinity(HAS_GPU, NAMED), f"selects nodes with {GPU}.present or by name"),
        ([], affinity(NAMED, NAMED), "selects nodes by name"),
        ([], affinity(HAS_GPU, OF_ZONE), "no lasting taint keeps pods off the node"),
        ([], affinity(NAMED, OF_ZONE), "no lasting taint keeps pods off the node"),
        ([], affinity(), "no lasting taint keeps pods off the node"),
        (
            [],
            {**affinity(OF_ZONE), "nodeSelector": PRESENT},
            "selects nodes with nvidia.com/gpu.present: true",
        ),
        (
            [TAINT],
            {"owner": ("DaemonSet", "node-exporter"), "tolerations": [{"operator": "Exists"}]},
            "a DaemonSet makes it for the node",
        ),
        (
            [TAINT],
            {"annotations": {"kubernetes.io/config.mirror": "1"}},
            "static pod of the node",
        ),
    ],
)
def test_it_says_why_a_pod_is_there(
    taints: list[Any],
    fields: dict[str, Any],
    why: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    there = node("gpu", {GPU: "4"}, spec={"taints": taints})
    (found,) = document(capsys, written(tmp_path, there, running("web", **fields)))[
        "podsWithoutGpu"
    ]
    assert found["why"] == why


def test_of_the_tolerations_that_every_pod_has_nothing_is_kept() -> None:
    """The console keeps a record of each pod of the cluster."""
    state = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    added = [
        {"key": f"node.kubernetes.io/{name}", **state} for name in ("not-ready", "unreachable")
    ]
    profile = default_policy([]).profile
    plain, tolerant = (
        count_pod(running("web", tolerations=tolerations), profile, {})
        for tolerations in (added, [*added, TOLERATION])
    )
    assert plain
    assert plain.without_gpu
    assert plain.without_gpu.tolerations == ()
    assert tolerant
    assert tolerant.without_gpu
    assert tolerant.without_gpu.tolerations == (TOLERATION,)


def operator_pod(name: str, account: str) -> Object:
    made = running(
        f"{name}-x",
        namespace="gpu-operator",
        owner=("DaemonSet", name),
        serviceAccountName=account,
    )
    made["spec"]["containers"][0]["image"] = "nvcr.io/nvidia/k8s-device-plugin:v0.17.1"
    return made


def test_the_agents_of_a_gpu_operator_are_no_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They strand nothing, and are told apart from the agents of others."""
    agent = operator_pod("nvidia-device-plugin-daemonset", "nvidia-device-plugin")
    other = running("log-1", namespace="logging", owner=("DaemonSet", "log"))
    there = node("gpu", {GPU: "4"}, cpu="2")
    file = written(tmp_path, there, agent, other)
    found = document(capsys, file)
    marks = {each["name"]: each["platform"] for each in found["podsWithoutGpu"]}
    assert marks == {"nvidia-device-plugin-daemonset-x": True, "log-1": False}
    assert found["nodes"][0]["resources"][0]["stranded"] == 4
    assert found["nodes"][0]["strandedByPodsWithoutGpu"] == {GPU: 1}
    assert gpus(["-f", file]) == 0
    text = "2 pods on 1 GPU node ask for no GPU (1 of the GPU platform, 1 of DaemonSets), and take"
    assert text in capsys.readouterr().out


def cluster_of_every_kind() -> list[Object]:
    """Pods that ask for something in every way, and pods that ask for nothing."""
    return [
        node("gpu", {GPU: "4"}),
        node("by-label", labels=PRESENT),
        node("cpu"),
        running("plain"),
        running("on-label", on="by-label"),
        running("zero", limits={GPU: "0"}),
        running("on-cpu", on="cpu"),
        running("done", phase="Succeeded"),
        running("starts", phase="Pending"),
        running("asks", limits={GPU: "1"}),
        running("asks-init", initContainers=[{"name": "i", "resources": {"limits": {GPU: 1}}}]),
        running("misspelt", limits={"nvidia.com/a100": "1"}),
        running("rdma", limits={"rdma/hca_shared_devices": "1"}),
        running("claim", resourceClaims=[{"name": "g", "resourceClaimName": "unknown"}]),
        running("mig", limits={"nvidia.com/mig-1g.10gb": "1"}),
        running("agent", owner=("DaemonSet", "agent")),
        operator_pod("nvidia-dcgm-exporter", "nvidia-dcgm-exporter"),
    ]


def test_gpus_and_audit_name_the_same_pods(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The audit leaves out what the profile excuses."""
    file = written(tmp_path, *cluster_of_every_kind())
    policy = with_the_rule(tmp_path)
    pods = document(capsys, file, "--policy", policy)["podsWithoutGpu"]
    audit(["-f", file, "--policy", policy, "-o", "json"])
    findings = json.loads(capsys.readouterr().out)["findings"]
    found = {each["name"] for each in findings if each["rule"] == RULE and each["kind"] == "Pod"}
    assert {one["name"] for one in pods if not one["platform"]} == found
    assert found == {
        *("plain", "starts", "on-label", "zero", "rdma", "agent"),
    }
    assert [one["name"] for one in pods if one["platform"]] == ["nvidia-dcgm-exporter-x"]


def with_the_rule(folder: Path, **more: Any) -> str:
    file = folder / "policy.yaml"
    policy = {"apiVersion": "gpuward.io/v1", "kind": "Policy", "rules": {RULE: {"action": "deny"}}}
    file.write_text(json.dumps(policy | more))
    return str(file)


def test_an_audit_says_why_the_pods_are_there_and_what_they_take(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that the rule finds alone: an exception of the policy excuses a pod, and its CPU."""
    there = node("gpu", {GPU: "8"}, labels=PRESENT, cpu="8")
    web = [
        running(f"web-{n}", limits={"cpu": "2", "memory": "1Gi"}, owner=("ReplicaSet", "web"))
        for n in "ab"
    ]
    log = running("log", limits={"cpu": "3500m"}, namespace="logging")
    file = written(tmp_path, there, *web, log, running("train", limits={GPU: 1, "cpu": "500m"}))
    excused = {"rules": [RULE], "match": {"namespace": "logging"}, "reason": "ships logs"}
    arguments = ["-f", file, "--policy", with_the_rule(tmp_path, exceptions=[excused])]
    audit([*arguments])
    text = capsys.readouterr().out
    assert (
        "2 pods on 1 GPU node ask for no GPU, and take 4 CPU and 2.0Gi memory. Without those "
        "not of the platform, 4 nvidia.com/gpu would not be stranded." in text
    )
    assert (
        "namespace team-a: replicaset/web: 2 pods on node gpu without a GPU (no lasting taint "
        "keeps pods off the node): 4 CPU, 2.0Gi memory" in text
    )
    assert "logging" not in text
    audit([*arguments, "-o", "json"])
    (found,) = json.loads(capsys.readouterr().out)["pods_without_gpu"]
    listed_by_gpus = [p for p in document(capsys, file)["podsWithoutGpu"] if p["name"] != "log"]
    assert found == {"file": "", "pods": listed_by_gpus, "stranded": {GPU: 4}}
    audit([*arguments, "-o", "json", "-n", "team-a"])  # other pods use the node too
    (found,) = json.loads(capsys.readouterr().out)["pods_without_gpu"]
    assert found == {"file": "", "pods": listed_by_gpus, "stranded": {}}


def test_mode_deny_keeps_pods_off_and_refuses_those_that_select_gpu_nodes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As it does with new pods: who is hit, and how, is shown before the rule is on.

    Those of a DaemonSet get the affinity too, and stay Pending.
    """
    web = [running(f"web-{n}", owner=("ReplicaSet", "web")) for n in "ab"]
    chosen = running("chosen", nodeSelector=PRESENT)
    agent = running("agent", owner=("DaemonSet", "agent"), **affinity(NAMED))
    there = node("gpu", {GPU: "8"}, labels=PRESENT)
    file = written(tmp_path, TEAM, there, *web, chosen, agent)
    arguments = ["-f", file, "--policy", with_the_rule(tmp_path), "-o", "json"]
    audit([*arguments, "--refused-by", "webhook"])
    report = json.loads(capsys.readouterr().out)
    refused = {found["name"]: found["message"] for found in report["findings"]}
    assert refused == {
        "chosen": 'the pod asks for no GPU and selects GPU nodes by "nvidia.com/gpu.present: true"'
    }
    assert (
        "namespace team-a: 3 pods on GPU nodes would be kept off them, not refused: "
        "replicaset/web, daemonset/agent" in [remark["message"] for remark in report["remarks"]]
    )
    assert modes(arguments) == 0
    (found,) = json.loads(capsys.readouterr().out)["namespaces"]
    assert found["wouldBeRefused"] == ["pod/chosen"]
    assert found["wouldBeKeptOff"] == ["replicaset/web", "daemonset/agent"]
    modes(arguments[:-2])
    assert "KEPT OFF GPU NODES" in capsys.readouterr().out


@pytest.mark.parametrize("change", [{"fix": False}, {"action": "off"}])
def test_what_the_policy_does_not_fix_is_not_kept_off(
    change: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = {RULE: {"action": "warn", **change}}
    file = written(tmp_path, TEAM, node("gpu", {GPU: "8"}, labels=PRESENT), running("web"))
    modes(["-f", file, "--policy", with_the_rule(tmp_path, rules=rules), "-o", "json"])
    (found,) = json.loads(capsys.readouterr().out)["namespaces"]
    assert (found["wouldBeRefused"], found["wouldBeKeptOff"]) == ([], [])


def test_what_pods_take_is_not_said_to_be_nothing_if_the_nodes_are_not_listed_again() -> None:
    raw = running("web")
    found = Finding(path=("spec", "nodeName"), key="node", message="there")._replace(rule=RULE)
    collected = PodsOnGpuNodes(None, lambda evaluated: evaluated.ref)
    collected.add(Evaluated(raw, object_ref("Pod", "", raw["metadata"], None), [found]))
    source = cast("ObjectReader", Objects(raw, broken=("nodes",)))
    snapshot = Snapshot(source, default_policy().profile, keep_going=True)
    with pytest.raises(SourceError, match="cannot list nodes"):
        collected.read(snapshot)


def test_an_audit_without_the_rule_lists_no_pods(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, node("gpu", {GPU: "4"}, labels=PRESENT), running("web"))
    audit(["-f", file, "--isolated", "-o", "json"])
    assert "pods_without_gpu" not in json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("key", ["gpu-fraction", "gpu-memory"])
def test_a_pod_that_is_counted_is_not_said_to_ask_for_none(
    key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """KAI's annotations count under every profile."""
    value = {"gpu-fraction": "0.5", "gpu-memory": "2000"}[key]
    part = running("part", annotations={key: value})
    file = written(tmp_path, node("gpu", {GPU: "4"}), part, running("web"))
    found = document(capsys, file)
    assert [each["name"] for each in found["consumers"]] == ["part"]
    assert names(found) == ["web"]


def test_an_audit_says_that_no_node_is_left_to_a_workload(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its template may run on the GPU nodes that there are, and on no other."""
    template = {"spec": {"containers": [{"name": "main", "image": "nginx:1.27"}]}}
    web = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "team-a"},
        "spec": {"template": template},
    }
    policy = with_the_rule(tmp_path)

    def message(*nodes: Object) -> str:
        file = written(tmp_path, *nodes, web)
        audit(["-f", file, "--policy", policy, "-o", "json"])
        found = json.loads(capsys.readouterr().out)["findings"]
        (text,) = (each["message"] for each in found if each["rule"] == RULE)
        return str(text)

    gpu = node("gpu", {GPU: "4"}, labels=PRESENT)
    assert message(gpu).endswith("none of the known nodes is left for it without these")
    assert "known nodes" not in message(gpu, node("cpu"))


def test_nodes_can_be_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A node that has a label of GPU nodes and no GPU is known too."""
    file = written(tmp_path, *cluster_of_every_kind())
    assert names(document(capsys, file, "by-label")) == ["on-label"]
    assert gpus(["-f", file, "--without-gpu", "by-label"]) == 0
    assert "on-label" in capsys.readouterr().out


def test_without_the_nodes_nothing_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, node("gpu", {GPU: "4"}), running("web"), running("a", limits={GPU: 1}))
    assert document(capsys, file, "--namespace", "team-a")["podsWithoutGpu"] == []
    assert gpus(["-f", file, "-n", "team-a"]) == 0
    assert "ask for no GPU" not in capsys.readouterr().out


def test_a_node_where_all_ask_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, node("gpu", {GPU: "4"}), running("a", limits={GPU: 1}))
    assert gpus(["-f", file]) == 0
    assert "for no GPU" not in capsys.readouterr().out
    assert gpus(["-f", file, "--without-gpu"]) == 0
    assert capsys.readouterr().out == "No pods without a GPU are on these nodes.\n"


@pytest.mark.parametrize("other", [["-n", "a"], ["-o", "cgpu"], ["--by", "node"], ["-d"]], ids=str)
def test_the_list_goes_with_no_other_view(other: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        gpus(["-f", "-", "--without-gpu", *other])
    assert stopped.value.code == 2


def test_twenty_thousand_pods_take_time_in_proportion() -> None:
    """Four times as many pods take less than eight times as long."""
    profile = default_policy([]).profile
    nodes = [node(f"n{number}", {GPU: "8"}) for number in range(200)]
    pods = [running(f"p{number}", on=f"n{number % 200}") for number in range(20_000)]

    def seconds(some: list[Object]) -> float:
        began = time.process_time()
        account = Account(nodes, profile)
        for each in some:
            account.add_pod(each)
        assert len(account.usage().without_gpu) == len(some)
        return time.process_time() - began

    few, all_of_them = min(seconds(pods[:5_000]) for _ in range(2)), seconds(pods)
    assert all_of_them < 8 * few
    assert all_of_them < 30

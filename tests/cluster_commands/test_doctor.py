"""The answers of `gpuward doctor` about a cluster.

Those about its own webhook are in test_doctor_on_a_cluster.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.api.errors import ClusterError, ForbiddenError
from cluster.doctor.checks.failed_calls import read_counted_calls
from cluster.doctor.cli import main
from cluster.doctor.rows import State, as_table
from cluster.source.objects import SourceError, matches
from policies.loading import load_policy
from tests.testkit.cluster_commands.doctor_rows import NO_METRICS, installed, rows, states
from tests.testkit.cluster_commands.gpu_objects import Object, listed, node, pod
from tests.testkit.policy_mistakes import POLICY_HEADER


def endpoints(*ready: bool) -> Object:
    labels = {"kubernetes.io/service-name": "gpuward"}
    return {
        "kind": "EndpointSlice",
        "metadata": {"name": "x", "namespace": "gpuward-system", "labels": labels},
        "endpoints": [{"conditions": {"ready": one}} for one in ready],
    }


def namespace(name: str, mode: str | None = None) -> Object:
    labels = {"gpuward.io/mode": mode} if mode else {}
    return {"kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def foreign(name: str, resource: str = "pods") -> Object:
    rule = {"apiGroups": [""], "resources": [resource], "operations": ["CREATE"]}
    entry = {"name": "mutate.example.com", "rules": [rule]}
    return {
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [entry],
    }


NEEDED = (
    *("nodes", "pods", "namespaces", "daemonsets", "endpointslices", "resourceslices"),
    *("mutatingwebhookconfigurations", "validatingwebhookconfigurations"),
)
EVERYTHING = (
    *NEEDED,
    *("resourceclaims", "deviceclasses", "devicetaintrules", "clusterpolicies", "gpuclusters"),
    *("validatingadmissionpolicies", "validatingadmissionpolicybindings"),
    *("mutatingadmissionpolicies", "mutatingadmissionpolicybindings", "priorityclasses"),
    "workloads",
)


@pytest.mark.parametrize("resource", NEEDED)
def test_what_fails_is_not_known_and_the_rest_is_checked(resource: str) -> None:
    objects = (*installed(), cgpu_node("shared"), plugin("plugin", None))
    empty = node("empty", labels={"nvidia.com/gpu.present": "true"})
    found = rows(*objects, empty, broken=(resource,))
    of_resource = [row for of_check in found.values() for row in of_check if "500" in row.message]
    assert {row.state for row in of_resource} == {State.NOT_KNOWN}
    assert {"grant" in row.remedy for row in of_resource} == {False}
    assert State.OK in {row.state for of_check in found.values() for row in of_check}


def test_without_pods_it_is_not_known_what_nodes_offer() -> None:
    (row,) = rows(node("a"), broken=("pods",))["GPU nodes"]
    assert (row.state, row.message) == (State.NOT_KNOWN, "cannot list pods: 500")


def test_nothing_is_checked_if_nothing_can_be_listed() -> None:
    with pytest.raises(SourceError, match=r"^cannot list nodes: 500$"):
        rows(broken=EVERYTHING)


def test_nothing_is_green_by_absence() -> None:
    def refuse(_path: str) -> str:
        raise ForbiddenError("403")

    found = rows(forbidden=EVERYTHING, request=refuse)
    assert {row.state for of_check in found.values() for row in of_check} == {State.NOT_KNOWN}
    assert {"webhook", "failed calls", "GPU nodes", "component priority"} <= found.keys()


def test_gpuward_is_not_installed() -> None:
    assert states(rows()["webhook"]) == {
        "mutatingwebhookconfigurations": State.WRONG,
        "validatingwebhookconfigurations": State.WRONG,
    }


@pytest.mark.parametrize(
    ("ready", "state"), [([True, False], State.OK), ([False], State.WRONG), ([], State.WRONG)]
)
def test_replicas(ready: list[bool], state: State) -> None:
    found = rows(*installed(), endpoints(*ready))["webhook"]
    assert states(found)["service/gpuward in gpuward-system"] is state


def test_modes_of_namespaces() -> None:
    found = rows(
        *installed(),
        *(namespace("a", "deny"), namespace("b"), namespace("c", "Deny"), namespace("d", "off")),
        namespace("kube-system"),
        pod("p", {"nvidia.com/gpu": 1}, namespace="b"),
    )["namespaces"]
    assert states(found) == {
        "c": State.WRONG,
        "mode deny": State.OK,
        "mode warn": State.OK,
        "not sent to gpuward": State.OK,
    }
    messages = {row.subject: row.message for row in found}
    assert messages["mode warn"] == "2; pods with GPUs in b"
    assert messages["not sent to gpuward"] == "2"


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("IfNeeded", {"a-mutator": State.OK, "z-mutator": State.OK}),
        ("Never", {"a-mutator": State.OK, "z-mutator": State.WRONG}),
    ],
)
def test_other_webhooks(policy: str, expected: dict[str, State]) -> None:
    others = (foreign("a-mutator"), foreign("z-mutator"), foreign("y-services", "services"))
    found = rows(*installed(reinvocationPolicy=policy), *others)["webhook order"]
    assert states(found) == expected


FAILED = "apiserver_admission_webhook"
METRICS = f"""\
{FAILED}_fail_open_count{{name="deny.gpuward.io",type="validating"}} 3
{FAILED}_fail_open_count{{name="other.example.com",type="validating"}} 9
{FAILED}_fail_open_count{{name="warn.gpuward.io",type="validating"}} e
{FAILED}_fail_open_count{{name="warn.gpuward.io",type="validating"}} 1e+999
{FAILED}_rejection_count{{name="a.gpuward.io",error_type="calling_webhook_error"}} 1
{FAILED}_rejection_count{{name="a.gpuward.io",error_type="apiserver_internal_error"}} 1
{FAILED}_rejection_count{{error_type="no_error",name="deny.gpuward.io"}} 70
apiserver_admission_match_condition_evaluation_errors_total{{kind="webhook",name="a.gpuward.io"}} 4
apiserver_admission_match_condition_evaluation_errors_total{{kind="policy",name="a.gpuward.io"}} 5
process_start_time_seconds 1.7e+09
"""


def test_failed_calls() -> None:
    found = rows(*installed(), request=lambda _path: METRICS)["failed calls"]
    assert [(row.subject, row.state, row.message.split()[0]) for row in found] == [
        ("fail open", State.WRONG, "3"),
        ("fail closed", State.WRONG, "2"),
        ("match conditions", State.WRONG, "4"),
    ]
    assert "since this API server started (2023-11-14 22:13 UTC)" in found[0].message
    calm = rows(*installed())["failed calls"]
    assert {row.state for row in calm} == {State.OK}
    endless = rows(*installed(), request=lambda _: METRICS.replace("e+09", "e+99"))
    assert "started;" in endless["failed calls"][0].message


def failed_calls(before: Path, metrics: str) -> list[tuple[str, State, str]]:
    counted = read_counted_calls(str(before))
    found = rows(*installed(), request=lambda _path: metrics, before=counted)["failed calls"]
    return [(row.subject, row.state, row.message) for row in found]


def test_only_calls_that_failed_since_an_earlier_report_count(tmp_path: Path) -> None:
    report = tmp_path / "doctor.json"
    calls = {"readAt": "2023-11-15T10:00:00+00:00", "started": 1.7e9}
    calls["failures"] = {"fail open": 3, "fail closed": 1, "match conditions": 4}
    report.write_text(json.dumps({"version": 1, "failedCalls": calls}))
    unchanged, grown, _ = failed_calls(report, METRICS)
    assert unchanged == ("fail open", State.OK, "none since 2023-11-15 10:00 UTC")
    assert grown[:2] == ("fail closed", State.WRONG)
    assert grown[2].startswith("1 calls failed, and objects were refused")
    # It has restarted, and counts from 0.
    restarted = METRICS.replace("1.7e+09", "1.8e+09")
    assert [row[2].split()[0] for row in failed_calls(report, restarted)] == ["3", "2", "4"]
    # It is another one.
    ((subject, state, message),) = failed_calls(report, METRICS.replace("1.7e+09", "1.6e+09"))
    assert (subject, state) == ("API server", State.NOT_KNOWN)
    assert message.startswith("it is not the API server (2023-11-14 22:13 UTC)")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"failedCalls": {"readAt": 7}}', "[" * 9999])
def test_a_report_that_says_nothing_about_failed_calls(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "doctor.json"
    report.write_text(text)
    (tmp_path / "cluster.json").write_text(json.dumps(listed(node("a"))))
    options = ["-f", str(tmp_path / "cluster.json"), "--since-report", str(report)]
    assert main(options) == 2
    assert "write it with: gpuward doctor -o json" in capsys.readouterr().err


def test_no_failed_call_is_no_news_where_nobody_is_called() -> None:
    assert "failed calls" not in rows()
    page = rows(*installed(), request=lambda _path: "<html>Sign in</html>")["failed calls"]
    assert states(page) == {"API server": State.NOT_KNOWN}


def plugin(
    name: str, priority: str | None, path: str = "/var/lib/kubelet/device-plugins"
) -> Object:
    spec: dict[str, Any] = {"volumes": [{"name": "v", "hostPath": {"path": path}}]}
    if priority:
        spec["priorityClassName"] = priority
    return {
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "kube-system"},
        "spec": {"template": {"spec": spec}},
    }


def test_priority_of_device_plugins() -> None:
    found = rows(
        plugin("good", "system-node-critical"),
        plugin("none", None),
        plugin("low", "gold"),
        plugin("logs", None, "/var/log"),
    )["component priority"]
    assert states(found) == {
        "daemonset/good in kube-system": State.OK,
        "daemonset/low in kube-system": State.WRONG,
        "daemonset/none in kube-system": State.WRONG,
    }


TOOLKIT = "registry.example.com/nvidia/k8s/container-toolkit:"


def toolkit(image: str, **status: int) -> Object:
    """The DaemonSet of the GPU operator, for nodes with a label."""
    container = {"name": "nvidia-container-toolkit-ctr", "image": image}
    spec = {"containers": [container], "nodeSelector": {"toolkit": "true"}}
    metadata = {"name": "toolkit", "namespace": "gpu-operator"}
    template = {"spec": {"template": {"spec": spec}}, "status": status}
    return {"kind": "DaemonSet", "metadata": metadata, **template}


@pytest.mark.parametrize(
    ("made", "state", "message"),
    [
        (
            toolkit(f"{TOOLKIT}v1.19.1-ubi9"),
            State.OK,
            "no bulletin up to 2026-06-30 concerns v1.19.1",
        ),
        (
            toolkit(f"{TOOLKIT}v1.17.3"),
            State.WRONG,
            "CVE-2026-24260, CVE-2025-23266, CVE-2025-23267",
        ),
        (toolkit(f"{TOOLKIT}v1.17.3"), State.WRONG, "and 1 more"),
        (toolkit(f"{TOOLKIT}latest"), State.NOT_KNOWN, "does not tell whether"),
        (toolkit(f"{TOOLKIT}v1.19.1@sha256:{'0' * 64}"), State.NOT_KNOWN, "does not tell"),
        (
            toolkit(f"{TOOLKIT}v1.19.1", updatedNumberScheduled=2, desiredNumberScheduled=3),
            State.NOT_KNOWN,
            "v1.19.1 is on 2 of 3 nodes",
        ),
        (toolkit(f"{TOOLKIT}v1.19.0", desiredNumberScheduled=3), State.WRONG, "CVE-2026-24260"),
    ],
)
def test_vulnerabilities_of_the_container_toolkit(made: Object, state: State, message: str) -> None:
    (row,) = rows(made)["container toolkit"]
    assert (row.subject, row.state) == ("daemonset/toolkit in gpu-operator", state)
    assert message in row.message


def test_a_toolkit_of_the_operating_system_is_not_known() -> None:
    nodes = [
        node("with", {"nvidia.com/gpu": 1}, labels={"toolkit": "true"}),
        node("without", {"nvidia.com/mig-1g.5gb": 1}),
        node("cpu"),
    ]
    found = rows(*nodes, toolkit(f"{TOOLKIT}v1.19.1"))["container toolkit"]
    assert states(found) == {
        "daemonset/toolkit in gpu-operator": State.OK,
        "without": State.NOT_KNOWN,
    }
    assert "container toolkit" not in rows(node("cpu"))


def test_nodes_that_should_offer_gpus() -> None:
    labels = {"nvidia.com/gpu.present": "true"}
    found = rows(
        node("good", {"nvidia.com/gpu": 1}, labels=labels),
        node("empty", labels=labels),
        node("cpu", labels={"nvidia.com/gpu.deploy.driver": "false"}),
    )["GPU nodes"]
    assert states(found) == {
        "good": State.OK,
        "empty (nvidia.com/gpu.present=true)": State.WRONG,
    }
    assert states(rows(node("cpu"))["GPU nodes"]) == {"all": State.NOT_KNOWN}


def cgpu_node(name: str, driver: str = "535.161.08", **info: str) -> Object:
    made = node(
        name,
        {"aliyun.com/gpu-mem": 15, "aliyun.com/gpu-count": 1},
        labels={
            "ack.node.gpu.schedule": "cgpu",
            "topology.kubernetes.io/region": "cn-beijing",
            "nvidia.com/cuda.driver-version.full": driver,
        },
    )
    node_info = {
        "osImage": "Alibaba Cloud Linux 3",
        "containerRuntimeVersion": "containerd://1.6.28",
    }
    made["status"]["nodeInfo"] = {**node_info, **info}
    made["spec"]["providerID"] = f"cn-beijing.i-{name}"
    return made


def test_requirements_have_three_answers() -> None:
    found = rows(
        cgpu_node("a"),
        cgpu_node("b"),
        cgpu_node("old", "390.1", containerRuntimeVersion="cri-o://1"),
    )["requirements"]
    by_message = {row.message.partition(": ")[2]: (row.state, row.subject) for row in found}
    assert by_message["driver 535.161.08 is supported"] == (State.OK, "a, b (driver)")
    [(driver, old)] = [pair for pair in by_message.items() if "390.1" in pair[0]]
    assert driver.startswith("driver 390.1 is not supported: it needs ")
    assert driver.endswith(" or newer")
    assert old == (State.WRONG, "old (driver)")
    assert by_message["runtime cri-o://1 is on no list"] == (State.NOT_KNOWN, "old (runtime)")
    assert by_message["card is not stated by the node"] == (State.NOT_KNOWN, "a, b, old (card)")


def required(*objects: Object) -> dict[str, State]:
    """Return the answers of the rows about requirements, without the names of features."""
    found = rows(*objects)["requirements"]
    return {row.message.partition(": ")[2].split(":")[0]: row.state for row in found}


def test_a_registered_cluster_has_requirements_of_its_own() -> None:
    share = cgpu_node("a", kubeletVersion="v1.21.14", osImage="Ubuntu 20.04.6 LTS")
    share["metadata"]["labels"]["ack.node.gpu.schedule"] = "share"
    assert "requirements" not in rows(share, pod("p", {"cpu": 1}))
    ours = pod("p", {"aliyun.com/gpu-mem": 1})
    ours["spec"]["schedulerName"] = "ack-co-scheduler"
    assert required(share, ours) == {
        "Kubernetes v1.21.14 is not supported": State.WRONG,
        "operating system Ubuntu 20.04.6 LTS is not supported": State.WRONG,
    }
    cloud = cgpu_node("b", kubeletVersion="v1.21.14")
    assert required(cloud)["driver 535.161.08 is supported"] is State.OK
    assert required(cloud, ours)["Kubernetes v1.21.14 is not supported"] is State.WRONG


def test_where_pages_disagree_there_is_one_answer() -> None:
    node = cgpu_node("a")
    node["metadata"]["labels"]["ack.node.gpu.schedule"] = "core_mem"
    assert required(node)["region cn-beijing is supported"] is State.OK
    for region, forbids, lists in (
        ("ap-southeast-7", "Manage the shared", "Allocate computing power"),
        ("eu-central-1", "Allocate computing power", "Manage the shared"),
    ):
        node["metadata"]["labels"]["topology.kubernetes.io/region"] = region
        (row,) = [row for row in rows(node)["requirements"] if region in row.message]
        assert row.state is State.WRONG
        assert lists in row.message
        assert forbids in row.remedy


def test_the_container_optimized_edition_needs_a_newer_installer() -> None:
    node = cgpu_node("a", osImage="Alibaba Cloud Linux 3.2104 LTS 64-bit Container Optimized")
    installer = {
        "kind": "DaemonSet",
        "apiVersion": "apps/v1",
        "metadata": {"name": "cgpu", "labels": {"helm.sh/chart": "ack-ai-installer-1.12.5"}},
    }
    assert required(node, installer)["ack-ai-installer 1.12.5 is not supported"] is State.WRONG
    assert "ack-ai-installer 1.12.5 is not supported" not in required(cgpu_node("a"), installer)


def test_pods_per_card() -> None:
    def shares(count: int) -> list[Object]:
        given = {"ALIYUN_COM_GPU_MEM_IDX": "0", "ALIYUN_COM_GPU_MEM_POD": "1"}
        limits = {"aliyun.com/gpu-mem": 1}
        return [pod(f"p{n}", limits, on="a", annotations=given) for n in range(count)]

    assert states(rows(cgpu_node("a"), *shares(20))["pods per card"]) == {"a": State.OK}
    crowded = rows(cgpu_node("a"), *shares(21))["pods per card"]
    assert states(crowded) == {"card 0 of a": State.WRONG}


def test_job_types_of_a_node() -> None:
    memory = {"aliyun.com/gpu-mem": 1}
    power = {**memory, "aliyun.com/gpu-core.percentage": 30}
    nodes = (cgpu_node("a"), cgpu_node("b"))
    apart = (pod("p", power, on="a"), pod("m", memory, on="b"), pod("waits", memory))
    assert states(rows(*nodes, *apart)["job types"]) == {"a, b": State.OK}
    (row,) = rows(*nodes, *apart, pod("other", memory, on="a"))["job types"]
    assert (row.subject, row.state) == ("a", State.WRONG)
    for name in ("p", "other"):
        assert f"/{name})" in row.message
    assert "job types" not in rows(node("cpu"), pod("m", memory))


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (lambda _: '{"kubeletconfig": {"cpuManagerPolicy": "static"}}', State.WRONG),
        (lambda _: '{"kubeletconfig": {"cpuManagerPolicy": "none"}}', State.OK),
        (lambda _: '{"kubeletconfig": {}}', State.NOT_KNOWN),
        (lambda _: "not JSON", State.NOT_KNOWN),
        (lambda _: "[" * 100_000, State.NOT_KNOWN),
    ],
)
def test_cpu_policy(answer: Callable[[str], str], state: State) -> None:
    asked = rows(cgpu_node("a"), request=answer, ask_kubelets=True)["CPU policy"]
    assert states(asked) == {"a": state}

    def forbidden(_path: str) -> str:
        raise ForbiddenError("403")

    (row,) = rows(cgpu_node("a"), request=forbidden, ask_kubelets=True)["CPU policy"]
    assert (row.state, row.remedy.split(",")[0]) == (State.NOT_KNOWN, "grant `get` on nodes/proxy")

    def nobody_may_ask(path: str) -> str:
        if "proxy" in path:
            raise AssertionError(path)
        raise ClusterError("no metrics")

    unasked = rows(cgpu_node("a"), request=nobody_may_ask)["CPU policy"]
    assert states(unasked) == {"a": State.NOT_KNOWN}


def test_rules_about_nodes_are_rows() -> None:
    mode = {"ack.node.gpu.schedule": "cgpu"}
    nodes = [node(f"n{number}", labels=mode) for number in range(5)]
    found = rows(*nodes)["node-mode-without-resource"]
    assert states(found) == {"n0, n1, n2 and 2 more": State.WRONG}
    slow = installed(timeoutSeconds=30)[0]
    (row,) = rows(slow)["webhook-timeout"]
    assert row.subject == "gpuward"  # once, though each of its webhooks is slow
    assert re.search(r" \(and \d more\)$", row.message)
    clean = rows(cgpu_node("a"), node("cpu"))["nodes"]
    assert states(clean) == {"all": State.OK}
    assert clean[0].message.endswith("rules find no fault in 2")


@pytest.mark.parametrize(("action", "state"), [("audit", State.OK), ("warn", State.WRONG)])
def test_what_the_policy_only_notes_is_not_wrong(action: str, state: State) -> None:
    policy = load_policy(
        f"{POLICY_HEADER}rules: {{gpu-taint-missing: {{action: {action}}}}}", "policy.yaml"
    )
    untainted = node("n", {"nvidia.com/gpu": "8"}, labels={"nvidia.com/gpu.present": "true"})
    found = rows(untainted, policy=policy)
    about = [*found.get("gpu-taint-missing", ()), *found.get("nodes", ())]
    assert [row.state for row in about] == [state]


DIGEST = f"sha256:{'0' * 64}"


def running(image: str, *, name: str = "x") -> Object:
    made = pod(name, namespace="system")
    made["spec"]["containers"][0]["image"] = image
    return made


def serving(path: str) -> str:
    return '{"gitVersion": "v1.34.2-eks-1"}' if path == "/version" else NO_METRICS


@pytest.mark.parametrize(
    ("image", "state", "message"),
    [
        ("nvcr.io/nvidia/gpu-operator:v26.3.2", State.OK, "no bulletin up to 2026-06-30 concerns"),
        ("nvcr.io/nvidia/gpu-operator:v26.3.1", State.WRONG, "vulnerabilities: CVE-2026-24260"),
        ("r.example:5000/x/kai-scheduler/scheduler:v0.12.9", State.WRONG, "CVE-2026-24176"),
        ("ghcr.io/kai-scheduler/kai-scheduler/scheduler:v0.13.0-fips", State.OK, "no bulletin"),
        ("volcanosh/vc-scheduler:v1.8.9", State.WRONG, "CVE-2025-32777"),
        ("volcanosh/vc-scheduler:v1.10.1", State.WRONG, "CVE-2025-32777"),
        ("docker.io/volcanosh/vc-scheduler:v1.10.3", State.OK, "no bulletin up to 2025-04-30"),
        ("docker.io/volcanosh/vc-scheduler:v1.11.1", State.WRONG, "CVE-2025-32777"),
        ("docker.io/volcanosh/vc-scheduler:latest", State.NOT_KNOWN, "tells no version"),
        ("docker.io/volcanosh/vc-scheduler:v1.12.0-alpha.1", State.NOT_KNOWN, "is fixed"),
        ("repo.example:5000/gpu-operator:v26.3.1", State.WRONG, "CVE-2026-24260"),
        ("registry.example/volcano/vc-scheduler:v1.10.1", State.WRONG, "CVE-2025-32777"),
        (f"nvcr.io/nvidia/gpu-operator:v26.3.1@{DIGEST}", State.NOT_KNOWN, "has a digest"),
        (f"registry.k8s.io/kube-scheduler:v1.34.0@{DIGEST}", State.NOT_KNOWN, "has a digest"),
        ("projecthami/hami:v2.7.0", State.NOT_KNOWN, "HAMi is v2.7.0, of which no requirement"),
        ("registry.k8s.io/kube-scheduler:v1.34.0", State.OK, "where the API server is 1.34.2"),
        ("registry.k8s.io/kube-scheduler:v1.33.9", State.OK, "where the API server is 1.34.2"),
        ("registry.k8s.io/kube-scheduler:v1.35.0", State.WRONG, "it must be of the same minor"),
        ("registry.k8s.io/kube-scheduler:v1.32.0", State.WRONG, "it must be of the same minor"),
    ],
)
def test_versions_of_programs(image: str, state: State, message: str) -> None:
    [row] = rows(running(image), request=serving)["versions"]
    assert (row.subject, row.state) == ("pod/x in system", state)
    assert message in row.message


def test_the_operator_of_another_vendor_has_no_version_of_nvidia() -> None:
    assert "versions" not in rows(running("docker.io/rocm/gpu-operator:v1.3.0"), request=serving)


def test_versions_of_init_containers_and_of_pods_that_have_terminated() -> None:
    image = "nvcr.io/nvidia/gpu-operator:v24.3.0"
    found = running("example/x:1")
    found["spec"]["initContainers"] = [{"name": "a", "image": image}] * 2
    done = running(image) | {"status": {"phase": "Succeeded"}}
    done["metadata"]["name"] = "done"
    [row] = rows(found, done)["versions"]
    assert (row.subject, row.state) == ("pod/x in system", State.WRONG)


def test_versions_that_nobody_tells() -> None:
    scheduler = running("registry.k8s.io/kube-scheduler:v1.34.0")
    for request, why, remedy in (
        (None, "the objects are from files", "run it against the cluster"),
        (lambda _: NO_METRICS, "Expecting value", "kubectl get --raw /version"),
    ):
        [row] = rows(scheduler, request=request)["versions"]
        assert row.state is State.NOT_KNOWN
        assert why in row.message
        assert remedy in row.remedy
    assert "versions" not in rows(running("example/scheduler:v1"))


@pytest.mark.parametrize(
    ("tag", "chart", "states"),
    [
        ("v1.28.1-aliyun-5.6-998282b9", "1.2.1", {State.OK}),
        ("v1.28.1-aliyun-5.5-998282b9", "1.2.0", {State.WRONG}),
        ("", "", {State.NOT_KNOWN}),
    ],
)
def test_programs_that_share_cards_on_ack(tag: str, chart: str, states: set[State]) -> None:
    shared = node("shared", labels={"ack.node.gpu.schedule": "core_mem"})
    shared["status"]["nodeInfo"] = {"kubeletVersion": "v1.28.3-aliyun.1"}
    objects = [shared]
    if tag:
        installer = plugin("cgpu-installer", None)
        installer["metadata"]["labels"] = {"helm.sh/chart": f"ack-ai-installer-{chart}"}
        objects += [installer, running(f"registry.example/acs/kube-scheduler:{tag}")]
    found = {
        name: row
        for row in rows(*objects)["requirements"]
        for name in ("kube-scheduler", "ack-ai-installer", "cgpu")
        if f"cGPU: {name}" in row.message
    }
    assert {found[name].state for name in ("kube-scheduler", "ack-ai-installer")} == states
    assert found["cgpu"].state is State.NOT_KNOWN
    assert found["cgpu"].message.endswith("cgpu shows in no pod")


@pytest.mark.parametrize(
    ("selector", "labels", "expected"),
    [
        ({}, {"a": "1"}, True),
        ({"matchLabels": {"a": "1"}}, {"a": "1"}, True),
        ({"matchLabels": {"a": "1"}}, {}, False),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1"]}]}, {}, False),
        ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}, {}, True),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": 5}]}, {"a": "1"}, False),
        ({"matchExpressions": [{"key": "a", "operator": "Exists"}]}, {"a": ""}, True),
        ({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}, {"a": ""}, False),
        (
            {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["0"]}]},
            {"a": "1"},
            False,
        ),
    ],
)
def test_label_selectors(selector: Object, labels: dict[str, str], expected: bool) -> None:  # noqa: FBT001
    assert matches(selector, labels) is expected


def test_one_remedy_is_printed_once_for_the_rows_of_a_check() -> None:
    found = rows(*(plugin(name, None) for name in "abcd"), plugin("low", "gold"))
    text = as_table(found["component priority"], color=False)
    subjects = ", ".join(f"daemonset/{name} in kube-system" for name in "abc")
    assert text.count("set priorityClassName") == 1
    assert f"- component priority, {subjects} and 2 more:\n  set priorityClassName" in text


@pytest.mark.parametrize(
    ("check", "remedy"),
    [
        ("component priority", "if the cluster has no DaemonSet, nothing; otherwise list them"),
        ("webhook", "list them too: kubectl get mutatingwebhookconfigurations"),
    ],
)
def test_what_is_not_in_files_may_not_be_in_the_cluster(check: str, remedy: str) -> None:
    row, *_ = rows(request=None)[check]
    assert row.state is State.NOT_KNOWN
    assert row.message.endswith("in the files")
    assert row.remedy.startswith(remedy)


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "cluster.json"
    objects = [
        node("n", {"nvidia.com/gpu": 1}),
        {**plugin("plugin", None), "apiVersion": "apps/v1"},
    ]
    file.write_text(json.dumps(listed(*objects)), encoding="utf-8")
    assert main(["-f", str(file), "-A"]) == 1
    text = capsys.readouterr().out
    assert "wrong       component priority   daemonset/plugin in kube-system" in text
    assert "- component priority, daemonset/plugin in kube-system:\n  set priorityClassName" in text
    assert main(["-f", str(file), "-o", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert main(["-f", str(file), "-o", "yaml"]) == 1
    assert yaml.safe_load(capsys.readouterr().out) == document
    assert main(["-f", str(file), "-o", "wide"]) == 1
    headline, _, header, *lines = capsys.readouterr().out.splitlines()
    assert headline.startswith("not known whether the cluster is guarded: no Validating")
    assert header.endswith("   REMEDY")
    for row in document["rows"]:
        assert any(row["message"] in line and row["remedy"] in line for line in lines)
    assert document["version"] == 1
    assert (document["guarded"], "no Validating" in document["guardedReason"]) == (None, True)
    assert {*document["rows"][0]} == {"check", "subject", "state", "message", "remedy", "names"}
    found = [row for row in document["rows"] if row["state"] == "wrong"]
    assert [row["check"] for row in found] == ["component priority"]
    file.write_text(json.dumps(listed(objects[0])), encoding="utf-8")
    assert main(["-f", str(file)]) == 3
    assert main(["-f", str(file), "--allow-not-known"]) == 0
    assert main(["-f", str(tmp_path / "nothing.json")]) == 2


_MORE = re.compile(r"and ([\d,]+) more")
_STATES = (State.WRONG, State.NOT_KNOWN)


def test_each_row_has_all_names() -> None:
    mode = {"ack.node.gpu.schedule": "cgpu"}
    shared = [cgpu_node(f"shared-{n}") for n in range(7)]
    lost = [
        node(f"lost-{n}", {"nvidia.com/gpu": "7"}, capacity={"nvidia.com/gpu": "8"})
        for n in range(7)
    ]
    empty = [node(f"empty-{n}", labels={"nvidia.com/gpu.present": "true"}) for n in range(7)]
    virtual = {"nvidia.com/GP107": "1"}
    strange = [node(f"kv-{n}", virtual, labels=empty[0]["metadata"]["labels"]) for n in range(7)]
    modes = [node(f"mode-{n}", labels=mode) for n in range(7)]
    spaces = [namespace(f"s{n}", "deny") for n in range(7)]
    users = [pod(f"p{n}", {"nvidia.com/gpu": 1}, namespace=f"s{n}", on="lost-0") for n in range(7)]
    scheduler = "registry.k8s.io/kube-scheduler:v1.30.0"
    schedulers = [running(scheduler, name=f"scheduler-{n}") for n in range(7)]
    objects = [*shared, *lost, *empty, *strange, *modes, *spaces, *users, *schedulers]
    found = rows(*installed(), *objects, endpoints(*[True]))
    several = {
        check: [row for row in of_check if _MORE.search(f"{row.subject} {row.message}")]
        for check, of_check in found.items()
    }
    assert {check for check, of_check in several.items() if of_check} >= {
        *("sick cards", "GPU nodes", "namespaces", "versions", "CPU policy", "requirements"),
        "node-mode-without-resource",
    }
    for row in (row for of_check in several.values() for row in of_check):
        hidden = _MORE.search(f"{row.subject} {row.message}")
        assert hidden
        assert len(row.names) == len({*row.names}) >= int(hidden[1].replace(",", "")) + 3, row
    (sick,) = found["sick cards"]
    assert (sick.subject, sick.names) == (
        "lost-0, lost-1, lost-2 and 4 more",
        tuple(f"lost-{n}" for n in range(7)),
    )
    wrong, unknown = ({row.state: row for row in found["GPU nodes"]}[state] for state in _STATES)
    assert {f"empty-{n}" for n in range(7)} < {*wrong.names}  # without the label in the text
    assert unknown.names == tuple(f"kv-{n}" for n in range(7))  # one fault, not seven

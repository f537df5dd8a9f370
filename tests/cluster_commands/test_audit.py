"""Tests of `gpuward audit`."""

from __future__ import annotations

import datetime
import json
import marshal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.audit import evaluation
from cluster.audit.cli import main
from cluster.audit.facts import EVALUATED_WITH_FACTS
from cluster.audit.replicas import MARSHAL_VERSION
from rules.engine.fixing import check
from rules.finding import Action
from rules.inventory.inventory import RECORD_TYPES, Inventory
from tests.testkit.cases import cases
from tests.testkit.cluster_commands.paged_server import Fault, Listed, paged_server
from tests.testkit.lint_in_process import LintInProcess
from webhook.registration import RegistrationOptions, configurations

BYPASS = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}


def pod(name: str, *, node: str = "", owner: str = "", **changes: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "example/x", "env": [BYPASS]}
    metadata: dict[str, Any] = {"name": name, "namespace": "ml", "uid": name}
    if owner:
        reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner}
        metadata["ownerReferences"] = [reference | {"controller": True}]
        metadata["labels"] = {"pod-template-hash": owner.rpartition("-")[2]}
    status = {"phase": "Running"} if node else {}
    spec = {"containers": [container | changes], **({"nodeName": node} if node else {})}
    head = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    return {**head, "spec": spec, "status": status}


def node(name: str, gpus: int) -> dict[str, Any]:
    capacity = {"cpu": "8"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    head = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    return {**head, "status": {"capacity": capacity}}


class Audit:
    """The command on objects in a file."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._file = folder / "objects.json"
        self._capsys = capsys

    def __call__(self, objects: list[dict[str, Any]], *arguments: str) -> dict[str, Any]:
        self._file.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": objects}))
        self.status = main(["-f", str(self._file), "--isolated", "--output=json", *arguments])
        report: dict[str, Any] = json.loads(self._capsys.readouterr().out)
        return report


@pytest.fixture
def audit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Audit:
    return Audit(tmp_path, capsys)


def namespace(name: str, **labels: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def claim(name: str, home: str, *, kind: str = "ResourceClaim", **exactly: Any) -> dict[str, Any]:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", **exactly}}
    spec: dict[str, Any] = {"devices": {"requests": [request]}}
    head = {"apiVersion": "resource.k8s.io/v1", "kind": kind}
    metadata = {"name": name, "namespace": home}
    return {
        **head,
        "metadata": metadata,
        "spec": spec if kind == "ResourceClaim" else {"spec": spec},
    }


def test_namespaces_whose_claims_can_have_admin_access_are_named(audit: Audit) -> None:
    label = {"resource.kubernetes.io/admin-access": "true"}
    objects = [
        *(namespace("team-a", **label), namespace("team-b", **label)),
        namespace("team-c", **{"resource.kubernetes.io/admin-access": "false"}),
        namespace("gpu-operator", **label),
        claim("watched", "team-a", adminAccess=True),
        claim("template", "team-a", kind="ResourceClaimTemplate", adminAccess=True),
        claim("ordinary", "team-b"),
    ]
    said = [remark["message"] for remark in audit(objects)["remarks"]]
    found = [message for message in said if "admin access" in message]
    named = ("ResourceClaim team-a/watched", "ResourceClaimTemplate team-a/template")
    what = "the label resource.kubernetes.io/admin-access lets claims have admin access to devices"
    assert found == [
        f"namespace team-a: {what}; 2 objects with it: {', '.join(named)}",
        f"namespace team-b: {what}; no claim has it now",
    ]
    of_one = audit(objects, "-n", "team-b")["remarks"]
    assert [remark["message"] for remark in of_one] == found[1:]


def test_classes_of_devices_are_evaluated(audit: Audit) -> None:
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass"}
    spec = {"selectors": [{"cel": {"expression": "device.drver == 'x'"}}]}
    report = audit([{**head, "metadata": {"name": "large.example.com"}, "spec": spec}])
    assert [finding["rule"] for finding in report["findings"]] == ["invalid-device-selector"]


# docs/other-objects.md: only the linter compares workloads with each other; an audit compares the
# pods that run.
IN_THE_LINTER_ALONE = "job-type-mixing"


@pytest.mark.parametrize("first", range(8))
def test_the_audit_finds_what_the_linter_finds(
    first: int,
    audit: Audit,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    some = []
    chosen = [case for case in cases()[first::8] if case.rule != IN_THE_LINTER_ALONE]
    for number, case in enumerate(chosen):
        manifest = json.loads(json.dumps(case.manifest, default=str))
        # In a cluster, no two have the same name; and no case may limit the pods of another.
        if isinstance(manifest, dict) and isinstance(metadata := manifest.get("metadata"), dict):
            metadata["name"] = f"{metadata.get('name')}-{number}"
            metadata["namespace"] = f"case-{number}"
            some.append(manifest)
    lint = LintInProcess(tmp_path, capsys, monkeypatch)
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": some})
    expected = lint("--isolated", "--output=json", "-", stdin=text).report
    found = audit(some)
    for report in (expected, found):
        report["places"] = [
            (f["identity"], f["level"], f["owner"], f["objects"])
            for f in report["findings"]
            if f["rule"] != "job-type-mixing"  # only the linter compares pods with others
        ]
    assert len(found["places"]) > 50
    assert sorted(found["places"], key=str) == sorted(expected["places"], key=str)
    for count in ("objects", "pods", "components"):
        assert found["summary"][count] == expected["summary"][count]
    for level in ("error", "warning", "note"):  # remarks of the two differ
        listed = [f["level"] for f in (*found["findings"], *found["remarks"])]
        assert found["summary"][f"{level}s"] == listed.count(level)
    assert len(found["not_evaluated"]) == len(expected["not_evaluated"])


@pytest.mark.parametrize("unmerged", [1, 3, 20_000])
def test_pods_of_one_owner_are_one_finding_however_often_they_are_merged(
    unmerged: int, audit: Audit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "_UNMERGED", unmerged)
    pods = [pod(f"web-{n}", owner=f"web-{n % 2}", node="a") for n in range(9)]
    found = audit([*pods, pod("alone")])["findings"]
    assert [(f["owner"], f["objects"]) for f in found] == [
        ({"kind": "Deployment", "name": "web"}, 9),
        ({"kind": "Pod", "name": "alone"}, 1),
    ]
    assert audit.status == 1


@pytest.mark.parametrize("field", ["apiVersion", "kind", "name"])
def test_an_owner_that_cannot_exist_hides_no_pod(field: str, audit: Audit) -> None:
    hidden = pod("hidden", node="a", owner="web-1")
    hidden["metadata"]["ownerReferences"][0][field] = "x" * 400_000 + "/v1"
    report = audit([hidden, node("a", 1)])
    assert report["not_evaluated"] == []
    assert [f["owner"] for f in report["findings"]] == [{"kind": "Pod", "name": "hidden"}]


def test_an_audit_with_too_many_findings_says_so(
    audit: Audit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reports.results.MAX_FINDINGS", 5)
    found = audit([pod(f"alone-{n}") for n in range(9)])
    assert len(found["findings"]) == 5
    (missing,) = found["not_evaluated"]
    assert "more findings than 5 in this run" in missing["message"]
    assert audit.status == 3


def test_running_pods_that_can_use_gpus_without_a_request_are_named(audit: Audit) -> None:
    limits = {"limits": {"nvidia.com/gpu": 1}}
    pods = [
        *(pod(f"thief-{n}", node="gpus") for n in range(7)),
        pod("pending"),
        pod("elsewhere", node="cpus"),
        pod("owner", node="gpus", resources=limits),
        pod("harmless", node="gpus", env=[]),
    ]
    nodes = [node("gpus", 8), node("cpus", 0)]
    named = ", ".join(f"pod/thief-{n}" for n in range(5))
    pods_there = "namespace ml: 7 running pods on node gpus"
    text = f"{pods_there} can use GPUs that nobody requested: {named} and 2 more"
    remarks = audit([*pods, *nodes])["remarks"]
    assert [(remark["level"], remark["message"]) for remark in remarks] == [("warning", text)]
    # Without nodes it is not known which of them have GPUs.
    (unknown,) = (remark["message"] for remark in audit(pods)["remarks"])
    assert unknown.startswith("namespace ml: 8 running pods on 2 nodes can use GPUs")


def test_privileged_running_pods_on_gpu_nodes_are_named_without_a_claim_that_they_use_gpus(
    audit: Audit,
) -> None:
    """They see every device of their node, and nothing else shows that they want one."""
    privileged: dict[str, Any] = {"env": [], "securityContext": {"privileged": True}}
    card: dict[str, Any] = {"resources": {"limits": {"nvidia.com/gpu": 1}}}

    def owned(name: str, kind: str, namespace: str = "ml", **spec: Any) -> dict[str, Any]:
        made = pod(name, node="gpus", **privileged)
        reference = {"apiVersion": "apps/v1", "kind": kind, "name": "agent", "controller": True}
        made["metadata"] |= {"namespace": namespace, "ownerReferences": [reference]}
        made["spec"] |= spec
        return made

    done = pod("done", node="gpus", **privileged)
    ended = {"name": "main", "state": {"terminated": {"exitCode": 0}}}
    done["status"]["containerStatuses"] = [ended]
    prepared = pod("prepared", node="gpus", env=[])
    prepared["spec"]["initContainers"] = [{"name": "setup", "image": "x", **privileged}]
    helped = pod("helped", node="gpus", env=[])
    sidecar = {"name": "side", "image": "x", "restartPolicy": "Always", **privileged}
    helped["spec"]["initContainers"] = [sidecar]
    pods = [
        pod("docker-5d-1", node="gpus", owner="docker-5d", **privileged),
        pod("docker-5d-2", node="gpus", owner="docker-5d", **privileged),
        pod("elsewhere", node="cpus", **privileged),
        pod("waits", **privileged),
        pod("asks", node="gpus", **privileged, **card),
        *(done, prepared, helped),
        # Agents of every node, and components of the GPU platform.
        owned("network", "DaemonSet", "kube-system"),
        owned("driver", "DaemonSet", "gpu-operator", serviceAccountName="nvidia-driver"),
        owned("validator", "Pod", "gpu-operator", serviceAccountName="nvidia-operator-validator"),
        # Unlike an agent, it chooses GPU nodes.
        owned("chooses", "DaemonSet", nodeSelector={"nvidia.com/gpu.present": "true"}),
    ]
    (warning,) = audit([*pods, node("gpus", 8), node("cpus", 0)])["remarks"]
    assert warning["level"] == "warning"
    assert warning["message"] == (
        "namespace ml: 4 privileged running pods on node gpus can reach every GPU there and "
        "requested none; whether they use any is not known: deployment/docker (2), "
        "daemonset/agent, pod/helped"
    )
    # Most privileged pods are on nodes without GPUs.
    assert audit(pods)["remarks"] == []


def test_a_node_whose_cards_a_driver_gives_by_claims_has_gpus_too(audit: Audit) -> None:
    """It offers no resource, and so its labels say it."""
    labelled = node("gpus", 0)
    labelled["metadata"]["labels"] = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    (remark,) = audit([pod("thief", node="gpus"), labelled, node("cpus", 0)])["remarks"]
    text = "namespace ml: 1 running pod on node gpus can use GPUs that nobody requested: pod/thief"
    assert remark["message"] == text


def test_of_a_pod_that_does_not_say_its_node_none_is_named(audit: Audit) -> None:
    (remark,) = audit([pod("thief") | {"status": {"phase": "Running"}}])["remarks"]
    text = "namespace ml: 1 running pod can use GPUs that nobody requested: pod/thief"
    assert remark["message"] == text


def test_a_pod_that_only_runs_on_a_gpu_node_is_found_and_not_said_to_use_gpus(
    audit: Audit, tmp_path: Path
) -> None:
    rule = "gpu-node-without-request"
    policy = {"rules": {rule: {"action": "deny"}}}
    file = tmp_path / "policy.yaml"
    file.write_text(json.dumps({"apiVersion": "gpuward.io/v1", "kind": "Policy", **policy}))
    found = audit([pod("web", node="gpus", env=[]), node("gpus", 8)], f"--policy={file}")
    (finding,) = found["findings"]
    assert finding["rule"] == rule
    assert "can use GPUs" not in str(found["remarks"])
    assert 'runs on the node "gpus", which has "nvidia.com/gpu"' in finding["message"]
    elsewhere = [pod("web", node="cpus", env=[]), node("cpus", 0)]
    assert audit(elsewhere, f"--policy={file}")["findings"] == []


def test_pods_are_told_by_namespace_and_owner_and_not_by_node(audit: Audit) -> None:
    """However many nodes and namespaces there are, a reader sees who it is."""
    pods = [pod(f"web-5d-{n}", node=f"n{n % 90}", owner="web-5d") for n in range(900)]
    for number in range(60):
        lone = pod(f"lone-{number}", node="n1")
        lone["metadata"]["namespace"] = f"team-{number:02}"
        pods.append(lone)
    nodes = [node(f"n{n}", 8) for n in range(90)]
    remarks = [remark["message"] for remark in audit([*pods, *nodes])["remarks"]]
    assert len(remarks) == 21
    what = "can use GPUs that nobody requested"
    assert remarks[0] == (
        f"namespace ml: 900 running pods on 90 nodes {what}: deployment/web (900)"
    )
    assert remarks[1] == f"namespace team-00: 1 running pod on node n1 {what}: pod/lone-0"
    assert remarks[-1] == f"41 more namespaces: 41 running pods {what}"


def test_errors_that_no_mode_refuses_are_told_apart(audit: Audit) -> None:
    homes = {"ml": "warn", "strict": "deny", "quiet": "off"}
    objects = []
    for name, mode in homes.items():
        metadata = {"name": name, "labels": {"gpuward.io/mode": mode}}
        objects.append({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        made = pod(f"of-{name}")
        made["metadata"]["namespace"] = name
        objects.append(made)
    assert not [r for r in audit(objects)["remarks"] if "nothing is refused" in r["message"]]
    options = RegistrationOptions(default=Action.WARN)
    objects += configurations("gpuward", lambda path: {"url": f"https://x{path}"}, options)
    (remark,) = (r for r in audit(objects)["remarks"] if "nothing is refused" in r["message"])
    modes = "ml (warn), quiet (not sent to gpuward)"
    message = f"2 of 3 errors in namespaces where nothing is refused: {modes}"
    assert (remark["level"], remark["message"]) == ("note", message)


def test_pods_that_must_not_share_the_cards_of_a_node_are_named(audit: Audit) -> None:
    memory = {"aliyun.com/gpu-mem": 4}
    power = {**memory, "aliyun.com/gpu-core.percentage": 30}

    def share(
        name: str, limits: dict[str, int], node: str, phase: str = "Running"
    ) -> dict[str, Any]:
        made = pod(name, node=node, resources={"limits": limits}, env=[])
        made["status"] = {"phase": phase}
        return made

    pods = [
        share("power", power, "both"),
        share("memory", memory, "both"),
        share("more-memory", memory, "memory-only"),
        share("done", power, "memory-only", "Succeeded"),
        share("waits", power, "", "Pending"),
        share("more-power", power, "power-only"),
    ]
    (remark,) = audit(pods)["remarks"]
    assert remark["level"] == "warning"
    assert remark["message"] == (
        "node both: pods that ask for aliyun.com/gpu-core.percentage and pods that ask for "
        "aliyun.com/gpu-mem alone run beside each other, which ACK does not support: "
        "Pod ml/power; Pod ml/memory"
    )


def test_devices_that_several_have_are_named(audit: Audit) -> None:
    def given(name: str, device: str, phase: str = "Running") -> dict[str, Any]:
        resources = [{"resourceID": device, "health": "Healthy"}]
        allocated = [{"name": "nvidia.com/gpu", "resources": resources}]
        made = pod(name, node="gpus", resources={"limits": {"nvidia.com/gpu": 1}}, env=[])
        container = {"name": "main", "allocatedResourcesStatus": allocated}
        made["status"] = {"phase": phase, "containerStatuses": [container]}
        return made

    def allocated(name: str, **more: Any) -> dict[str, Any]:
        result = {"driver": "gpu.nvidia.com", "pool": "gpus", "device": "gpu-0", **more}
        return {
            **claim(name, "ml"),
            "status": {"allocation": {"devices": {"results": [result]}}},
        }

    pods = [given("a", "GPU-1"), given("b", "GPU-1"), given("c", "GPU-2")]
    ended = given("d", "GPU-2", "Succeeded")
    claims = [allocated("one"), allocated("two"), allocated("watches", adminAccess=True)]
    remarks = [remark["message"] for remark in audit([*pods, ended, *claims])["remarks"]]
    assert remarks == [
        f"{who} have the same device {device}: gpuward doctor says what to do"
        for who, device in (
            ("claim ml/one, claim ml/two", "gpu-0 of gpus as gpu.nvidia.com"),
            ("pod ml/a, pod ml/b", "GPU-1 of gpus as nvidia.com/gpu"),
        )
    ]


def test_what_mode_deny_would_refuse_is_told_apart(audit: Audit) -> None:
    fixable = pod("fixable", env=[], resources={"limits": {"nvidia.com/gpu": "1000m"}})
    fixable["spec"]["containers"][0]["resources"] = {"requests": {"nvidia.com/gpu": 1}}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}}
    namespace["metadata"] = {"name": "ml", "labels": {"gpuward.io/mode": "deny"}}
    system = pod("system")
    system["metadata"]["namespace"] = "kube-system"
    labelled = json.loads(json.dumps(namespace | {"metadata": {"name": "kube-system"}}))
    labelled["metadata"]["labels"] = {"gpuward.io/mode": "deny"}
    spared = pod("spared")
    spared["metadata"]["namespace"] = "excluded"
    labels = {"gpuward.io/mode": "deny"}
    excluded = namespace | {"metadata": {"name": "excluded", "labels": labels}}
    removable = pod("removable", resources={"limits": {"nvidia.com/gpu": 1}})
    objects = [pod("passed"), fixable, removable, namespace, system, labelled, spared, excluded]
    unknown = audit(objects, "--refused-by", "webhook")
    assert {f["name"] for f in unknown["findings"]} == {"passed", "spared"}
    assert unknown["remarks"][0]["message"].startswith("no webhook of gpuward is registered")
    options = RegistrationOptions(default=Action.WARN, excluded_namespaces=("excluded",))
    objects += configurations("gpuward", lambda path: {"url": f"https://x{path}"}, options)
    everything, refused = audit(objects), audit(objects, "--refused-by", "webhook")
    names = {"passed", "fixable", "removable", "system", "spared"}
    assert {f["name"] for f in everything["findings"]} == names
    assert {f["name"] for f in refused["findings"]} == {"passed"}
    assert {f["level"] for f in refused["findings"]} == {"error"}
    assumed, remark = refused["remarks"]
    assert assumed["level"] == "note"
    what = "1 namespace not audited, as the registered webhooks exclude them: excluded"
    assert assumed["message"] == what
    assert remark["message"].startswith("namespace ml: 1 pod would be refused now: created before")
    assert remark["message"].endswith(": pod/passed")
    # Exported policies fix nothing; the other pod API servers refuse before they ask them.
    in_process = audit(objects, "--refused-by", "policies")
    assert {f["name"] for f in in_process["findings"]} == {"passed", "removable"}


def test_what_the_webhook_is_sent_besides_pods_it_would_refuse(
    audit: Audit, tmp_path: Path
) -> None:
    limit = {"type": "Container", "default": {"nvidia.com/gpu": 1}}
    limits = {"apiVersion": "v1", "kind": "LimitRange", "spec": {"limits": [limit]}}
    limits["metadata"] = {"name": "gives-gpus", "namespace": "ml"}
    file = tmp_path / "policy.yaml"
    rules = {"limit-range-gpu": {"action": "deny"}}
    file.write_text(json.dumps({"apiVersion": "gpuward.io/v1", "kind": "Policy", "rules": rules}))
    report = audit([limits], "--refused-by", "webhook", f"--policy={file}")
    assert [f["name"] for f in report["findings"]] == ["gives-gpus"]
    # Which is not about pods.
    assert audit([limits], "--refused-by", "policies", f"--policy={file}")["findings"] == []


def test_keys_of_a_secret_are_refused_by_exported_policies_alone(
    audit: Audit, tmp_path: Path
) -> None:
    metadata = {"name": "credentials", "namespace": "ml"}
    data = {"NVIDIA_VISIBLE_DEVICES": "dG9wIHNlY3JldA=="}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}
    file = tmp_path / "policy.yaml"
    rules = {"visible-devices-key": {"action": "deny"}}
    file.write_text(json.dumps({"apiVersion": "gpuward.io/v1", "kind": "Policy", "rules": rules}))
    policy = f"--policy={file}"
    for refuser, names in (("policies", ["credentials"]), ("webhook", [])):
        report = audit([secret], "--refused-by", refuser, policy)
        assert [f["name"] for f in report["findings"]] == names
    assert "dG9wIHNlY3JldA" not in json.dumps(audit([secret], policy))


def test_the_mode_of_a_namespace_is_that_of_the_registered_webhook(audit: Audit) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}}
    options = RegistrationOptions(default=Action.DENY)
    registered = configurations("gpuward", lambda path: {"url": f"https://x{path}"}, options)
    for known, count in (((), 0), (registered, 1)):
        remarks = audit([pod("passed"), namespace, *known])["remarks"]
        assert len([r for r in remarks if "would be refused now" in r["message"]]) == count


def cluster_queue(name: str) -> dict[str, Any]:
    quotas = [{"name": "nvidia.com/gpu", "nominalQuota": "500m"}]
    group = {
        "coveredResources": ["nvidia.com/gpu"],
        "flavors": [{"name": "a", "resources": quotas}],
    }
    return {"metadata": {"name": name}, "spec": {"resourceGroups": [group]}}


def marked_node(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"ack.node.gpu.schedule": "cGPU"}}}


def flavor_of_mps_nodes(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"nodeLabels": {"nvidia.com/mps.capable": "yes"}}}


KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
WITH_FACTS: dict[str, tuple[str, Callable[[str], dict[str, Any]], str]] = {
    "Node": ("/api/v1/nodes", marked_node, "unknown-node-mode"),
    "ClusterQueue": (f"{KUEUE}/clusterqueues", cluster_queue, "queue-fraction"),
    "ResourceFlavor": (f"{KUEUE}/resourceflavors", flavor_of_mps_nodes, "unknown-node-mode"),
}


@pytest.mark.parametrize("kind", WITH_FACTS)
def test_what_is_both_a_fact_and_evaluated_is_listed_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    path, make_object, rule = WITH_FACTS[kind]
    made: list[int] = []

    def make(number: int) -> dict[str, Any]:
        made.append(number)
        return make_object(f"n{number}")

    with paged_server({path: Listed(2, make, kind, is_namespaced=False)}) as served:
        main(["--kubeconfig", served.kubeconfig(tmp_path), "--isolated", "-o", "json"])
    report = json.loads(capsys.readouterr().out)
    assert {(f["rule"], f["name"]) for f in report["findings"]} == {(rule, "n0"), (rule, "n1")}
    assert made == [0, 1]


@pytest.mark.parametrize(
    "value",
    [
        False,
        True,
        None,
        0,
        -(2**31),
        2**200,
        1e-300,
        "",
        "\x00" * 9,
        "\ud800" * 9,
        "\U0001f600" * 9,
    ],
)
def test_no_json_is_longer_than_is_assumed_of_an_object(value: Any) -> None:
    raw = {"apiVersion": "v1", "kind": "Pod", "spec": [value] * 500 + [{str(value): value}]}
    size = evaluation.MAX_JSON_PER_BYTE * len(marshal.dumps(raw, MARSHAL_VERSION))
    assert len(json.dumps(raw)) <= size


class UnknownInventory(Inventory):
    """Claims to know objects of every kind, and fails when a rule looks for one."""

    def __init__(self) -> None:
        super().__init__({kind: {} for kind in RECORD_TYPES})

    def _in(self, kind: type, namespace: str | None) -> Mapping[str, Any]:
        raise AssertionError(f"a rule reads {kind.__name__} of {namespace}")


def test_no_rule_about_what_is_evaluated_with_the_facts_needs_them() -> None:
    known = {kind for _, kind in EVALUATED_WITH_FACTS}
    assert known == WITH_FACTS.keys()
    chosen = [case for case in cases() if case.manifest.get("kind") in known]
    assert {case.manifest["kind"] for case in chosen} == known
    for case in chosen:
        context = case.context._replace(inventory=UnknownInventory())
        assert check(case.manifest, case.rules, context).failures == [], case.name
    assert evaluation.NOT_SENT >= EVALUATED_WITH_FACTS, "facts say of which namespaces it is sent"


def test_kinds_that_were_not_known_with_the_facts_count_as_not_evaluated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise the earlier reports about them would be deleted."""
    queues = Listed(1, lambda _: cluster_queue("research"), "ClusterQueue", is_namespaced=False)
    listed = {"/api/v1/pods": Listed(0, lambda _: {}), f"{KUEUE}/clusterqueues": queues}
    with paged_server(listed) as served:
        page = served.page

        def refuse_queues(path: str, query: Mapping[str, str]) -> bytes | None:
            if path == f"{KUEUE}/clusterqueues":
                refused = Fault(403, body={"message": "no"})
                served.faults = {len(served.requests) - 1: refused}
            return page(path, query)

        served.page = refuse_queues  # type: ignore[method-assign]  # one resource alone
        main(["--kubeconfig", served.kubeconfig(tmp_path), "--isolated", "--output=json"])
    report = json.loads(capsys.readouterr().out)
    (failed,) = report["not_evaluated"]
    assert failed["message"].startswith("cannot list clusterqueues.kueue.x-k8s.io: ")


def test_limit_ranges_of_a_cluster_are_evaluated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limit = {"type": "Container", "default": {"nvidia.com/gpu": 1}}
    limits = {"metadata": {"name": "gives-gpus", "namespace": "ml"}, "spec": {"limits": [limit]}}
    with paged_server({"/api/v1/limitranges": Listed(1, lambda _: limits, "LimitRange")}) as served:
        main(["--kubeconfig", served.kubeconfig(tmp_path), "--isolated", "--output=json"])
    report = json.loads(capsys.readouterr().out)
    assert [f["rule"] for f in report["findings"]] == ["limit-range-gpu"]


@pytest.mark.parametrize(
    ("covered", "expected"),
    [
        (None, {"quota-without-gpu"}),
        ("cpu", {"quota-without-gpu", "queue-without-resource"}),
        ("nvidia.com/gpu", set()),
    ],
)
def test_the_queues_of_a_cluster_are_known_if_it_has_kueue(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    covered: str | None,
    expected: set[str],
) -> None:
    node = {"metadata": {"name": "n"}, "status": {"allocatable": {"nvidia.com/gpu": "8"}}}
    quota = {"metadata": {"name": "q", "namespace": "ml"}, "spec": {"hard": {"cpu": "4"}}}
    local = {"metadata": {"name": "team", "namespace": "ml"}, "spec": {"clusterQueue": "research"}}
    groups = [{"coveredResources": [covered], "flavors": []}]
    queue = {"metadata": {"name": "research"}, "spec": {"resourceGroups": groups}}
    labels = {"kueue.x-k8s.io/queue-name": "team"}
    container = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    metadata = {"name": "p", "namespace": "ml", "labels": labels}
    waiting = {"metadata": metadata, "spec": {"containers": [container]}}
    listed = {
        "/api/v1/nodes": Listed(1, lambda _: node, "Node"),
        "/api/v1/resourcequotas": Listed(1, lambda _: quota, "ResourceQuota"),
        "/api/v1/pods": Listed(1, lambda _: waiting),
    }
    if covered:
        listed[f"{KUEUE}/clusterqueues"] = Listed(1, lambda _: queue, "ClusterQueue")
        listed[f"{KUEUE}/localqueues"] = Listed(1, lambda _: local, "LocalQueue")
    with paged_server(listed) as served:
        options = ["--isolated", "--output=json", "--notes"]
        assert main(["--kubeconfig", served.kubeconfig(tmp_path), *options]) == 0
    report = json.loads(capsys.readouterr().out)
    found = {f["rule"] for f in report["findings"]}
    assert found & {"quota-without-gpu", "queue-without-resource"} == expected
    assert (report["not_evaluated"], report["remarks"]) == ([], [])


@pytest.mark.parametrize(
    ("queue", "node", "said"),
    [
        ("vision", "", 'the limit of the queue "vision" of the pod is 1 GPU'),
        ("research", "", 'is the parent of the queue "vision"'),
        ("billing", "", 'the queue "billing" of the pod does not exist'),
        ("billing", "gpu-1", ""),
    ],
)
def test_the_queues_of_kai_are_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], queue: str, node: str, said: str
) -> None:
    spec = {
        "schedulerName": "kai-scheduler",
        "containers": [
            {
                "name": "c",
                "image": "example.com/c:1",
                "resources": {"limits": {"nvidia.com/gpu": 2}},
            }
        ],
    }
    metadata = {
        "name": "train",
        "namespace": "ml",
        "uid": "1",
        "labels": {"kai.scheduler/queue": queue},
    }
    queues = (
        {"metadata": {"name": "research"}, "spec": {"resources": {"gpu": {"limit": -1}}}},
        {
            "metadata": {"name": "vision"},
            "spec": {"parentQueue": "research", "resources": {"gpu": {"limit": 1}}},
        },
    )
    listed = {
        "/api/v1/pods": Listed(1, lambda _: {"metadata": metadata, **_on(spec, node)}),
        "/apis/scheduling.run.ai/v2/queues": Listed(
            len(queues), lambda number: queues[number], "Queue", is_namespaced=False
        ),
    }
    with paged_server(listed) as served:
        main(["--kubeconfig", served.kubeconfig(tmp_path), "--isolated", "--output=json"])
    report = json.loads(capsys.readouterr().out)
    found = [f["message"] for f in report["findings"] if f["rule"] == "unusable-kai-queue"]
    assert [said in message for message in found] == ([True] if said else [])
    assert report["not_evaluated"] == []


def _on(spec: dict[str, Any], node: str) -> dict[str, Any]:
    placed = {"spec": {**spec, "nodeName": node}, "status": {"phase": "Running"}}
    return placed if node else {"spec": spec, "status": {"phase": "Pending"}}


@pytest.mark.parametrize(("taint", "rules"), [("vision", ["untolerated-flavor"]), ("", [])])
def test_the_flavors_and_volcano_queues_of_a_cluster_are_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], taint: str, rules: list[str]
) -> None:
    taints = [{"key": "team", "value": taint, "effect": "NoSchedule"}] if taint else []
    flavor = {"metadata": {"name": "a10"}, "spec": {"nodeTaints": taints}}
    group = {"coveredResources": ["nvidia.com/gpu"], "flavors": [{"name": "a10"}]}
    queue = {"metadata": {"name": "research"}, "spec": {"resourceGroups": [group]}}
    local = {"metadata": {"name": "team", "namespace": "ml"}, "spec": {"clusterQueue": "research"}}
    resources = {"limits": {"nvidia.com/gpu": 2}}
    container = {"name": "c", "image": "example.com/c:1", "resources": resources}
    labels = {"kueue.x-k8s.io/queue-name": "team"}
    gated = {
        "metadata": {"name": "p", "namespace": "ml", "labels": labels},
        "spec": {
            "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}],
            "containers": [container],
        },
    }
    task = {"replicas": 2, "template": {"spec": {"containers": [container]}}}
    job = {
        "metadata": {"name": "train", "namespace": "ml"},
        "spec": {"queue": "small", "tasks": [task]},
    }
    small = {"metadata": {"name": "small"}, "spec": {"capability": {"nvidia.com/gpu": 3}}}
    volcano = "/apis/scheduling.volcano.sh/v1beta1/queues"
    listed = {
        "/api/v1/pods": Listed(1, lambda _: gated),
        f"{KUEUE}/clusterqueues": Listed(1, lambda _: queue, "ClusterQueue"),
        f"{KUEUE}/localqueues": Listed(1, lambda _: local, "LocalQueue"),
        f"{KUEUE}/resourceflavors": Listed(
            1, lambda _: flavor, "ResourceFlavor", is_namespaced=False
        ),
        volcano: Listed(1, lambda _: small, "Queue", is_namespaced=False),
        "/apis/batch.volcano.sh/v1alpha1/jobs": Listed(1, lambda _: job, "Job"),
    }
    with paged_server(listed) as served:
        main(["--kubeconfig", served.kubeconfig(tmp_path), "--isolated", "--output=json"])
    report = json.loads(capsys.readouterr().out)
    found = [f["rule"] for f in report["findings"]]
    assert found == ["quota-exceeded", *rules]
    assert report["not_evaluated"] == []


QUEUE_KINDS = {"ClusterQueue": "clusterqueues", "Cohort": "cohorts"}


@pytest.mark.parametrize("namespace", [None, "ml"])
def test_the_queues_and_flavors_of_a_cluster_are_evaluated_unless_one_namespace_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], namespace: str | None
) -> None:
    quotas: list[dict[str, Any]] = [
        {"name": "nvidia.com/gpu", "nominalQuota": "500m"},
        {"name": "nvidia.com/gpus", "nominalQuota": 8},
    ]
    covered = [quota["name"] for quota in quotas]
    group = {"coveredResources": covered, "flavors": [{"name": "a10", "resources": quotas}]}
    queue = {"metadata": {"name": "research"}, "spec": {"resourceGroups": [group]}}
    labels = {"nvidia.com/mps.capable": "yes"}
    flavor = {"metadata": {"name": "a10"}, "spec": {"nodeLabels": labels}}
    pods = Listed(0, lambda _: {})
    listed = {"/api/v1/pods": pods, "/api/v1/namespaces/ml/pods": pods}
    for kind, name in QUEUE_KINDS.items():
        listed[f"{KUEUE}/{name}"] = Listed(1, lambda _: queue, kind, is_namespaced=False)
    flavors = Listed(1, lambda _: flavor, "ResourceFlavor", is_namespaced=False)
    listed[f"{KUEUE}/resourceflavors"] = flavors
    with paged_server(listed) as served:
        options = ["--isolated", "--output=json", *(["-n", namespace] if namespace else [])]
        assert main(["--kubeconfig", served.kubeconfig(tmp_path), *options]) == 0
    report = json.loads(capsys.readouterr().out)
    found = sorted((f["rule"], *f["owner"].values()) for f in report["findings"])
    expected = [
        ("queue-fraction", "ClusterQueue", "research"),
        ("queue-fraction", "Cohort", "research"),
        ("unknown-node-mode", "ResourceFlavor", "a10"),
        ("unknown-queue-resource", "ClusterQueue", "research"),
        ("unknown-queue-resource", "Cohort", "research"),
    ]
    assert (found, report["not_evaluated"]) == ([] if namespace else expected, [])


def test_kinds_that_their_group_does_not_have_in_its_preferred_version_are_evaluated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Earlier releases of Kueue have Cohorts only in v1alpha1, and KServe its ServingRuntimes."""
    queue = cluster_queue("research")
    container = {"name": "main", "image": "example/x", "env": [BYPASS]}
    runtime = {"metadata": {"name": "vllm", "namespace": "ml"}, "spec": {"containers": [container]}}
    kueue, kserve = "/apis/kueue.x-k8s.io", "/apis/serving.kserve.io"
    none = Listed(0, lambda _: {})
    listed = {
        f"{kueue}/v1beta1/clusterqueues": Listed(1, lambda _: queue, "ClusterQueue"),
        f"{kueue}/v1alpha1/cohorts": Listed(1, lambda _: queue, "Cohort", is_namespaced=False),
        f"{kserve}/v1beta1/inferenceservices": none._replace(kind="InferenceService"),
        f"{kserve}/v1alpha1/servingruntimes": Listed(1, lambda _: runtime, "ServingRuntime"),
    }
    with paged_server(listed) as served:
        main(["--kubeconfig", served.kubeconfig(tmp_path), "--isolated", "--output=json"])
    report = json.loads(capsys.readouterr().out)
    assert {(f["rule"], f["kind"]) for f in report["findings"]} == {
        ("queue-fraction", "ClusterQueue"),
        ("queue-fraction", "Cohort"),
        ("visible-devices-env", "ServingRuntime"),
    }


def test_a_file_that_cannot_be_read_is_reported_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("a:\n\tb: 1\n")
    assert main(["--isolated", "-f", str(broken)]) == 3
    captured = capsys.readouterr()
    assert (captured.out + captured.err).count(f"{broken}:2:1: a tab, where") == 1


@pytest.mark.parametrize(("options", "rules"), [((), ["unknown-node-mode"]), (("-n", "ml"), [])])
def test_flavors_in_a_file_are_not_evaluated_either_for_one_namespace(
    audit: Audit, options: tuple[str, ...], rules: list[str]
) -> None:
    head = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ResourceFlavor"}
    spec = {"nodeLabels": {"nvidia.com/mps.capable": "yes"}}
    report = audit([{**head, "metadata": {"name": "a10"}, "spec": spec}], *options)
    assert [finding["rule"] for finding in report["findings"]] == rules


def test_what_gpu_exceptions_accept_is_no_finding(audit: Audit, tmp_path: Path) -> None:
    today = datetime.datetime.now(tz=datetime.UTC).date()

    def exception(name: str, days: int) -> dict[str, Any]:
        spec = {"rules": ["visible-devices-env"], "match": {"name": [name]}, "reason": "a trial"}
        spec["expires"] = f"{today + datetime.timedelta(days=days)}"
        metadata = {"name": name, "namespace": "ml", "creationTimestamp": f"{today}T00:00:00Z"}
        head = {"apiVersion": "gpuward.io/v1alpha1", "kind": "GpuException"}
        return {**head, "metadata": metadata, "spec": spec}

    limits = {"rules": ["visible-devices-env"], "namespaces": ["ml"], "longestDays": 30}
    policy: dict[str, Any] = {"gpuExceptions": [limits | {"approval": "none"}]}
    policy |= {"apiVersion": "gpuward.io/v1", "kind": "Policy"}
    file = tmp_path / "policy.yaml"
    file.write_text(json.dumps(policy))
    asked = [exception("accepted", 7), exception("ended", -1), exception("too-long", 90)]
    objects = [*asked, *(pod(e["metadata"]["name"]) for e in asked), pod("other")]
    report = audit(objects, f"--policy={file}")
    assert {f["name"] for f in report["findings"]} == {"ended", "too-long", "other"}
    assert report["summary"]["excepted"] == 1
    assert {f["name"] for f in audit(objects)["findings"]} >= {"accepted"}


def test_every_report_shows_objects_without_a_file(
    audit: Audit, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    formats = ("text", "concise", "summary", "statistics", "sarif", "html", "markdown")
    files = {form: tmp_path / f"report.{form}" for form in formats}
    outputs = [f"--report={form}={file}" for form, file in files.items()]
    audit(
        [pod("notebook"), node("gpus", 1), {"kind": "Pod", "apiVersion": "v1", "spec": []}],
        *outputs,
    )
    assert audit.status == 3
    for form, file in files.items():
        text = file.read_text(encoding="utf-8")
        assert "visible-devices-env" in text
        assert "<stdin>" not in text or form == "markdown"
        assert ":0:0" not in text
        assert "notebook" in text or form == "statistics"
    assert capsys.readouterr().err == ""


def test_views_are_named_as_by_the_other_commands(
    audit: Audit, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    audit([pod("a")])
    shown = {}
    for view in ("table", "wide", "json", "yaml"):
        assert main(["-f", str(tmp_path / "objects.json"), "--isolated", "-o", view]) == 1
        shown[view] = capsys.readouterr().out
    assert shown["table"].startswith("NAMESPACE ")
    assert "help: remove the variable" in shown["wide"]
    documents = [json.loads(shown["json"]), yaml.safe_load(shown["yaml"])]
    for document in documents:
        del document["summary"]["seconds"]
    assert documents[0] == documents[1]


def test_a_namespace_that_does_not_exist_is_not_clean(audit: Audit, tmp_path: Path) -> None:
    namespaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        for name in ("default", "empty")
    ]
    objects = [pod("a"), node("gpus", 1), *namespaces]
    [missing] = audit(objects, "-n", "nosuch")["not_evaluated"]
    assert (audit.status, missing["message"]) == (3, "there is no namespace nosuch")
    # What comes after a file that cannot be read may have the Namespace.
    (tmp_path / "later.json").write_bytes(b"\x00")
    files = ["-f", str(tmp_path / "later.json")]
    messages = [each["message"] for each in audit(objects, "-n", "nosuch", *files)["not_evaluated"]]
    assert audit.status == 3
    assert messages
    assert "there is no namespace nosuch" not in messages
    # A file may have the pods of a namespace without the Namespace.
    for given, namespace, status in ((objects, "ml", 1), ([pod("a"), *namespaces], "empty", 0)):
        assert audit(given, "-n", namespace)["not_evaluated"] == []
        assert audit.status == status


def test_nothing_to_evaluate_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "objects.json"
    file.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": [pod("a")]}))
    options = ["-f", str(file), "--isolated", "-n", "nosuch"]
    assert main(options) == 0
    note = f"gpuward: note: {file}, namespace nosuch: nothing to evaluate: no Kubernetes object\n"
    assert capsys.readouterr().err == note
    assert main([*options, "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_the_tables_of_the_summary_have_rules_alone_and_remarks_are_below(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "objects.json"
    items = [pod("a", node="x"), pod("b", node="y")]
    file.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": items}))
    assert main(["-f", str(file), "--isolated", "--output=summary"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert not [line for line in lines if "remark" in line]
    (warning,) = (line for line in lines if line.startswith("warning: "))
    assert "2 running pods on 2 nodes" in warning
    assert ", 1 warning, " in lines[-1]


def test_wrong_usage_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in (
        (["--kubeconfig", "/nonexistent"], "there is no file /nonexistent; or read files with"),
        (["-f", "-", "--context", "x"], "leave --kubeconfig and --context out"),
        (["-f", "x", "--policy", "/nonexistent"], "/nonexistent"),
        (["--status-port", "0"], "--status-port is for an audit that runs as a service: add --int"),
        (["--count-namespace", "ml"], "--count-namespace is for an audit that runs as a service"),
        (["--report", "json"], "write it as FORMAT=FILE"),
        (["-o", "json", "--interval", "60"], "leave --filename, --output and --report out"),
    ):
        assert main(arguments) == 2
        assert message in capsys.readouterr().err


def test_a_time_that_is_no_number_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--interval", "soon"])
    assert "soon: expected a number of seconds" in capsys.readouterr().err


def test_a_cluster_that_does_not_answer_is_one_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not one for each of the lists that an audit reads."""
    kubeconfig = {
        "current-context": "there",
        "contexts": [{"name": "there", "context": {"cluster": "there", "user": "me"}}],
        "clusters": [{"name": "there", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "me", "user": {"token": "secret"}}],
    }
    file = tmp_path / "config"
    file.write_text(json.dumps(kubeconfig))
    assert main(["--isolated", "--kubeconfig", str(file)]) == 3
    printed = capsys.readouterr().out
    assert printed.count("no connection: connection refused") == 1
    assert "not evaluated: cannot list " in printed

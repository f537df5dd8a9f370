"""Tests of `kubectl get pods -o yaml | gpuward lint -`: what a cluster wrote is not a fault."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest

from reports.findings import RULE_BY_NAME
from rules.base.json_values import as_object
from tests.testkit.cases import Case, cases
from tests.testkit.lint_command import LintCommand

RUNNING: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "ml", "uid": "6c1f4a52-8f0e-4d53-9f57-0c1f0f5c8d11"},
    "spec": {
        "nodeName": "gpu-1",
        "schedulerName": "default-scheduler",
        "containers": [{"name": "main", "image": "example.com/main:1"}],
        "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}],
    },
    "status": {"phase": "Running"},
}
# Profile, what the pod asks for, who placed it, and what was written into the pod meanwhile.
SYSTEMS = {
    "nvidia": ("nvidia", {"nvidia.com/gpu": "1"}, "default-scheduler", {}),
    "ACK": (
        "ack",
        {"aliyun.com/gpu-mem": "3"},
        "default-scheduler",
        {
            "ALIYUN_COM_GPU_MEM_IDX": "0",
            "ALIYUN_COM_GPU_MEM_ASSIGNED": "true",
            "scheduler.framework.gpushare.allocation": '{"0":{"0":3}}',
            "gpushare.alibabacloud.com/device": "0",
        },
    ),
    "HAMi": (
        "hami",
        {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"},
        "hami-scheduler",
        {
            "hami.io/bind-phase": "success",
            "hami.io/bind-time": "1700000000",
            "hami.io/vgpu-node": "gpu-1",
            "hami.io/vgpu-time": "1700000000",
            "hami.io/vgpu-devices-allocated": "GPU-1,NVIDIA,3000,0:;",
            "hami.io/vgpu-devices-to-allocate": ";",
        },
    ),
    "Volcano": (
        "volcano",
        {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "3000"},
        "volcano",
        {
            "volcano.sh/bind-phase": "success",
            "volcano.sh/bind-time": "1700000000",
            "volcano.sh/vgpu-ids-new": "GPU-1,NVIDIA,3000,0:",
            "volcano.sh/devices-to-allocate": ":",
            "volcano.sh/vgpu-node": "gpu-1",
            "volcano.sh/vgpu-time": "1700000000",
        },
    ),
    "KAI": (
        "kai",
        {},
        "kai-scheduler",
        {
            "gpu-fraction": "0.5",
            "received-resource-type": "Fraction",
            "pod-group-name": "pg-p",
            "runai/shared-gpu-configmap": "p-abcdefg-shared-gpu",
            "runai-received-resource-type": "Fraction",
        },
    ),
}

WAITING = re.compile(r"\b(waits?|Pending)\b")
CONDITION = re.compile(r"\b(if|where|when|unless|may)\b", re.IGNORECASE)


def has_node(manifest: Any) -> bool:
    """Return whether the manifest is that of a pod which was read from a cluster, with its node."""
    metadata, spec = as_object(manifest.get("metadata")), as_object(manifest.get("spec"))
    return manifest.get("kind") == "Pod" and "uid" in metadata and bool(spec.get("nodeName"))


FOUND_WITH_NODE = [
    case for case in cases() if case.expected["findings"] and has_node(case.manifest)
]


def running(resources: dict[str, str], scheduler: str, annotations: dict[str, str]) -> Any:
    pod = copy.deepcopy(RUNNING)
    pod["metadata"]["annotations"] = annotations
    pod["spec"]["schedulerName"] = scheduler
    # The API server copies limits into requests.
    pod["spec"]["containers"][0]["resources"] = {"limits": resources, "requests": resources}
    return pod


def listed(*pods: Any) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(pods)})


@pytest.mark.parametrize("system", SYSTEMS)
def test_what_schedulers_and_binders_wrote_is_no_fault(command: LintCommand, system: str) -> None:
    profile, resources, scheduler, annotations = SYSTEMS[system]
    pod = running(resources, scheduler, annotations)
    if system == "KAI":
        config = {"name": "p-abcdefg-shared-gpu-0", "key": "NVIDIA_VISIBLE_DEVICES"}
        variable = {"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"configMapKeyRef": config}}
        pod["spec"]["containers"][0]["env"] = [variable]
    done = command.json("--profile", profile, "-", stdin=listed(pod))
    assert done.found == {}
    assert done.status == 0
    assert done.report["summary"]["pods"] == 1


def test_a_pending_pod_is_no_new_one(command: LintCommand) -> None:
    _, resources, scheduler, annotations = SYSTEMS["ACK"]
    pod = running(resources, scheduler, annotations)
    del pod["spec"]["nodeName"]
    done = command.json("--profile", "ack", "-", stdin=json.dumps(pod))
    assert done.status == 0
    assert done.found == {}


@pytest.mark.parametrize("missing", ["uid", "nodeName and status"])
def test_a_manifest_is_no_running_pod(command: LintCommand, missing: str) -> None:
    _, resources, scheduler, annotations = SYSTEMS["ACK"]
    pod = running(resources, scheduler, annotations)
    if missing == "uid":
        del pod["metadata"]["uid"]
    else:
        del pod["spec"]["nodeName"], pod["status"]
    done = command.json("--profile", "ack", "-", stdin=json.dumps(pod))
    assert done.found["reserved-gpushare-keys"] == "error"
    assert done.status == 1


def test_the_actual_scheduler_is_the_fault(command: LintCommand) -> None:
    profile, resources, _, annotations = SYSTEMS["HAMi"]
    pod = running(resources, "default-scheduler", annotations)
    done = command.json("--profile", profile, "-", stdin=listed(pod))
    assert done.found == {"scheduler-mismatch": "warning"}


@pytest.mark.parametrize("case", FOUND_WITH_NODE, ids=lambda case: case.name)
def test_no_reason_says_of_a_pod_with_a_node_that_it_waits_for_one(case: Case) -> None:
    """Text reports print the first paragraph below each finding."""
    reason = RULE_BY_NAME[case.rule].documentation["Why it matters"].split("\n\n")[0]
    sentences = re.split(r"(?<=\.)\s", reason)
    assert [s for s in sentences if WAITING.search(s) and not CONDITION.search(s)] == []


def test_a_bypass_in_a_running_pod_is_an_error(command: LintCommand) -> None:
    pod = running({}, "default-scheduler", {})
    pod["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    done = command.json("-", stdin=listed(pod))
    assert done.found == {"visible-devices-env": "error"}


def test_a_running_component_is_known_by_its_owner(command: LintCommand) -> None:
    pod = running({}, "default-scheduler", {})
    pod["metadata"]["namespace"] = "gpu-operator"
    pod["spec"]["serviceAccountName"] = "nvidia-device-plugin"
    pod["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    assert command.json("-", stdin=listed(pod)).status == 1
    pod["metadata"]["ownerReferences"] = [{"kind": "DaemonSet", "name": "d", "controller": True}]
    assert command.json("-", stdin=listed(pod)).report["summary"]["components"] == 1
    del pod["metadata"]["uid"]
    done = command.json("-", stdin=listed(pod))
    assert done.status == 1, "in a file, anybody may write an owner"


def exporter(image: str, volumes: list[dict[str, Any]]) -> str:
    """The DaemonSet of dcgm-exporter in a namespace where others may create DaemonSets as well."""
    container = {
        "name": "exporter",
        "image": image,
        "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}],
        "securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}},
        "volumeMounts": [{"name": volume["name"], "mountPath": "/x"} for volume in volumes],
    }
    spec = {
        "serviceAccountName": "my-dcgm-exporter",
        "nodeSelector": {"nvidia.com/gpu.present": "true"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "containers": [container],
        "volumes": volumes,
    }
    metadata = {"name": "exporter", "namespace": "monitoring"}
    whole = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata}
    return json.dumps({**whole, "spec": {"template": {"spec": spec}}})


def test_an_exporter_among_others_is_excused_from_what_it_needs_alone(
    command: LintCommand, tmp_path: Path
) -> None:
    image = "nvcr.io/nvidia/k8s/dcgm-exporter:4.5.1-4.8.0-ubuntu22.04"
    resources = {"name": "pods", "hostPath": {"path": "/var/lib/kubelet/pod-resources"}}
    needed = exporter(image, [resources])
    assert command.json("-", stdin=needed).found == {}
    (remark,) = command.json("--notes", "-", stdin=needed).report["remarks"]
    assert "does not run visible-devices-env" in remark["message"]
    assert "it is a component of the GPU platform" in remark["message"]
    node = {"name": "node", "hostPath": {"path": "/"}}
    assert command.json("-", stdin=exporter(image, [node])).found == {"device-hostpath": "error"}
    foreign = command.json("-", stdin=exporter("example.com/dcgm-exporter:1", []))
    assert foreign.found == {"visible-devices-env": "error", "sys-admin-gpu": "error"}
    policy = tmp_path / "gpuward.yaml"
    policy.write_text("apiVersion: gpuward.io/v1\nkind: Policy\nextends: [strict]\n")
    strict = command.json("--policy", str(policy), "-", stdin=needed)
    assert {"visible-devices-env", "sys-admin-gpu"} <= strict.found.keys()


@pytest.mark.parametrize("kind", ["Pod", "Deployment", "Job"])
def test_only_agents_are_components(command: LintCommand, kind: str) -> None:
    """Admission refuses the others, because no DaemonSet creates them."""
    pod = running({}, "default-scheduler", {})
    spec = {"serviceAccountName": "nvidia-device-plugin", "containers": pod["spec"]["containers"]}
    spec["containers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    versions = {"Pod": "v1", "Deployment": "apps/v1", "DaemonSet": "apps/v1", "Job": "batch/v1"}

    def manifest(kind: str) -> str:
        inner = spec if kind == "Pod" else {"template": {"spec": spec}}
        metadata = {"name": "x", "namespace": "gpu-operator"}
        whole = {"apiVersion": versions[kind], "kind": kind, "metadata": metadata, "spec": inner}
        return json.dumps(whole)

    assert command.json("-", stdin=manifest(kind)).found == {"visible-devices-env": "error"}
    assert command.json("-", stdin=manifest("DaemonSet")).found == {}


def test_a_component_with_creators_needs_no_daemon_set(command: LintCommand) -> None:
    pod = running({"nvidia.com/gpu": "1"}, "default-scheduler", {})
    pod["metadata"] = {"name": "reservation", "namespace": "kai-resource-reservation"}
    pod["spec"]["serviceAccountName"] = "kai-resource-reservation"
    done = command.json("--profile", "kai", "-", stdin=json.dumps(pod))
    assert done.report["summary"]["components"] == 1


@pytest.mark.parametrize(
    "namespace", ["FILLED BY THE OPERATOR", "{{ .Release.Namespace }}", "x" * 64]
)
def test_an_impossible_namespace_is_an_unknown_one(command: LintCommand, namespace: str) -> None:
    metadata = {"name": "plugin", "namespace": namespace}
    env = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    container = {"name": "main", "image": "example.com/main:1", "env": env}
    spec = {"serviceAccountName": "nvidia-device-plugin", "containers": [container]}
    manifest = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata}
    text = json.dumps({**manifest, "spec": {"template": {"spec": spec}}})
    assert command.json("-", stdin=text).status == 1
    assert command.json("-n", "ml", "-", stdin=text).report["findings"][0]["namespace"] == "ml"
    done = command.json("-n", "gpu-operator", "-", stdin=text)
    assert done.report["summary"]["components"] == 1

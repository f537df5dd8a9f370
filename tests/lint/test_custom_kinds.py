"""Tests of custom kinds: their GPUs are evaluated, or a note says that they are not."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from lint.gpu_fields_outside_pods import gpu_fields_outside_pods
from rules.profile.profile import Profile
from tests.testkit.lint_command import LintCommand

ALL = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
HALF = {"limits": {"nvidia.com/gpu": "0.5"}}
WORKER = {"type": "server", "image": "a", "resources": HALF}
EVALUATED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "ModelBooster": (
        "workload.serving.volcano.sh/v1alpha1",
        "ModelBooster",
        {"backends": [{"name": "b", "env": [ALL], "workers": [WORKER]}]},
    ),
    "NIMPipeline": (
        "apps.nvidia.com/v1alpha1",
        "NIMPipeline",
        {"services": [{"name": "a", "spec": {"env": [ALL], "resources": HALF}}]},
    ),
    "OME": (
        "ome.io/v1beta1",
        "ClusterServingRuntime",
        {"engineConfig": {"leader": {"runner": {"env": [ALL], "resources": HALF}}}},
    ),
    "KFServing": (
        "serving.kubeflow.org/v1alpha2",
        "InferenceService",
        {"default": {"predictor": {"custom": {"container": {"env": [ALL], "resources": HALF}}}}},
    ),
    "KFServing v1beta1": (
        "serving.kubeflow.org/v1beta1",
        "InferenceService",
        {"predictor": {"tensorflow": {"env": [ALL], "resources": HALF}}},
    ),
    "Dynamo": (
        "nvidia.com/v1beta1",
        "DynamoGraphDeployment",
        {
            "components": [
                {"podTemplate": {"spec": {"containers": [{"env": [ALL], "resources": HALF}]}}}
            ]
        },
    ),
    "Dynamo v1alpha1": (
        "nvidia.com/v1alpha1",
        "DynamoGraphDeployment",
        {
            "services": {
                "Frontend": {"extraPodSpec": {"mainContainer": {"env": [ALL]}}},
                "Worker": {"resources": {"limits": {"gpu": "0.5"}}, "extraPodSpec": {}},
            }
        },
    ),
    "Dynamo v1alpha1, variables of the service": (
        "nvidia.com/v1alpha1",
        "DynamoComponentDeployment",
        {"envs": [ALL], "resources": {"limits": {"gpu": "0.5"}}},
    ),
}
UNREAD: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "llmaz": (
        "llmaz.io/v1alpha1",
        "OpenModel",
        {"inferenceConfig": {"flavors": [{"name": "t4", "limits": {"nvidia.com/gpu": 1}}]}},
        "nvidia.com/gpu",
    ),
    "Playground": (
        "inference.llmaz.io/v1alpha1",
        "Playground",
        {"backendRuntimeConfig": {"resources": {"limits": {"nvidia.com/gpu": 1}}}},
        "nvidia.com/gpu",
    ),
    "vLLM production stack": (
        "production-stack.vllm.ai/v1alpha1",
        "VLLMRuntime",
        {"deploymentConfig": {"resources": {"gpu": "1", "gpuType": "nvidia.com/gpu"}}},
        "gpu",
    ),
    "KubeVirt": (
        "kubevirt.io/v1",
        "VirtualMachineInstance",
        {"domain": {"devices": {"gpus": [{"name": "a", "deviceName": "nvidia.com/GP102GL"}]}}},
        "nvidia.com/GP102GL",
    ),
    "a share": (
        "example.com/v1",
        "Model",
        {"ask": {"aliyun.com/gpu-mem": 3}},
        "aliyun.com/gpu-mem",
    ),
}
NO_REQUEST: dict[str, tuple[str, str, dict[str, Any]]] = {
    "a pool": ("karpenter.sh/v1", "NodePool", {"limits": {"nvidia.com/gpu": 8}}),
    "a pool of eksctl": (
        "eksctl.io/v1alpha5",
        "ClusterConfig",
        {"managedNodeGroups": [{"labels": {"nvidia.com/gpu": "true"}}]},
    ),
    "a pool of Crossplane": (
        "eks.aws.upbound.io/v1beta1",
        "NodeGroup",
        {"forProvider": {"labels": {"nvidia.com/gpu": "true"}}},
    ),
    "a queue": (
        "scheduling.volcano.sh/v1beta1",
        "Queue",
        {"capability": {"nvidia.com/gpu": 8}},
    ),
    "a name as value": ("example.com/v1", "Model", {"resource": "nvidia.com/gpu", "gpu": 1}),
    "another device of a virtual machine": (
        "kubevirt.io/v1",
        "VirtualMachineInstance",
        {"domain": {"devices": {"hostDevices": [{"deviceName": "example.com/nic"}]}}},
    ),
    "a pod": (
        "example.com/v1",
        "Model",
        {"template": {"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": 1}}}]}}},
    ),
}


def manifest(version: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    # What a controller saw is no request.
    status = {"allocated": {"nvidia.com/gpu": 1}}
    metadata = {"name": "x"}
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
        "status": status,
    }


@pytest.mark.parametrize("kind", EVALUATED)
def test_the_pods_of_known_kinds_are_evaluated(command: LintCommand, kind: str) -> None:
    done = command.json("-", stdin=json.dumps(manifest(*EVALUATED[kind])))
    assert done.found["fractional-gpu"] == "error"
    assert done.found["visible-devices-env"] == "error"
    assert done.report["remarks"] == []


@pytest.mark.parametrize("kind", UNREAD)
def test_a_request_without_a_pod_is_a_note(command: LintCommand, kind: str) -> None:
    version, custom_kind, spec, name = UNREAD[kind]
    items = [manifest(version, custom_kind, spec)]
    text = json.dumps({"kind": "List", "apiVersion": "v1", "items": items})
    done = command.json("-", stdin=text)
    assert done.status == 0
    (remark,) = done.report["remarks"]
    assert remark["level"] == "note"
    assert remark["message"].startswith(f'"{name}" is where gpuward finds no pod')
    assert remark["column"] > text.index(f'"{name}"')
    assert command("--fail-on", "note", "-", stdin=text).status == 1


def test_a_quota_in_a_custom_resource_is_evaluated(command: LintCommand) -> None:
    spec = {"resourceQuotaSpec": {"hard": {"requests.nvidia.com/gpu": "2"}}}
    done = command.json("-", stdin=json.dumps(manifest("kubeflow.org/v1", "Profile", spec)))
    assert (done.found, done.report["remarks"]) == ({}, [])
    spec["resourceQuotaSpec"]["hard"] = {"nvidia.com/gpu": "2"}
    done = command.json("-", stdin=json.dumps(manifest("kubeflow.org/v1", "Profile", spec)))
    assert done.found["quota-inert-key"] == "warning"


HELM_RELEASE = """\
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: server}
spec:
  values:
    env:
      NVIDIA_VISIBLE_DEVICES: all
    securityContext: {privileged: true}
    runtimeClassName: nvidia
"""
WORKFLOW = """\
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: server}
spec:
  podSpecPatch: |
    containers:
    - name: main
      env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}]
  templates:
  - name: main
    container:
      image: example.com/train:1
      command: [sh, -c, "echo $NVIDIA_VISIBLE_DEVICES"]
"""
USER = """\
apiVersion: wolf.example.com/v1
kind: User
metadata: {name: player}
spec:
  sidecar:
    env:
    - {name: NVIDIA_VISIBLE_DEVICES, value: all}
"""
PATCHED_TEMPLATE = """\
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: server}
spec:
  templates:
  - name: main
    container: {image: example.com/train:1}
    podSpecPatch: |
      containers:
      - {name: main, env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}]}
"""
SPARK = """\
apiVersion: sparkoperator.k8s.io/v1beta2
kind: SparkApplication
metadata: {name: count}
spec:
  sparkConf:
    spark.executorEnv.NVIDIA_VISIBLE_DEVICES: all
  driver: {image: example.com/spark:1}
  executor: {image: example.com/spark:1}
"""
DEVICES = """\
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: films}
spec:
  values:
    podAnnotations: {cdi.k8s.io/card: nvidia.com/gpu=all}
    persistence:
      cache: {type: hostPath, hostPath: /dev/shm}
      card: {type: hostPath, hostPath: /dev/nvidia0}
      render: {type: hostPath, hostPath: /dev/dri}
"""
TASK = """\
apiVersion: tekton.dev/v1
kind: Task
metadata: {name: films}
spec:
  script: """
PRIVILEGED = """\
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: pictures}
spec:
  values:
    image: {repository: example.com/pictures, tag: TAG}
    securityContext: {privileged: true}
    env: {VARIABLE: VALUE}
"""
CRIO = "podAnnotations: {io.kubernetes.cri-o.Devices: "
# Parts of what a chart makes have any form, also that of an object without a kind.
INJECTED = """\
metadata:
  annotations:
    mounts.nri.io/pod: |
      - {source: /data, destination: /data}
    KEY: |
      - path: /dev/nvidia0
"""
TEXT = """\
securityContext: {privileged: true}
runtimeClassName: nvidia
env: [{name: AMD_VISIBLE_DEVICES, value: all}]
devices: [/dev/kfd]
resources: {limits: {amd.com/gpu: 1}}
"""
IN_TEXT = """\
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: films}
spec:
  helm:
    FIELD: |
""" + "".join(f"      {line}" for line in TEXT.splitlines(keepends=True))
PARAMETERS = """\
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: films}
spec:
  helm:
    parameters:
    - name: main.env.HABANA_VISIBLE_DEVICES
      value: all
    - name: runtimeClassName
      value: nvidia
    - name: main.replicas
      value: "1"
"""
PATCH_IN_TEXT = """\
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: films}
spec:
  patches:
  - patch: |
      - op: add
        path: /spec/template/spec/containers/0/env/-
        value: {name: AMD_VISIBLE_DEVICES, value: all}
"""
GPU_AFFINITY = """\
    affinity:
      nodeAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms:
          - matchExpressions:
            - {key: cloud.google.com/gke-accelerator, operator: In, values: [nvidia-l4]}
"""
BUNDLE = """\
apiVersion: fleet.cattle.io/v1alpha1
kind: Bundle
metadata: {name: films}
spec:
  resources:
  - name: pod.yaml
    content: |
      apiVersion: v1
      kind: Pod
      metadata: {name: films, namespace: media}
      spec:
        containers:
        - name: main
          image: example.com/films:1
          env: [{name: HABANA_VISIBLE_DEVICES, value: all}]
"""
MANIFEST_OF_WORKFLOW = BUNDLE.replace("fleet.cattle.io", "argoproj.io").replace(
    "content", "manifest"
)


@pytest.mark.parametrize("text", [BUNDLE, MANIFEST_OF_WORKFLOW])
def test_objects_that_a_controller_applies_are_evaluated(command: LintCommand, text: str) -> None:
    command.write("given.yaml", text)
    done = command.json("given.yaml")
    places = [(f["rule"], f["line"]) for f in done.report["findings"] if f["level"] == "error"]
    assert (places, done.report["remarks"]) == ([("visible-devices-env", 15)], [])


def test_what_a_workflow_patches_is_a_note(command: LintCommand) -> None:
    text = MANIFEST_OF_WORKFLOW.replace("  - name: pod.yaml", "  - action: patch")
    command.write("given.yaml", text)
    done = command.json("given.yaml")
    assert [remark["line"] for remark in done.report["remarks"]] == [7]
    assert done.report["findings"] == []


@pytest.mark.parametrize(
    ("line", "lines"),
    [
        ("      {{inputs.parameters.more}}\n", [7]),
        ('          workingDir: "{{inputs.parameters.folder}}"\n', []),
    ],
)
def test_a_template_in_a_workflow_is_a_note_if_it_is_not_evaluated(
    command: LintCommand, line: str, lines: list[int]
) -> None:
    command.write("given.yaml", MANIFEST_OF_WORKFLOW + line)
    done = command.json("given.yaml")
    notes = [remark for remark in done.report["remarks"] if "HABANA" in remark["message"]]
    assert [remark["line"] for remark in notes] == lines


def test_many_and_large_texts_are_read_to_a_limit(command: LintCommand) -> None:
    """Not a measurement: without a limit this would take minutes."""
    given = {
        f"k{number}": TEXT + f"a{number}: [" + "[" * 50 + "1" + "]" * 51 + "\n"
        for number in range(5000)
    }
    spec = {"values": given, "large": TEXT * 3_000}
    done = command("-", stdin=json.dumps(manifest("example.com/v1", "Chart", spec)))
    assert done.status == 0


def test_blank_texts_take_no_time() -> None:
    raw = manifest("example.com/v1", "Chart", {"values": [" " * 1_000_000] * 100})
    started = time.process_time()
    assert not [*gpu_fields_outside_pods(raw, Profile("p"), ())]
    assert (
        time.process_time() - started < 20
    )  # it is minutes if the pattern looks for blanks at each place


VALUES = """\
resources: {limits: {nvidia.com/gpu: 0}}
env:
- name: NVIDIA_VISIBLE_DEVICES
  value: "0"
"""


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        ("release.yaml", HELM_RELEASE, [7, 8, 9]),
        ("task.yaml", TASK + json.dumps('printf "x\\nNVIDIA_VISIBLE_DEVICES=all" > /etc/env'), [5]),
        ("task.yaml", TASK + "docker run -eNVIDIA_VISIBLE_DEVICES=all image", [5]),
        ("task.yaml", TASK + "x " * (1 << 17) + "NVIDIA_VISIBLE_DEVICES=all", [5]),
        ("films.yaml", DEVICES, [6, 9, 10]),
        (
            "rocm.yaml",
            DEVICES.replace("nvidia0", "kfd:/dev/kfd").replace("card:", "x:"),
            [6, 9, 10],
        ),
        ("values.yaml", "devices: [/dev/dri/renderD128]\nprivileged: true\n", [1, 2]),
        ("values.yaml", "devices: [/dev/ttyUSB0, /dev/shm]\nprivileged: true\n", []),
        ("release.yaml", PRIVILEGED.replace("VARIABLE", "HIP_VISIBLE_DEVICES"), [7]),
        ("release.yaml", PRIVILEGED.replace("TAG", "rocm7"), [7]),
        ("release.yaml", PRIVILEGED.replace("example.com/pictures", "nvcr.io/nvidia/pytorch"), [7]),
        ("values.yaml", "privileged: true\nenv: [{name: ZE_AFFINITY_MASK, value: '0'}]\n", [1]),
        ("values.yaml", "privileged: true\nenv: [{name: HIP_VISIBLE_DEVICES, value: '-1'}]\n", []),
        ("release.yaml", PRIVILEGED, []),
        ("values.yaml", INJECTED.replace("KEY", "devices.gke.io/container.main"), [5]),
        ("nodes.yaml", INJECTED.replace("KEY", "mounts.nri.io/container.main"), [5]),
        ("nodes.yaml", INJECTED.replace("KEY", "io.kubernetes.cri-o.Devices"), [5]),
        ("nodes.yaml", INJECTED.replace("KEY", "example.com/devices"), []),
        ("values.yaml", CRIO + "'/dev/fuse,/dev/kvm:/dev/kvm:rw'}\n", []),
        ("values.yaml", CRIO + "'/dev/fuse,/dev/nvidiactl:/dev/nvidiactl:rw'}\n", [1]),
        ("values.yaml", "podAnnotations: {cdi-devices.nri.io: '[nvidia.com/gpu=0]'}\n", [1]),
        ("values.yaml", "podAnnotations: {cdi-devices.nri.io: '[example.com/nic=0]'}\n", []),
        ("workflow.yaml", WORKFLOW, [5]),
        ("template.yaml", PATCHED_TEMPLATE, [8]),
        ("spark.yaml", SPARK, [6]),
        ("user.yaml", USER, [7]),
        ("values-prod.yaml", VALUES, [3]),
        ("settings.yaml", VALUES, [3]),
        ("values/team.yaml", VALUES, [3]),
        ("settings.yaml", "overrides: {runtimeClassName: nvidia}\n", [1]),
        ("settings.yaml", "help: NVIDIA_VISIBLE_DEVICES hides GPUs\n", []),
        ("values.yaml", "command: NVIDIA_VISIBLE_DEVICES=all train\n", [1]),
        ("stack.yaml", "services: {a: {environment: {NVIDIA_VISIBLE_DEVICES: all}}}\n", []),
        (".github/workflows/a.yaml", "env: {NVIDIA_VISIBLE_DEVICES: all}\n", []),
        ("values.yaml", "resources: {limits: {nvidia.com/gpu: 1}}\n", []),
        ("values.yaml", "a: [", []),
        (
            "release.yaml",
            PRIVILEGED + "    nodeSelector: {cloud.google.com/gke-gpu: 'true'}\n",
            [7],
        ),
        ("release.yaml", PRIVILEGED + "    nodeSelector: {kubernetes.io/os: linux}\n", []),
        ("release.yaml", PRIVILEGED + GPU_AFFINITY, [7]),
        ("app.yaml", IN_TEXT.replace("FIELD", "values"), [6] * 4),
        ("app.yaml", IN_TEXT.partition("|")[0] + json.dumps(TEXT), [6] * 4),
        ("chart.yaml", IN_TEXT.replace("FIELD", "valuesContent"), [6] * 4),
        ("app.yaml", IN_TEXT.replace("AMD", "MY").replace("/dev/kfd", "/dev/fuse"), [6] * 2),
        ("app.yaml", PARAMETERS, [7, 9]),
        ("patch.yaml", PATCH_IN_TEXT, [6]),
        ("help.yaml", PATCH_IN_TEXT.replace("AMD", "MY"), []),
        ("release.yaml", HELM_RELEASE.replace("all", "x").replace("NVIDIA_", "MY_"), [8, 9]),
        ("release.yaml", "\n".join([*HELM_RELEASE.splitlines()[:5], "    privileged: true"]), []),
    ],
)
def test_what_shows_gpus_outside_of_pods_is_a_note_that_everybody_sees(
    command: LintCommand, name: str, text: str, lines: list[int]
) -> None:
    command.write(name, text)
    remarks = command.json(name).report["remarks"]
    assert [(r["level"], r["line"]) for r in remarks] == [("note", line) for line in lines]
    shown = command(name).out
    assert all(f"note: {name}:{line}:" in shown for line in lines)
    assert "--notes shows them" not in shown


@pytest.mark.parametrize("kind", NO_REQUEST)
def test_other_mentions_are_no_requests(command: LintCommand, kind: str) -> None:
    done = command.json("-", stdin=json.dumps(manifest(*NO_REQUEST[kind])))
    assert done.report["remarks"] == []


SHARING_VALUES = """\
devicePlugin:
  config:
    create: true
    name: time-slicing
    default: any
    data:
      any: |-
        version: v1
        flags:
          renameByDefault: true
        sharing:
          timeSlicing:
            resources:
            - name: nvidia.com/gpu
              replicas: 4
"""


def test_a_configuration_in_the_values_of_a_chart_is_evaluated(command: LintCommand) -> None:
    command.write("values-prod.yaml", SHARING_VALUES)
    command.write("settings.yaml", SHARING_VALUES)  # nothing says whose they are
    done = command.json(".")
    (found,) = done.report["findings"]
    place = found["file"], found["line"]
    assert (found["rule"], *place) == ("sharing-config", "values-prod.yaml", 7)
    shown = command("values-prod.yaml")
    assert "values of a chart" in shown.out
    assert "nothing to evaluate" not in shown.errors
    command.write("values-prod.yaml", SHARING_VALUES.replace("flags:", "x:").replace("4", "0"))
    assert command("values-prod.yaml").status == 1


def test_a_comment_suppresses_a_finding_in_the_values_of_a_chart(command: LintCommand) -> None:
    comment = "      # gpuward: ignore[sharing-config] until the operator is updated\n"
    command.write("values.yaml", SHARING_VALUES.replace("      any:", f"{comment}      any:"))
    report = command.json("values.yaml").report
    assert report["findings"] == []

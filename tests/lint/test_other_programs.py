"""Tests of objects in files of other programs: Ansible, Armada, Determined and Slurm's operator."""

from __future__ import annotations

import pytest

from tests.testkit.lint_command import LintCommand, Outcome


def found(done: Outcome) -> list[tuple[str, int, int]]:
    """The rule, the line and the column of each error and warning."""
    findings = [f for f in done.report["findings"] if f["level"] != "note"]
    return [(f["rule"], f["line"], f["column"]) for f in findings]


PLAYBOOK = """\
- hosts: localhost
  tasks:
    - name: Train
      {module}:
        state: {state}
        definition:
          apiVersion: v1
          kind: Pod
          metadata: {{name: train, namespace: "{{{{ team }}}}"}}
          spec:
            containers:
              - name: main
                image: example.com/train:1
                resources: {{limits: {{nvidia.com/gpu: 0.5}}}}
"""


@pytest.mark.parametrize("module", ["kubernetes.core.k8s", "k8s", "community.okd.k8s"])
def test_objects_that_ansible_applies_are_linted(command: LintCommand, module: str) -> None:
    command.write("play.yml", PLAYBOOK.format(module=module, state="present"))
    done = command.json(".")
    assert found(done) == [("fractional-gpu", 14, 54)]
    assert done.status == 1


@pytest.mark.parametrize(
    ("module", "state"), [("kubernetes.core.k8s", "absent"), ("example.core.docker", "present")]
)
def test_what_ansible_does_not_apply_is_not_linted(
    command: LintCommand, module: str, state: str
) -> None:
    command.write("play.yml", PLAYBOOK.format(module=module, state=state))
    done = command.json(".")
    assert (found(done), done.status) == ([], 0)


def test_definitions_of_a_list_and_on_one_line_are_linted(command: LintCommand) -> None:
    pod = (
        "{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: ml}, spec: {containers: "
        "[{name: c, image: example.com/c:1, resources: {limits: {nvidia.com/gpu: 0.5}}}]}}"
    )
    command.write("tasks.yml", f"- k8s:\n    resource_definition:\n      - {pod}\n      - {pod}\n")
    assert [line for _, line, _ in found(command.json("."))] == [3, 4]


def test_jobs_of_armada_are_linted(command: LintCommand) -> None:
    text = """\
queue: research
jobSetId: training
jobs:
  - namespace: ml
    priority: 0
    podSpec:
      restartPolicy: Never
      containers:
        - name: main
          image: example.com/train:1
          resources: {limits: {nvidia.com/gpu: 0.5}}
"""
    command.write("job.yaml", text)
    ((rule, line, _),) = found(command.json("."))
    assert (rule, line) == ("fractional-gpu", 6)


def test_of_a_pod_of_determined_nothing_is_said_to_be_missing(command: LintCommand) -> None:
    text = """\
name: mnist
environment:
  pod_spec:
    apiVersion: v1
    kind: Pod
    spec:
      volumes: [{name: cards, hostPath: {path: /dev/nvidia0}}]
      containers:
        - name: determined-container
          image: nvidia/cuda:12.4.1-runtime-ubuntu22.04
          volumeMounts: [{name: cards, mountPath: /dev/nvidia0}]
resources: {slots_per_trial: 1}
"""
    command.write("experiment.yaml", text)
    assert [rule for rule, *_ in found(command.json("."))] == ["device-hostpath"]


NODE_SET = """\
apiVersion: slinky.slurm.net/v1alpha1
kind: NodeSet
metadata: {name: gpus, namespace: slurm}
spec:
  slurmd:
    image: ghcr.io/slinkyproject/slurmd:25.05-ubuntu24.04
    resources: {limits: {nvidia.com/gpu: 0.5}}
"""
NIM_CACHE = """\
apiVersion: apps.nvidia.com/v1alpha1
kind: NIMCache
metadata: {name: llama, namespace: nim}
spec:
  resources: {cpu: "2", memory: 8Gi}
  env:
    - {name: NVIDIA_VISIBLE_DEVICES, value: all}
"""


@pytest.mark.parametrize(
    ("text", "expected"), [(NODE_SET, "fractional-gpu"), (NIM_CACHE, "visible-devices-env")]
)
def test_pods_that_operators_make_of_a_container_are_linted(
    command: LintCommand, text: str, expected: str
) -> None:
    command.write("object.yaml", text)
    assert [rule for rule, *_ in found(command.json("."))] == [expected]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("fleet.yaml", "helm:\n  values:\n    env: {NVIDIA_VISIBLE_DEVICES: all}\n"),
        ("helmfile.yaml", "releases:\n  - values:\n      - env: {NVIDIA_VISIBLE_DEVICES: all}\n"),
    ],
)
def test_values_in_files_of_fleet_and_helmfile_are_named(
    command: LintCommand, name: str, text: str
) -> None:
    command.write(name, text)
    (remark,) = command.json(".").report["remarks"]
    assert remark["message"].startswith('"NVIDIA_VISIBLE_DEVICES" is in the values of a chart')

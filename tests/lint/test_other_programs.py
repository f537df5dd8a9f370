"""Tests of objects in files of other programs: Ansible, Armada, Determined and Slurm's operator."""

from __future__ import annotations

import json

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


def test_what_is_evaluated_is_not_said_to_be_unread(command: LintCommand) -> None:
    pod = PLAYBOOK.format(module="k8s", state="present").replace(
        "resources: {limits: {nvidia.com/gpu: 0.5}}",
        "env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}]",
    )
    command.write("play.yml", pod)
    done = command.json(".")
    assert [rule for rule, _, _ in found(done)] == ["visible-devices-env"]
    assert done.report["remarks"] == []
    other = "    - community.docker.docker_container:\n        env: {NVIDIA_VISIBLE_DEVICES: all}\n"
    command.write("play.yml", pod + other)
    assert [remark["line"] for remark in command.json(".").report["remarks"]] == [16]


def test_definitions_of_a_list_and_on_one_line_are_linted(command: LintCommand) -> None:
    pod = (
        "{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: ml}, spec: {containers: "
        "[{name: c, image: example.com/c:1, resources: {limits: {nvidia.com/gpu: 0.5}}}]}}"
    )
    command.write("tasks.yml", f"- k8s:\n    resource_definition:\n      - {pod}\n      - {pod}\n")
    assert [line for _, line, _ in found(command.json("."))] == [3, 4]


@pytest.mark.parametrize(
    ("text", "value", "line"),
    [
        (
            (
                "queue: a\njobs:\n  - namespace: ml\n    podSpec: {containers: [{name: a, image: a,"
                " resources: {limits: {nvidia.com/gpu: 0.5}}}]}\n"
            ),
            "0.5",
            4,
        ),
        (
            (
                "environment:\n  pod_spec: {spec: {containers: [{name: a, "
                "env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}]}]}}\n"
            ),
            "all",
            2,
        ),
        (
            (
                "- k8s:\n    definition:\n      - {apiVersion: v1, kind: Pod, spec: {containers: "
                "[{name: a, image: a:1, resources: {limits: {nvidia.com/gpu: 0.5}}}]}}\n"
            ),
            "0.5",
            3,
        ),
    ],
    ids=["armada", "determined", "ansible"],
)
def test_a_finding_in_flow_style_is_at_its_value(
    command: LintCommand, text: str, value: str, line: int
) -> None:
    command.write("given.yaml", text)
    column = text.splitlines()[line - 1].index(value) + 1
    done = command.json(".")
    assert [place[1:] for place in found(done)] == [(line, column)]
    assert f"given.yaml:{line}:{column} " in command(".").out


TEXT_POD = """\
apiVersion: v1
kind: Pod
metadata: {name: train, namespace: ml}
spec:
  containers:
    - name: main
      image: example.com/train:1
      resources: {limits: {nvidia.com/gpu: 0.5}}
"""


def indented(text: str, width: int) -> str:
    return "".join(f"{' ' * width}{line}" for line in text.splitlines(keepends=True))


def test_a_definition_in_a_text_is_linted(command: LintCommand) -> None:
    task = "- k8s:\n    definition: |\n" + indented(TEXT_POD + "---\n" + TEXT_POD, 6)
    command.write("tasks.yml", task)
    done = command.json(".")
    assert [(rule, line) for rule, line, _ in found(done)] == [
        ("fractional-gpu", 10),
        ("fractional-gpu", 19),
    ]
    quoted = f"- k8s:\n    definition: {json.dumps(TEXT_POD)}\n"
    command.write("tasks.yml", quoted)
    assert [line for _, line, _ in found(command.json("."))] == [2]


def test_a_definition_in_a_text_that_is_no_yaml_is_a_warning(command: LintCommand) -> None:
    text = TEXT_POD.replace("train,", "{{ name }},")
    command.write("tasks.yml", "- k8s:\n    definition: |\n" + indented(text, 6))
    done = command(".")
    assert "warning: tasks.yml:5:" in done.out
    assert done.status == 0


@pytest.mark.parametrize(
    "task",
    [
        "k8s: {definition: \"{{ lookup('template', 'a.j2') | from_yaml }}\"}",
        "kubernetes.core.k8s: {src: files/a.yaml}",
        "kubernetes.core.k8s: {template: a.yaml.j2}",
        "kubernetes.core.k8s: {template: [{path: a.yaml.j2}]}",
        "k8s: state=present src=a.yaml",
    ],
)
def test_what_ansible_applies_from_elsewhere_is_named(command: LintCommand, task: str) -> None:
    command.write("tasks.yml", f"- name: apply\n  {task}\n")
    done = command(".")
    assert "skipped: tasks.yml: line 2: a task of Ansible applies" in done.out
    assert "a.yaml" in done.out or "a.j2" in done.out
    assert done.status == 0


def test_a_version_of_kubernetes_is_no_task_of_ansible(command: LintCommand) -> None:
    command.write(".github/workflows/ci.yaml", "jobs: {a: {matrix: [{k8s: v1.36.2}]}}\n")
    assert "Ansible" not in command(".").out


@pytest.mark.parametrize("name", ["helmfile.yaml.gotmpl", "helmfile.d/a.yaml.gotmpl"])
def test_a_template_of_a_helmfile_is_named(command: LintCommand, name: str) -> None:
    command.write(name, "releases:\n  - name: {{ .Values.name }}\n")
    done = command(".")
    assert f"skipped: {name}: a template of a helmfile" in done.out
    assert done.status == 0


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
    assert (rule, line) == ("fractional-gpu", 11)


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

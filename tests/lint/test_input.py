"""Tests of input in which there is nothing to evaluate, and of the policy of a cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.testkit.chart.rendering import find_one, render
from tests.testkit.lint_command import LintCommand

SERVICE = "apiVersion: v1\nkind: Service\nmetadata: {name: s}\n"
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: ml}
spec:
  containers: [{name: c, image: x, env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}]}]
"""
QUOTA = "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q}\nspec: {hard: {pods: 1}}\n"
POLICY = {
    "apiVersion": "gpuward.io/v1",
    "kind": "Policy",
    "rules": {"visible-devices-env": {"action": "off"}},
}


@pytest.fixture
def folder(command: LintCommand) -> LintCommand:
    command.write("empty/notes.txt", "nothing")
    command.write("services/s.yaml", SERVICE)
    command.write("quotas/q.yaml", QUOTA)
    command.write("chart/Chart.yaml", "apiVersion: v2\nname: x\n")
    command.write("chart/templates/pod.yaml", "{{ if .Values.gpu }}\n" + POD + "{{ end }}\n")
    return command


NOTHING = {
    "empty standard input": (("-",), "-: nothing to evaluate: no Kubernetes object"),
    "a folder without manifests": (("empty",), "empty: nothing to evaluate: no Kubernetes object"),
    "templates only": (("chart",), "no Kubernetes object; the report names what was skipped"),
    "no pods": (("services",), "1 Kubernetes object, none of which rules are about"),
}


@pytest.mark.parametrize("case", NOTHING)
def test_nothing_to_evaluate_is_noted_and_can_be_refused(folder: LintCommand, case: str) -> None:
    arguments, message = NOTHING[case]
    for output in (
        ("--output", "text"),
        ("--output", "json"),
        ("--output", "summary"),
        ("--diff",),
    ):
        outcome = folder(*output, *arguments)
        assert outcome.status == 0
        assert outcome.errors.startswith("gpuward: note: ")
        assert message in outcome.errors
        required = folder(*output, "--require-input", *arguments)
        assert required.status == 3
        shown = json.loads(required.out) if "json" in output else required.out + required.errors
        assert "nothing to evaluate" in str(shown)


@pytest.mark.parametrize("verb", ["lint", "fix"])
def test_no_path_and_no_input_is_wrong_usage(folder: LintCommand, verb: str) -> None:
    outcome = folder.run(verb)
    assert outcome.status == 2
    assert "no path, and standard input is empty: give a file or folder" in outcome.errors
    assert folder(stdin=POD).status == 1


def test_an_option_that_is_one_argument_with_its_value_is_explained(folder: LintCommand) -> None:
    outcome = folder("--", "--profile gke")
    assert outcome.status == 2
    assert "--profile gke does not exist: an option and its value are two" in outcome.errors


@pytest.mark.parametrize("path", ["quotas", "."])
def test_input_with_something_to_evaluate_gets_no_note(folder: LintCommand, path: str) -> None:
    outcome = folder("--require-input", path)
    assert outcome.errors == ""
    assert outcome.status == 0


def test_the_policy_of_a_cluster_is_read_from_its_config_map(folder: LintCommand) -> None:
    folder.write("pod.yaml", POD)
    values = "policy: {rules: {visible-devices-env: {action: off}}}"
    manifest = find_one(render(values), "ConfigMap", "gpuward-policy")
    folder.write("policy.json", json.dumps(manifest))
    assert folder("pod.yaml").status == 1
    assert folder("--policy", "policy.json", "pod.yaml").status == 0


def config_map(text: str, key: str = "gpuward.yaml") -> str:
    return json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "data": {key: text}})


def test_a_mistake_in_a_config_map_is_named_with_its_line(folder: LintCommand) -> None:
    text = json.dumps({**POLICY, "rules": {"no-such-rule": {}}}, indent=1)
    folder.write("policy.json", config_map(text))
    outcome = folder("--policy", "policy.json", "services")
    assert outcome.status == 2
    assert outcome.errors.startswith("gpuward: policy.json[gpuward.yaml]:5:")


def test_a_config_map_without_a_policy_is_refused(folder: LintCommand) -> None:
    folder.write("policy.json", config_map(json.dumps(POLICY), key="other.yaml"))
    outcome = folder("--policy", "policy.json", "services")
    assert outcome.status == 2
    assert "this ConfigMap has no policy: its data has no gpuward.yaml" in outcome.errors


def test_a_policy_that_mentions_config_maps_is_a_policy(folder: LintCommand) -> None:
    exception = {
        "rules": ["visible-devices-env"],
        "match": {"namespace": "ml"},
        "reason": "it reads a ConfigMap",
    }
    folder.write("policy.json", json.dumps({**POLICY, "exceptions": [exception]}))
    assert folder("--policy", "policy.json", "services").status == 0


@pytest.mark.parametrize("program", ["lint", "fix"])
def test_a_pipe_that_the_user_names_is_not_read(command: LintCommand, program: str) -> None:
    """No program writes into it: one that reads it waits for ever."""
    os.mkfifo(command.folder / "pod.yaml")
    (command.folder / "link.yaml").symlink_to("pod.yaml")
    for name in ("pod.yaml", "link.yaml", "/dev/zero"):
        done = subprocess.run(  # our own program
            (sys.executable, "-m", "gpuward", program, name),
            cwd=command.folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 3, done.stderr
        assert f"{name}: not a regular file" in done.stdout + done.stderr


def test_a_pipe_of_the_shell_is_read(command: LintCommand) -> None:
    """As in `gpuward lint <(helm template chart)`."""
    reader, writer = os.pipe()
    with os.fdopen(writer, "w", encoding="utf-8") as stream:
        stream.write(POD)
    try:
        done = command.json(f"/dev/fd/{reader}")
    finally:
        os.close(reader)
    assert (done.status, done.report["summary"]["errors"]) == (1, 1)


def test_a_file_that_is_named_several_ways_is_reported_once(folder: LintCommand) -> None:
    folder.write("deploy/pod.yaml", POD)
    (folder.folder / "same").symlink_to("deploy")
    ways = ["deploy/pod.yaml", "./deploy/pod.yaml", "deploy/../deploy/pod.yaml", "same/pod.yaml"]
    done = folder(*ways, str(folder.folder / "deploy" / "pod.yaml"), "deploy")
    assert done.out.splitlines()[-1].startswith("1 file, 1 object, ")
    (folder.folder / "deploy" / "link.yaml").symlink_to("pod.yaml")
    assert folder("deploy").out.splitlines()[-1].startswith("2 files, ")


@pytest.mark.parametrize(
    ("pattern", "working"),
    [
        ("vendor/", "vendor"),
        ("./vendor", "vendor"),
        ("a//b", "a/b"),
        ("/vendor", "vendor"),
        ("**/x/", "**/x"),
        (".", "*"),
    ],
)
def test_a_pattern_that_fits_no_file_is_refused_with_one_that_does(
    folder: LintCommand, pattern: str, working: str
) -> None:
    folder.write("deploy/pod.yaml", POD)
    why = f"the pattern {pattern!r} fits no file: write {working!r}"
    done = folder("--exclude", pattern, "deploy")
    assert (done.status, why in done.errors) == (2, True)
    assert folder("--exclude", working, "deploy").status in {0, 1}
    head = "apiVersion: gpuward.io/v1\nkind: Policy\n"
    for key, place in (
        (f"lint: {{exclude: ['{pattern}']}}", "3:18"),
        (f"perPath: [{{paths: '{pattern}', profiles: [gke]}}]", "3:12"),
    ):
        folder.write("gpuward.yaml", f"{head}{key}\n")
        done = folder("deploy")
        assert (done.status, f"gpuward.yaml:{place}: {why}" in done.errors) == (2, True)


def test_an_absolute_pattern_fits_absolute_paths(folder: LintCommand) -> None:
    file = folder.write("deploy/pod.yaml", POD)
    here = str(folder.folder)
    assert "visible-devices-env" in folder.json(here).found
    assert "visible-devices-env" not in folder.json("--exclude", str(file.parent), here).found

"""Tests of `gpuward lint` as its users run it: its report and its exit status for files."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lint import cli
from reports import FORMATS, explain
from rules.all_rules import ALL_RULES
from rules.engine.fixing import check as real_check
from tests.testkit.paths import ROOT

POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: taker
  namespace: ml
spec:
  containers:
    - name: main
      image: example.com/app:1
      env:
        - name: NVIDIA_VISIBLE_DEVICES
          value: all
"""
POD_DATA = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "x"},
    "spec": {
        "containers": [{"name": "a", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}]
    },
}
GPU_POD = POD.replace("taker", "greedy") + "      resources: {limits: {nvidia.com/gpu: 1}}\n"
CLEAN_POD = POD.replace("value: all", "value: void")


class Lint:
    """Runs the command in a temporary folder."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys
        self.errors = ""

    def write(self, name: str, text: str | bytes) -> str:
        """Put a file into the folder."""
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(file)

    def __call__(self, *arguments: str) -> tuple[int, str]:
        status = cli.main(list(arguments))
        out, self.errors = self._capsys.readouterr()
        return status, out

    def json(self, *arguments: str) -> dict[str, Any]:
        """The JSON report."""
        report: dict[str, Any] = json.loads(self("--output", "json", *arguments)[1])
        return report


@pytest.fixture
def lint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Lint:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    return Lint(tmp_path, capsys)


def test_a_finding_names_the_line_and_column_of_the_field(lint: Lint) -> None:
    lint.write("pod.yaml", POD)
    status, out = lint("--output", "concise", "pod.yaml")
    assert status == 1
    assert out.startswith("pod.yaml:12:18: error visible-devices-env: ")


def test_the_text_report_shows_the_source_and_the_remedy(lint: Lint) -> None:
    lint.write("pod.yaml", POD)
    _, out = lint("--color", "never", "pod.yaml")
    assert "error[visible-devices-env]" in out
    assert "12 |           value: all\n   |                  ^^^\n" in out
    assert "= why: The container gets GPUs" in out
    assert "= help: " in out
    assert "gpuward explain visible-devices-env" in out
    assert "1 file, 1 object, 1 pod, 1 error" in out


def test_json_has_the_documented_keys(lint: Lint) -> None:
    lint.write("pod.yaml", POD)
    report = lint.json("pod.yaml")
    assert report["version"] == 1
    (finding,) = [f for f in report["findings"] if f["level"] == "error"]
    assert finding == {
        "rule": "visible-devices-env",
        "level": "error",
        "file": "pod.yaml",
        "line": 12,
        "column": 18,
        "pointer": "/spec/containers/0/env/0/value",
        "kind": "Pod",
        "namespace": "ml",
        "name": "taker",
        "owner": {"kind": "Pod", "name": "taker"},
        "objects": 1,
        "rendered_by": "",
        "rendered_line": 0,
        "container": "main",
        "message": finding["message"],
        "help": finding["help"],
        "fixable": False,
        "remedy": "unsafe-fix",
        "identity": "visible-devices-env|Pod./ml/taker|spec|main|NVIDIA_VISIBLE_DEVICES",
        "fingerprint": "49dd33ee8451aa82615cc42f66b7e7b3906f0f17430f015b4546d7c904a7a192",
    }
    assert report["summary"]["errors"] == 1


def test_a_missing_field_is_reported_at_its_nearest_parent(lint: Lint) -> None:
    lint.write(
        "pod.yaml",
        POD.split("      env:", maxsplit=1)[0] + "      resources: {limits: {nvidia.com/gpu: 1}}\n",
    )
    findings = lint.json("pod.yaml")["findings"]
    lines = {f["rule"]: (f["line"], f["column"], f["pointer"]) for f in findings}
    assert lines["toleration-default"] == (6, 1, "/spec/tolerations")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("﻿" + POD, 12),
        (POD.replace("\n", "\r\n"), 12),
        ("# first\n--- # a comment\n" + POD, 14),
        (CLEAN_POD + "---\n---\n" + POD, 26),
        ("a: b\n---\n" + POD, 14),
    ],
    ids=["byte order mark", "CRLF", "separator with comment", "second document", "after another"],
)
def test_lines_are_right_in_every_layout(lint: Lint, text: str, line: int) -> None:
    lint.write("pod.yaml", text)
    (finding,) = [f for f in lint.json("pod.yaml")["findings"] if f["level"] == "error"]
    assert finding["line"] == line


def test_json_manifests_are_read(lint: Lint) -> None:
    lint.write("pod.json", json.dumps(POD_DATA, indent=1))
    assert lint.json("pod.json")["summary"]["errors"] == 1


def test_the_items_of_a_list_are_read(lint: Lint) -> None:
    indented = "".join(f"    {line}\n" for line in POD.splitlines())
    items = f"  -\n{indented}" * 2
    lint.write("list.yaml", f"apiVersion: v1\nkind: List\nitems:\n{items}")
    report = lint.json("list.yaml")
    pointers = [f["pointer"] for f in report["findings"] if f["level"] == "error"]
    assert pointers == [f"/items/{n}/spec/containers/0/env/0/value" for n in (0, 1)]
    assert report["summary"]["objects"] == 2


def test_folders_globs_and_exclusions(lint: Lint) -> None:
    lint.write("a/pod.yaml", POD)
    lint.write("a/b/pod.yml", POD)
    lint.write("a/b/notes.txt", POD)
    lint.write("a/.venv/pod.yaml", POD)
    assert lint.json("a")["summary"]["files"] == 2
    assert lint.json("a/*.yaml")["summary"]["files"] == 1
    assert lint.json("a/**/*.y*ml")["summary"]["files"] == 2
    assert lint.json("a", "--exclude", "b")["summary"]["files"] == 1
    assert lint.json("a", "a/pod.yaml")["summary"]["files"] == 2


@pytest.mark.parametrize("arguments", [["-"], []])
def test_standard_input(lint: Lint, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    reader = io.BufferedReader(io.BytesIO(POD.encode()))
    stream = io.TextIOWrapper(reader)
    monkeypatch.setattr(sys, "stdin", stream)
    status, out = lint("--output", "concise", *arguments)
    assert status == 1
    assert out.startswith("Pod ml/taker: /spec/containers/0/env/0/value: error")


def test_exit_statuses(lint: Lint) -> None:
    lint.write("clean.yaml", CLEAN_POD)
    lint.write("bad.yaml", POD)
    lint.write("hidden.yaml", GPU_POD.replace("value: all", "value: void"))
    lint.write("broken.yaml", "kind: [")
    assert lint("clean.yaml")[0] == 0
    assert lint("bad.yaml")[0] == 1
    assert lint("hidden.yaml")[0] == 0
    assert lint("hidden.yaml", "--fail-on", "warning")[0] == 1
    assert lint("nowhere.yaml")[0] == 2
    assert lint("bad.yaml", "broken.yaml")[0] == 3
    assert lint("bad.yaml", "broken.yaml", "nowhere.yaml")[0] == 2


def test_wrong_options_are_usage_errors(lint: Lint) -> None:
    with pytest.raises(SystemExit) as stop:
        lint("--no-such-option")
    assert stop.value.code == 2
    assert lint("--profile", "nvidea", "x.yaml")[0] == 2
    assert 'did you mean "nvidia"' in lint.errors


def test_a_file_that_cannot_be_read_is_never_a_success(lint: Lint) -> None:
    lint.write("clean.yaml", CLEAN_POD)
    lint.write("latin.yaml", CLEAN_POD.encode() + b"# \xff\n")
    lint.write("torn.yaml", "kind: [1, 2\n---\n" + POD)
    lint.write(
        "text.yaml", "apiVersion: apps/v1\nkind: Deployment\nspec:\n  template:\n    spec: none\n"
    )
    os.symlink("/etc/hostname", lint.folder / "away.yaml")
    report = lint.json(".")
    assert {u["file"]: u["line"] for u in report["not_evaluated"]} == {
        "away.yaml": 0,
        "latin.yaml": 0,
        "torn.yaml": 2,
        "text.yaml": 5,
    }
    assert report["summary"]["errors"] == 1, "a broken document hides another one"
    assert lint(".")[0] == 3


@pytest.mark.parametrize(
    "bomb",
    [
        "a: " + "[" * 100_000,
        "\n".join(" " * n + "a:" for n in range(2_000)),
        "a: &a [x, x]\n"
        + "\n".join(
            f"{chr(98 + n)}: &{chr(98 + n)} [*{chr(97 + n)}, *{chr(97 + n)}]" for n in range(24)
        ),
        '{"a":' * 50_000,
        "x" * (11 * 1024 * 1024),
        "a: " + "9" * 100_000 + "\nb: [",
        "---\n" * 500_000,
    ],
    ids=["flow", "block", "aliases", "json", "size", "digits", "documents"],
)
def test_bombs_end_in_an_error(lint: Lint, bomb: str) -> None:
    lint.write("bomb.yaml", bomb)
    status, out = lint("bomb.yaml")
    assert status == 3
    assert "not evaluated: bomb.yaml:" in out
    assert len(out) < 1_000


def test_files_without_manifests_are_skipped_silently(lint: Lint) -> None:
    lint.write("compose.yaml", "services: {web: {image: nginx}}\n")
    lint.write("list.yaml", "- a\n- b\n")
    lint.write("empty.yaml", "# nothing\n")
    lint.write("tsconfig.json", '{ // with a comment\n "compilerOptions": {} }')
    status, out = lint(".")
    assert status == 0
    assert out.count("\n") == 1


def test_chart_templates_are_skipped_with_a_note(lint: Lint) -> None:
    lint.write("chart/Chart.yaml", "apiVersion: v2\nname: x\n")
    lint.write("chart/templates/pod.yaml", "{{ if .Values.gpu }}\n" + POD + "{{ end }}\n")
    lint.write("chart/templates/plain.yaml", POD)
    status, out = lint("chart")
    assert "skipped: chart/templates/pod.yaml: a chart's template" in out
    assert status == 1, "a template without placeholders is an ordinary manifest"
    assert out.count("error[") == 1


def test_a_key_that_is_there_twice_is_a_warning_at_the_one_that_counts(lint: Lint) -> None:
    lint.write("pod.yaml", "kind: Pod\n" + POD)
    _, out = lint("pod.yaml")
    line = 2 + POD[: POD.index("kind:")].count("\n")
    assert f"pod.yaml:{line}:1: the key 'kind' is here twice: kubectl takes only this one" in out
    assert "kustomize refuses the file" in out


def test_json_that_only_yaml_refuses_is_silent_without_a_kind(lint: Lint) -> None:
    tokenizer = {"apiVersion": 1, "{{": 2, "x" * 1200: 3}  # YAML allows keys of 1,024 characters
    lint.write("tokenizer.json", json.dumps(tokenizer))
    assert lint(".")[0] == 0
    lint.write("tokenizer.json", json.dumps({**tokenizer, "kind": "Pod"}))
    assert lint(".")[0] == 3


def test_json_of_any_alphabet_is_read(lint: Lint) -> None:
    pod = json.loads(json.dumps(POD_DATA))
    pod["metadata"]["annotations"] = {"mood": "\U0001f600", "path": "\\ud83d\\ude00"}
    lint.write("pod.json", json.dumps(pod))
    report = lint.json("pod.json")
    assert report["not_evaluated"] == []
    assert report["summary"]["errors"] == 1


@pytest.mark.parametrize(
    "content",
    [POD.encode("utf-16"), b'{"apiVersion": "v1"}' + b" " * 11_000_000, b"\xff\xfe"],
    ids=["another encoding", "too large", "binary"],
)
def test_json_that_cannot_be_read_is_not_skipped(lint: Lint, content: bytes) -> None:
    lint.write("pod.json", content)
    assert lint(".")[0] == 3


def test_a_json_file_with_escaped_keys_is_read(lint: Lint) -> None:
    lint.write("a/pod.json", POD.replace("apiVersion", '"api\\x56ersion"'))
    lint.write("b/pod.json", POD.replace("apiVersion", "!!binary YXBpVmVyc2lvbg=="))
    assert lint.json(".")["summary"]["errors"] == 2


def test_an_object_with_items_is_a_list(lint: Lint) -> None:
    """As for kubectl, which creates the items and not the object around them."""
    items = "".join(f"    {line}\n" for line in POD.splitlines())
    lint.write("a.yaml", f"apiVersion: v1\nkind: ConfigMap\nitems:\n  -\n{items}")
    kindless = items.replace("kind: Pod", 'kind: ""')
    lint.write("b.yaml", f"apiVersion: v1\nkind: PodList\nitems:\n  -\n{kindless}")
    lint.write("c.yaml", POD.replace("apiVersion: v1\n", ""))
    assert lint.json(".")["summary"]["errors"] == 3


def test_a_link_to_a_folder_is_skipped_with_a_note(lint: Lint) -> None:
    lint.write("a/pod.yaml", CLEAN_POD)
    (lint.folder / "link").symlink_to(lint.folder / "a")
    status, out = lint(".")
    assert status == 0
    assert "skipped: link: a link to a folder" in out


def test_components_are_counted(lint: Lint) -> None:
    pod = json.loads(json.dumps(POD_DATA))
    metadata = {"name": "x", "namespace": "kube-system"}
    agent = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata}
    agent["spec"] = {"template": {"spec": pod["spec"]}}
    lint.write("agent.json", json.dumps(agent))
    status, out = lint("agent.json")
    assert status == 0
    assert "1 of them components, not evaluated" in out
    lint.write("nested.json", json.dumps({**agent, "apiVersion": "example.com/v1"}))
    assert lint("nested.json")[0] == 1, "a custom resource may create pods in another namespace"


def test_the_report_names_the_policy(lint: Lint) -> None:
    lint.write("pod.yaml", CLEAN_POD)
    assert lint.json("pod.yaml")["policy"] is None
    lint.write("gpuward.yaml", "apiVersion: gpuward.io/v1\nkind: Policy\n")
    assert lint.json("pod.yaml")["policy"] == "gpuward.yaml"
    assert "policy gpuward.yaml: 1 file" in lint("pod.yaml")[1]


def test_a_policy_that_cannot_be_opened_is_an_error(lint: Lint) -> None:
    lint.write("pod.yaml", CLEAN_POD)
    (lint.folder / "gpuward.yaml").symlink_to("nowhere")
    assert lint("pod.yaml")[0] == 2
    (lint.folder / "gpuward.yaml").unlink()
    lint.write("gpuward.yml", "apiVersion: gpuward.io/v1\nkind: Policy\n")
    assert lint("pod.yaml")[0] == 2
    assert "rename the file" in lint.errors


WORKFLOW = """\
name: gpuward
on: [pull_request]
jobs:
  gpuward:
    runs-on: ubuntu-24.04
    steps: [{uses: gpuward/gpuward@v0.1.0}]
"""
RELEASE = "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: gpuward}\n"
TEMPLATE = "{{- if .Values.gpuward }}\napiVersion: v1\nkind: ConfigMap\n{{- end }}\n"
KYVERNO = "apiVersion: kyverno.io/v1\nkind: Policy\nmetadata: {name: gpuward}\n"
AUDIT = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: None}]\n"
CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\ndata:\n"
MAP_TEMPLATE = f"{CONFIG_MAP}  gpuward.yaml: |\n{{{{ .Values.policy | indent 4 }}}}\n"
COMPONENT = "spec: {inputs: {}}\n---\ngpuward: {script: [gpuward lint]}\n"


@pytest.mark.parametrize("ending", ["yaml", "yml"])
@pytest.mark.parametrize(
    "text",
    [
        *(WORKFLOW, RELEASE, TEMPLATE, COMPONENT, f"{RELEASE}---\n{RELEASE}", "- a\n"),
        *(KYVERNO, f"{KYVERNO}spec: [\n", AUDIT, MAP_TEMPLATE, f"{CONFIG_MAP}  a: [\n"),
    ],
)
def test_a_file_of_another_program_that_is_called_as_a_policy_is_none(
    lint: Lint, text: str, ending: str
) -> None:
    lint.write("pod.yaml", GPU_POD)
    lint.write("gpuward.yaml", "apiVersion: gpuward.io/v1\nkind: Policy\n")
    lint.write(f".github/workflows/gpuward.{ending}", text)
    lint.write(".github/workflows/pod.yaml", GPU_POD)
    report = lint.json(".")
    assert lint.errors == ""
    assert report["policy"] == "gpuward.yaml"
    assert {f["file"] for f in report["findings"]} >= {".github/workflows/pod.yaml"}


@pytest.mark.parametrize("ending", ["yaml", "yml"])
@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}\n",
        "rules: {}\n",
        "profil: gke\nrulez: {}\n",
        "{kind: Policy}\n",
        "apiVersion: gpuward.io/v1\nkind: Polcy\n",
        "apiVersion: gpuwrad.io/v1\nkind: Policy\n",
        "broken\n",
        "rules: [\n",
        "kind: Policy\nrules: [\n",
        "apiVersion: gpuward.io/v1\nkind: Polcy\nrules: [\n",
        """apiVersion: "gpuward.io/v1"\nkind: 'Policy'\nrules: [\n""",
        "apiVersion: gpuwrad/v1\nkind: Polcy\nrules: {}\n",
        "apiVersion: gpuward/v1\nkind: Policies\nrules: {}\n",
        "apiVersion: v1\nkind: Policy\nrules: {}\n",
        "apiVersion: 1\nkind: Policy\nrules: {}\n",
        f"{CONFIG_MAP}  gpuward.yaml: [\n",
        f"{CONFIG_MAP}  gpuward.yaml: |\n\tkind: Policy\n",
        f"{CONFIG_MAP}  {{'gpuward.yaml': a, b}}: [\n",
        f"kind: Policy\napiVersion: gpuward.io/v1\n---\n{RELEASE}spec: [\n",
        "\0",
    ],
)
def test_a_file_that_may_be_meant_as_a_policy_is_an_error(
    lint: Lint, text: str, ending: str
) -> None:
    lint.write("pod.yaml", CLEAN_POD)
    lint.write(f"gpuward.{ending}", text)
    assert lint("pod.yaml")[0] == 2
    assert f"gpuward.{ending}" in lint.errors


def test_a_config_map_with_a_policy_is_one_and_no_file_of_another_program(lint: Lint) -> None:
    lint.write("pod.yaml", GPU_POD)
    policy = "apiVersion: gpuward.io/v1\n    kind: Policy\n    rulez: {}\n"
    text = f"apiVersion: v1\nkind: ConfigMap\ndata:\n  gpuward.yaml: |\n    {policy}"
    lint.write("gpuward.yaml", text)
    assert lint("pod.yaml")[0] == 2
    assert 'did you mean "rules"?' in lint.errors


def test_a_policy_is_read_once_for_all_folders_below(
    lint: Lint, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[bytes] = []

    def is_of_another_program(content: bytes) -> bool:
        read.append(content)
        return False

    monkeypatch.setattr("sources.policy_file.is_of_another_program", is_of_another_program)
    lint.write("gpuward.yaml", "apiVersion: gpuward.io/v1\nkind: Policy\n")
    for number in range(9):
        lint.write(f"{number}/pod.yaml", CLEAN_POD)
    assert lint(".")[0] == 0
    assert len(read) == 1


def test_a_long_object_is_not_compared_line_by_line(lint: Lint) -> None:
    env = "".join(f"        - {{name: V{n}, value: x}}\n" for n in range(3_000))
    lint.write("pod.yaml", GPU_POD.replace("      env:\n", f"      env:\n{env}"))
    _, out = lint("--diff", "pod.yaml")
    assert "-          value: all\n" in out
    assert out.count("\n") < 30


UNSEEN = "\u061c\u200b\u202e\u2060\u2066\U000e0041"


@pytest.mark.parametrize("form", FORMATS)
def test_hostile_text_cannot_steer_the_terminal(lint: Lint, form: str) -> None:
    hostile = f'"x\\e[2J\\u202e{UNSEEN}"'
    name = f"pod{UNSEEN}.yaml"
    lint.write(name, POD.replace("name: main", f"name: {hostile}"))
    _, out = lint("--output", form, "--color", "never", name)
    assert not {"\x1b", *UNSEEN} & set(out)
    assert out.count("visible-devices-env") > 0


def test_colour(lint: Lint, monkeypatch: pytest.MonkeyPatch) -> None:
    lint.write("pod.yaml", POD)
    assert "\x1b[1;31m" in lint("--color", "always", "pod.yaml")[1]
    assert "\x1b" not in lint("pod.yaml")[1]
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" in lint("pod.yaml")[1]
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in lint("pod.yaml")[1]


def test_quiet_reports_findings_and_failures_alone(lint: Lint) -> None:
    lint.write("chart/Chart.yaml", "name: x\n")
    lint.write("chart/templates/a.yaml", "{{ if }}\napiVersion: v1\n")
    lint.write("clean.yaml", CLEAN_POD)
    for form in ("text", "concise", "summary"):
        assert lint("-q", "--output", form, ".") == (0, "")
    assert lint("-q", "chart") == (0, "")
    assert lint.errors == "gpuward: note: 1 skipped (--render evaluates it)\n"
    assert lint("-q", "chart", "--require-input")[0] == 3
    lint.write("faulty.yaml", POD)
    lint.write("torn.yaml", "apiVersion: [\n")
    status, out = lint("-q", ".")
    assert (status, "error[visible" in out, "torn.yaml:2:1: " in out) == (3, True, True)
    assert out.splitlines()[-1].startswith("not evaluated: ")


def test_statistics_count_the_findings_of_each_rule(lint: Lint) -> None:
    absurd = GPU_POD.replace("gpu: 1", "gpu: 0.5")
    lint.write("a.yaml", f"{POD}---\n{absurd}")
    lint.write("b.yaml", POD)
    status, out = lint("--statistics", ".")
    rows = [line.split() for line in out.splitlines()]
    assert status == 1
    assert rows[:3] == [
        ["FINDINGS", "LEVEL", "RULE", "FILES", "OBJECTS", "FIXABLE"],
        ["3", "error", "visible-devices-env", "2", "3", "1"],
        ["1", "error", "fractional-gpu", "1", "1", "0"],
    ]
    assert out.splitlines()[-1].startswith("2 files, 3 objects")


def test_the_diff_shows_what_a_fix_would_do(lint: Lint) -> None:
    lint.write("pod.yaml", GPU_POD + "---\n" + CLEAN_POD)
    status, out = lint("--diff", "--notes", "pod.yaml")
    assert status == 1
    assert out.startswith("--- pod.yaml\n+++ pod.yaml\n@@ -7,10 +7,21 @@\n")
    assert "-        - name: NVIDIA_VISIBLE_DEVICES\n-          value: all\n" in out


def test_the_patch_is_what_admission_would_send(lint: Lint) -> None:
    lint.write("pod.yaml", GPU_POD)
    _, out = lint("--patch", "pod.yaml")
    entry = json.loads(out)
    assert entry["object"] == "Pod ml/greedy"
    assert entry["patch"][0] == {"op": "remove", "path": "/spec/containers/0/env"}


def test_the_namespace_of_objects_that_name_none(lint: Lint) -> None:
    lint.write("pod.yaml", POD.replace("  namespace: ml\n", ""))
    lint.write(
        "gpuward.yaml",
        "apiVersion: gpuward.io/v1\nkind: Policy\nexceptions:\n"
        "  - {rules: [visible-devices-env], match: {namespace: ml}, reason: trusted}\n",
    )
    assert lint("pod.yaml")[0] == 1
    status, out = lint("pod.yaml", "-n", "ml")
    assert status == 0
    assert "1 excepted" in out


def test_the_nearest_policy_up_to_the_repository_counts(
    lint: Lint, monkeypatch: pytest.MonkeyPatch
) -> None:
    off = "apiVersion: gpuward.io/v1\nkind: Policy\nrules: {visible-devices-env: {action: 'off'}}\n"
    pod = lint.write("a/b/pod.yaml", POD)
    lint.write("gpuward.yaml", off)
    monkeypatch.chdir(lint.folder / "a" / "b")
    assert lint(pod)[0] == 0
    (lint.folder / "a" / ".git").mkdir()
    assert lint(pod)[0] == 1, "the policy of another repository above does not count"
    assert lint(pod, "--policy", str(lint.folder / "gpuward.yaml"))[0] == 0


def test_a_bad_policy_is_refused_with_its_line(lint: Lint) -> None:
    lint.write("pod.yaml", POD)
    lint.write("gpuward.yaml", "apiVersion: gpuward.io/v1\nkind: Policy\nprofile: [nvidia]\n")
    assert lint("pod.yaml")[0] == 2
    assert "gpuward.yaml:3:1: unknown key 'profile'; did you mean \"profiles\"?" in lint.errors
    assert lint("pod.yaml", "--policy", "nowhere.yaml")[0] == 2


def test_expired_and_unused_exceptions_are_reported(lint: Lint) -> None:
    lint.write("pod.yaml", POD)
    lint.write(
        "gpuward.yaml",
        "apiVersion: gpuward.io/v1\nkind: Policy\nexceptions:\n"
        "  - {rules: [visible-devices-env], match: {namespace: ml}, reason: old,\n"
        "     expires: 2001-01-01}\n"
        "  - {rules: [visible-devices-env], match: {namespace: other}, reason: new}\n",
    )
    status, out = lint("pod.yaml", "--notes")
    assert status == 1
    assert "(old) expired on 2001-01-01" in out
    assert "(new) accepted nothing in these files" in out


def test_a_rule_that_fails_is_named_and_the_others_go_on(
    lint: Lint, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*arguments: Any) -> Any:
        if "boom" in str(arguments[0]):
            raise RuntimeError("boom")
        return real_check(*arguments)

    monkeypatch.setattr("lint.evaluation.check", failing)
    lint.write("a.yaml", POD.replace("taker", "boom"))
    lint.write("b.yaml", POD)
    status, out = lint(".")
    assert status == 3
    assert "not evaluated: a.yaml: gpuward itself failed here" in out
    assert "b.yaml:12:18" in out


@pytest.mark.parametrize("verb", ["rules", "explain", "nonsense", "--help", "--version"])
def test_the_command_line(verb: str) -> None:
    arguments = ["visible-devices-env"] if verb == "explain" else []
    done = subprocess.run(
        [sys.executable, "-m", "gpuward", verb, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == (2 if verb == "nonsense" else 0)
    assert "gpuward" in done.stdout + done.stderr or "visible-devices-env" in done.stdout


def test_explain_suggests_the_rule_that_was_meant() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gpuward", "explain", "visible-device-env"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert 'did you mean "visible-devices-env"' in done.stderr


@pytest.mark.parametrize("family", sorted({rule.family for rule in ALL_RULES}))
def test_explain_lists_the_rules_of_a_family(
    family: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert explain.main([family]) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{family} is a family of rules")
    listed = [line.split()[0] for line in lines if line]
    assert listed == sorted(rule.name for rule in ALL_RULES if rule.family == family)


def test_a_path_cannot_steer_the_terminal(lint: Lint) -> None:
    assert lint("no\x1b[31mfile")[0] == 2
    assert "\x1b" not in lint.errors
    name = lint.write("\x1b[31m.yaml", "a: [")
    assert lint("--diff", name)[0] == 3
    assert "not evaluated" in lint.errors
    assert "\x1b" not in lint.errors


def test_a_closed_pipe_is_no_crash(lint: Lint) -> None:
    lint.write("pod.yaml", "---\n".join([POD] * 2_000))
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m gpuward lint {lint.folder}/pod.yaml | head -1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""


def test_an_object_too_large_for_admission_is_not_evaluated(lint: Lint) -> None:
    lint.write(
        "large.yaml",
        "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap}\n"
        "- apiVersion: v1\n  kind: Pod\n  metadata: {name: a}\n"
        f"  spec: {{containers: [{{name: a, image: {'x' * 70_000}}}]}}\n",
    )
    status, out = lint("large.yaml")
    assert status == 3
    assert "large.yaml:5:3: gpuward cannot evaluate this object because of its field image" in out


def test_an_object_is_measured_without_the_others_in_its_file(lint: Lint) -> None:
    """At admission each object comes alone."""
    small = f"metadata: {{name: a, annotations: {{{'k' * 400}: v}}}}"
    lint.write(
        "many.yaml",
        f"apiVersion: v1\nkind: ConfigMap\ndata: {{a: {'x' * 70_000}}}\n---\n"
        f"apiVersion: v1\nkind: Pod\n{small}\nspec: {{containers: [{{name: a, image: a}}]}}\n",
    )
    assert lint("many.yaml")[0] == 0


@pytest.mark.parametrize(
    "head",
    [
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nspec",
        "apiVersion: grafana.integreatly.org/v1\nkind: GrafanaDashboard\nspec",
        "apiVersion: v1\nkind: ConfigMap\ndata",
    ],
)
def test_an_object_without_pods_may_be_of_any_size(lint: Lint, head: str) -> None:
    lines = "".join(f"  key{n}: {{type: string}}\n" for n in range(11_000))
    lint.write("large.yaml", f"{head}:\n  path: {'x' * 70_000}\n{lines}")
    assert lint("large.yaml")[0] == 0


def test_an_object_with_too_many_faults_is_not_evaluated(lint: Lint) -> None:
    variables = ", ".join(f"{{name: CUDA_DEVICE_MEMORY_LIMIT_{n}, value: 1}}" for n in range(9_000))
    lint.write(
        "many.yaml",
        "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: a\n    image: x\n"
        f"    resources: {{limits: {{nvidia.com/gpumem: 1}}}}\n    env: [{variables}]\n",
    )
    status, out = lint("--patch", "many.yaml")
    assert status == 3
    assert "the rules take too many steps" in lint.errors + out


def test_no_patch_for_an_object_whose_fixes_take_too_many_steps(lint: Lint) -> None:
    """The webhook refuses it for that. Other objects of the file have theirs."""
    containers = "".join(f"  - {{name: c{n}, image: nvidia/cuda:12}}\n" for n in range(1_500))
    gpu = "  - {name: gpu, image: x, resources: {requests: {nvidia.com/gpu: 1}}}\n"
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: many}\nspec:\n  containers:\n"
    lint.write("pods.yaml", f"{pod}{containers}{gpu}---\n{GPU_POD}")
    status, out = lint("--patch", "pods.yaml")
    assert status == 3
    why = "gpuward cannot evaluate this object because of its size: the fixes take too many steps"
    assert f"pods.yaml:1:1: not evaluated: {why}" in lint.errors
    assert [json.loads(line)["object"] for line in out.splitlines()] == ["Pod ml/greedy"]

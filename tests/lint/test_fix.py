"""Tests of `gpuward fix`: what it writes, what it reports, and what it refuses."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sources.sources import MAX_BYTES
from tests.testkit.cases import cases
from tests.testkit.fix_texts import FIXED, REQUEST
from tests.testkit.lint_command import LintCommand
from tests.testkit.paths import ROOT

TAKER = """\
apiVersion: v1
kind: Pod
metadata: {name: taker}
spec:
  containers:
  - name: main
    image: example.com/app:1
    env:
    - name: NVIDIA_VISIBLE_DEVICES
      value: all
"""

JSON_POD = """\
{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "labels": {"a": "é"}}, "spec": {
 "containers": [{"name": "a", "image": "i", "resources": {"requests": {"nvidia.com/gpu": 1}}}]}}
"""


def read(file: Path) -> str:
    return file.read_bytes().decode()


def written(pod: dict[str, Any]) -> str:
    return json.dumps(pod, indent=4, ensure_ascii=False)


@pytest.mark.parametrize("verb", ["fix", "lint"])
def test_a_file_is_changed_only_where_it_must_be(command: LintCommand, verb: str) -> None:
    file = command.write("pod.yaml", REQUEST)
    outcome = command.run(verb, *["--fix"][: verb == "lint"], "pod.yaml")
    assert (outcome.status, outcome.errors) == (0, "")
    assert read(file) == FIXED
    assert "fixed: pod.yaml: request-only\n" in outcome.out
    assert "0 fixable, 1 fixed" in outcome.out


def test_lint_counts_all_that_fix_writes(command: LintCommand) -> None:
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n"
    pod += "    - {name: a, image: x, resources: {requests: {nvidia.com/gpu: 1}}}\n"
    command.write("pod.yaml", pod)
    summary = command("pod.yaml").out
    found = re.search(r"(\d+) fixable \((\d+) of them notes\)", summary)
    assert found
    assert "of them notes" not in command("--notes", "pod.yaml").out
    fixed = command.run("fix", "pod.yaml").out
    assert f"{found[2]} fixable ({found[2]} of them notes), 1 fixed" in fixed
    fixed = command.run("fix", "--notes", "pod.yaml").out
    assert f"0 fixable, {int(found[1]) - 1} fixed" in fixed


def test_fix_writes_nothing_that_lint_does_not_print(command: LintCommand) -> None:
    """Over all cases of rules and all examples: a reader of `lint` knows what `fix` changes."""
    for case in cases():
        command.write(f"{case.name}.yaml", case.file.read_text(encoding="utf-8"))
    for example in (ROOT / "examples").glob("*.yaml"):
        command.write(f"examples/{example.name}", example.read_text(encoding="utf-8"))
    printed = command("--isolated", "--output", "concise", ".").out.splitlines()
    known = {
        (file, words.split(":")[0].split()[-1]) for file, words in map(_file_and_words, printed)
    }
    fixed = command.run("fix", "--isolated", "--output", "json", ".").report["fixed"]
    assert fixed
    assert [entry for entry in fixed if (entry["file"], entry["rule"]) not in known] == []


def _file_and_words(line: str) -> tuple[str, str]:
    """The file of a line such as `pod.yaml:1:2: error request-only: …`, and what follows."""
    file, _, _, words = (*line.split(":", 3), "", "", "")[:4]
    return file, words


def test_notes_are_fixed_only_where_they_are_shown_or_their_rule_is_named(
    command: LintCommand,
) -> None:
    beside = FIXED + "  - name: web\n    image: example.com/web:1\n"
    file = command.write("pod.yaml", beside)
    assert command.run("fix", "--diff", "pod.yaml").out == ""
    for arguments in (("--notes",), ("--fail-on", "note"), ("--rule", "image-default-all")):
        assert "+      value: void" in command.run("fix", "--diff", *arguments, "pod.yaml").out
    assert command.run("fix", "pod.yaml").status == 0
    assert read(file) == beside


NAMES_A_CLASS = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: speech}
spec:
  selector: {matchLabels: {app: speech}}
  template:
    metadata: {labels: {app: speech}}
    spec:
      runtimeClassName: nvidia
      containers:
        - name: server
          image: nvcr.io/nvidia/tritonserver:24.05-py3
          env:
            - name: USE_GPU
              value: "true"
"""


def test_the_gpu_of_a_runtime_class_is_taken_away_only_on_demand(command: LintCommand) -> None:
    file = command.write("deployment.yaml", NAMES_A_CLASS)
    assert "warning[runtimeclass-nvidia-no-gpu]" in command("deployment.yaml").out
    for arguments in ((), ("--notes",), ("--unsafe-fixes",)):
        command.run("fix", *arguments, "deployment.yaml")
        assert read(file) == NAMES_A_CLASS
    command.run("fix", "--notes", "--unsafe-fixes", "deployment.yaml")
    assert "value: void" in read(file)
    assert "runtimeclass-nvidia-no-gpu" not in command("--notes", "deployment.yaml").out


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_windows_line_breaks_and_other_documents_stay(command: LintCommand, mark: str) -> None:
    other = "---  # a comment\n\n# only a comment\n---\n{a: [1,\n 2]}\n--- \n"
    text = mark + (other + REQUEST + other + REQUEST).replace("\n", "\r\n")
    file = command.folder / "pods.yml"
    file.write_bytes(text.encode())
    assert command.run("fix", ".").status == 0
    assert read(file) == mark + (other + FIXED + other + FIXED).replace("\n", "\r\n")


def test_json_stays_json(command: LintCommand) -> None:
    pod = json.loads(JSON_POD)
    file = command.write("pod.json", written(pod))
    assert command.run("fix", "pod.json", "--rule", "request-only").status == 0
    pod["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": 1}
    assert read(file) == written(pod)


def test_what_is_right_is_not_written(command: LintCommand) -> None:
    file = command.write("pod.yaml", FIXED)
    before = file.stat()
    assert command.run("fix", "pod.yaml").status == 0
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_the_report_is_about_the_files_as_they_are_now(command: LintCommand) -> None:
    """Lines below a fix have moved, and so have comments that suppress nothing."""
    unused = TAKER.replace("taker", "other").replace(
        "all", "all # gpuward: ignore[absurd-count] no"
    )
    broken = "kind: Pod\nspec: [\n"
    command.write("pods.yaml", f"{REQUEST}---\n{TAKER}---\n{REQUEST}---\n{unused}---\n{broken}")
    fixed = command.run("fix", "--output", "json", "pods.yaml").report
    assert [entry["rule"] for entry in fixed["fixed"]] == ["request-only"] * 2
    after = command.json("pods.yaml").report
    assert after["findings"][-1]["line"] == 55
    for key in ("findings", "remarks", "not_evaluated"):
        assert fixed[key] == after[key] != []


def test_the_diff_is_that_of_the_file(command: LintCommand) -> None:
    text = f"{REQUEST}---\n{TAKER}---\n" + REQUEST.replace("\n", "\r\n").rstrip()
    file = command.folder / "pods.yaml"
    file.write_bytes(text.encode())
    outcome = command.run("fix", "--diff", "pods.yaml")
    assert (outcome.status, read(file)) == (1, text)
    assert "+          limits:\n+              nvidia.com/gpu" in outcome.out
    assert command("--diff", "pods.yaml").out == outcome.out
    command.run("fix", "pods.yaml")
    fixed = file.read_bytes()
    for tool in (["patch", "-p0", "--binary"], ["git", "apply", "-p0"]):
        file.write_bytes(text.encode())
        subprocess.run(tool, cwd=command.folder, input=outcome.raw_out, check=True)
        assert file.read_bytes() == fixed, tool


def test_standard_input_goes_to_standard_output(command: LintCommand) -> None:
    outcome = command.run("fix", "-", stdin=REQUEST)
    assert (outcome.status, outcome.out) == (0, FIXED)
    assert "1 fixed" in outcome.errors
    outcome = command.run("fix", "-", stdin=TAKER)
    assert (outcome.status, outcome.out) == (1, TAKER)
    named = command.run("fix", "--stdin-filename", "pod.yaml", stdin=REQUEST)
    assert (named.out, list(command.folder.glob("*.yaml"))) == (FIXED, [])
    assert command.run("fix", "-", "pod.yaml").status == 2


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (REQUEST.encode() + b"\xff\r\n", 3),
        (b"# " + b"x" * (MAX_BYTES + 10_000) + b"\n", 3),
        (b"kind: [\r\n", 3),
        (JSON_POD.replace("\u00e9", "\\ud83d\\ude00").encode(), 1),
        (b"", 0),
    ],
    ids=["not UTF-8", "too large", "no YAML", "not fixed", "empty"],
)
def test_what_is_not_fixed_comes_out_byte_for_byte(
    command: LintCommand, text: bytes, status: int
) -> None:
    outcome = command.run_raw("fix", "-", stdin=text)
    assert (outcome.returncode, outcome.stdout == text) == (status, True)


def test_with_a_policy_that_cannot_be_used_standard_input_comes_out(command: LintCommand) -> None:
    command.write("gpuward.yaml", "rules: [")
    outcome = command.run("fix", "-", stdin=REQUEST)
    assert (outcome.status, outcome.out) == (2, REQUEST)


def test_a_rule_can_be_chosen(command: LintCommand) -> None:
    file = command.write("pod.yaml", REQUEST.replace("  tolerations", "  # tolerations"))
    outcome = command.run("fix", "--rule", "toleration-default", "pod.yaml")
    assert outcome.status == 1
    assert "error[request-only]" in outcome.out
    assert "effect: NoSchedule" in read(file)
    assert "limits:" not in read(file)
    outcome = command.run("fix", "--rule", "request-onyl", "pod.yaml")
    assert (outcome.status, outcome.out) == (2, "")
    assert 'did you mean "request-only"' in outcome.errors


@pytest.mark.parametrize("option", [["--rule", "request-only"], ["--unsafe-fixes"]])
def test_a_choice_of_fixes_without_fixing_is_wrong_usage(
    command: LintCommand, option: list[str]
) -> None:
    command.write("pod.yaml", REQUEST)
    outcome = command(*option, "pod.yaml")
    assert (outcome.status, outcome.out) == (2, "")
    assert f"{option[0]} chooses what to fix" in outcome.errors
    assert command(*option, "--patch", "pod.yaml").status == 1


def test_unsafe_fixes_are_made_only_on_demand(command: LintCommand) -> None:
    file = command.write("pod.yaml", TAKER)
    assert command.run("fix", "pod.yaml").status == 1
    assert read(file) == TAKER
    assert command.run("fix", "--unsafe-fixes", "pod.yaml").status == 0
    assert read(file) == TAKER.replace("value: all", "value: void")
    policy = "apiVersion: gpuward.io/v1\nkind: Policy\nrules: {visible-devices-env: {fix: false}}\n"
    command.write("gpuward.yaml", policy)
    file.write_text(TAKER)
    assert command.run("fix", "--unsafe-fixes", "pod.yaml").status == 1
    assert read(file) == TAKER


def test_a_renamed_resource_keeps_its_line(command: LintCommand) -> None:
    policy = "apiVersion: gpuward.io/v1\nkind: Policy\nrules: {unknown-gpu-resource: {fix: true}}\n"
    command.write("gpuward.yaml", policy)
    text = PLURAL + "---\n" + json.dumps(NAMED, indent=2)
    file = command.write("pods.yaml", text)
    assert command.run("fix", "--rule", "unknown-gpu-resource", "pods.yaml").status == 0
    assert read(file) == text.replace("nvidia.com/gpus", "nvidia.com/gpu")


def test_a_quota_with_a_renamed_key_is_evaluated_by_the_new_one(command: LintCommand) -> None:
    quota = "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: gpus, namespace: ml}\n"
    file = command.write("quota.yaml", f"{quota}spec: {{hard: {{limits.nvidia.com/gpu: 4}}}}\n")
    outcome = command.run("fix", "--unsafe-fixes", "quota.yaml")
    assert (outcome.status, outcome.errors) == (0, "")
    assert "{requests.nvidia.com/gpu: 4}" in read(file)


PLURAL = """\
apiVersion: v1
kind: Pod
metadata: {name: trainer}
spec:
  containers:
  - name: main
    image: example.com/trainer:1
    resources:
      limits:
        cpu: 2
        # one card of the new rack
        nvidia.com/gpus: '1'  # not two
        # enough for the data set
        memory: 64Gi
"""
NAMED = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "x"},
    "spec": {
        "containers": [
            {"name": "a", "image": "i", "resources": {"limits": {"nvidia.com/gpus": 1, "cpu": 1}}}
        ]
    },
}


@pytest.mark.parametrize(("old", "new"), [("'0.5'", "'1'"), ("0.5", "1"), ("500m", "1")])
def test_a_rounded_number_keeps_its_quotes(command: LintCommand, old: str, new: str) -> None:
    policy = "apiVersion: gpuward.io/v1\nkind: Policy\nrules: {fractional-gpu: {fix: true}}\n"
    command.write("gpuward.yaml", policy)
    text = PLURAL.replace("gpus: '1'", f"gpu: {old}")
    file = command.write("pod.yaml", text)
    command.run("fix", "--rule", "fractional-gpu", "pod.yaml")
    assert read(file) == text.replace(old, new)


def test_what_is_suppressed_stays(command: LintCommand) -> None:
    comment = "  # gpuward: ignore[request-only] set by a webhook"
    text = REQUEST.replace(" # one", comment) + "---\n" + REQUEST
    file = command.write("pods.yaml", text)
    assert "1 suppressed" in command.run("fix", "pods.yaml").out
    assert read(file) == REQUEST.replace(" # one", comment) + "---\n" + FIXED


def test_what_cannot_be_edited_stays_and_is_explained(command: LintCommand) -> None:
    text = REQUEST.replace("resources:\n", "resources: &r\n")
    file = command.write("pod.yaml", text + "---\n" + REQUEST)
    outcome = command.run("fix", "pod.yaml")
    assert outcome.status == 1
    assert read(file) == text + "---\n" + FIXED
    assert (
        "not fixed: pod.yaml:12:7: request-only: the value has an anchor, and a change would also "
        "change its aliases\n"
        '  by hand: add to spec.containers[0].resources: {limits: {nvidia.com/gpu: "1"}}\n'
    ) in outcome.out
    report = command.run("fix", "--output", "json", "pod.yaml").report
    (entry,) = report["not_fixed"]
    assert (entry["file"], entry["line"], entry["rules"]) == ("pod.yaml", 12, ["request-only"])
    assert report["summary"]["fixed"] == 0
    assert "pod.yaml:12:7: not fixed" in command.run("fix", "--diff", "pod.yaml").errors
    assert "pod.yaml:12:7: not fixed" in command.run("fix", "--output", "concise", ".").out


def test_what_is_not_fixed_is_reported_where_it_stands_after_other_fixes(
    command: LintCommand,
) -> None:
    file = command.write(
        "pod.yaml", REQUEST + "---\n" + REQUEST.replace("resources:", "resources: &r")
    )
    before = read(file).split("\n").index("      resources: &r") + 1
    diff = command.run("fix", "--diff", "pod.yaml")
    assert f"pod.yaml:{before}:7: not fixed" in diff.errors
    (entry,) = command.run("fix", "--output", "json", "pod.yaml").report["not_fixed"]
    assert entry["line"] == read(file).split("\n").index("      resources: &r") + 1 > before


def test_templates_are_refused_where_the_edit_could_be_inside_a_condition(
    command: LintCommand,
) -> None:
    text = REQUEST.replace("# limits are wanted", "# {{- end }}")
    file = command.write("pod.yaml", text)
    outcome = command.run("fix", "pod.yaml")
    assert (outcome.status, read(file)) == (1, text)
    assert "request-only: the file is a template" in outcome.out
    # Workflows of Argo have placeholders elsewhere.
    text = REQUEST.replace("example.com/trainer:1", '"{{inputs.parameters.image}}"')
    file.write_text(text)
    assert command.run("fix", "pod.yaml").status == 0


@pytest.mark.parametrize(
    "directive",
    [
        "#@ if data.values.gpu:",
        "#@ for name in names:",
        "#@overlay/match missing_ok=True",
        "# {% if gpu %}",
        "# {{#if gpu}}",
        "# [[ if .gpu ]]",
        "# <% if gpu %>",
        "#ifdef GPU",
        "# %{ if gpu }",
        "#%if gpu",
        "#:if gpu",
    ],
)
def test_templates_of_other_tools_are_refused_by_name(command: LintCommand, directive: str) -> None:
    text = REQUEST.replace("# limits are wanted", directive)
    file = command.write("pod.yaml", text)
    outcome = command.run("fix", "pod.yaml")
    assert (outcome.status, read(file)) == (1, text)
    assert (
        f"request-only: the file is a template: it has `{directive.removeprefix('# ')}`"
        in outcome.out
    )


@pytest.mark.parametrize(
    "comment",
    [
        *("# if you want, change it", "# see https://example.com/#@x", "#! a note", "#if"),
        *("# - if you want", "#-- for others", "#% of them"),
    ],
)
def test_a_comment_in_words_is_no_directive(command: LintCommand, comment: str) -> None:
    file = command.write("pod.yaml", REQUEST.replace("# limits are wanted", comment))
    assert command.run("fix", "pod.yaml").status == 0
    assert "limits:" in read(file)


@pytest.mark.parametrize(
    "placeholder",
    [
        *("${DEVICES:=void}", "$DEVICES", "__DEVICES__", "'%DEVICES%'", "'@DEVICES@'", "<devices>"),
        *("'#{DEVICES}#'", "((devices))", "(( grab meta.devices ))", "'{DEVICES}'", "'%{devices}'"),
        *("~DEVICES~", "'#DEVICES#'", "REPLACE_ME", "changeme", "your-devices"),
        *(
            "'ENC[AES256_GCM,data:x,type:str]'",
            "ref+vault://devices",
            "vault:secret/data/a#devices",
        ),
        "<path:secret/data/a#devices>",
    ],
)
def test_a_placeholder_is_never_removed(command: LintCommand, placeholder: str) -> None:
    text = TAKER.replace("value: all", f"value: {placeholder}")
    text += "    resources: {limits: {nvidia.com/gpu: 1}}\n"
    file = command.write("pod.yaml", text)
    outcome = command.run("fix", "pod.yaml")
    assert read(file) == text
    assert "a template fills in this text" in outcome.out


@pytest.mark.parametrize("value", ["all", "'0,1'", "GPU-8f4b2c3d", "MIG-1b2c", "nvidia.com/gpu=0"])
def test_a_list_of_devices_is_removed(command: LintCommand, value: str) -> None:
    text = TAKER.replace("value: all", f"value: {value}")
    text += "    resources: {limits: {nvidia.com/gpu: 1}}\n"
    file = command.write("pod.yaml", text)
    assert command.run("fix", "pod.yaml").status == 0
    assert "NVIDIA_VISIBLE_DEVICES" not in read(file)


def test_escapes_of_json_that_yaml_does_not_know_are_refused(command: LintCommand) -> None:
    file = command.write("pod.json", JSON_POD.replace("é", "\\ud83d\\ude00"))
    outcome = command.run("fix", "pod.json")
    assert outcome.status == 1
    assert "pairs of escapes" in outcome.out
    assert read(file) == JSON_POD.replace("é", "\\ud83d\\ude00")

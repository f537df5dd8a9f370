"""`gpuward report`: the same findings, without the names and values of the user who reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from lint.redaction import MAX_TEXTS, TooManyTextsError, redact
from lint.report import MAX_OBJECTS, main
from rules.base.json_values import pointer
from rules.engine.fixing import check
from tests.testkit.cases import Case, cases
from tests.testkit.for_every_case import for_every_case

SECRET = ("moon", "hunter2", "corp.example.com")
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: moon
  namespace: team-moon
  managedFields: [{manager: moon}]
  labels: {corp.example.com/cost-center: moon, nvidia.com/gpu.product: A100}
spec:
  template:
    spec:
      serviceAccountName: moon
      nodeSelector: {corp.example.com/zone: moon-1}
      containers:
        - name: moon
          image: registry.corp.example.com/moon/cuda-trainer:1.2
          command: [sh, -c, "login hunter2 && nvidia-smi"]
          env:
            - {name: NVIDIA_VISIBLE_DEVICES, value: all}
            - {name: PASSWORD, value: hunter2}
          volumeMounts: [{name: moon, mountPath: /moon}]
      volumes:
        - {name: moon, hostPath: {path: /dev/nvidia0}}
"""


def report(folder: Path, capsys: pytest.CaptureFixture[str], text: str, *options: str) -> str:
    (folder / "x.yaml").write_text(text)
    assert main([str(folder / "x.yaml"), "--isolated", *options]) == 0
    return capsys.readouterr().out


def test_it_has_the_findings_and_none_of_the_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = report(tmp_path, capsys, DEPLOYMENT)
    assert [word for word in SECRET if word in printed] == []
    (found,) = yaml.safe_load(printed)["objects"]
    rules = {line.split()[1] for line in found["findings"]}
    assert {"visible-devices-env", "device-hostpath"} <= rules
    (container,) = found["object"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example.com/cuda-trainer:1.2"
    assert container["command"][2] == "redacted redacted redacted nvidia-smi"
    assert found["object"]["metadata"]["labels"]["nvidia.com/gpu.product"]
    # What is printed can be printed again.
    assert report(tmp_path, capsys, yaml.safe_dump(found["object"], sort_keys=False)) == printed


def test_a_value_that_looks_like_a_word_of_the_api_is_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = report(tmp_path, capsys, DEPLOYMENT.replace("value: hunter2", "value: Hunter"))
    assert "Hunter" not in printed
    # Nor does a key of the user's make it one.
    text = "{apiVersion: v1, kind: Secret, metadata: {name: a}, stringData: {kind: Hunter}}"
    assert "Hunter" not in report(tmp_path, capsys, text)


def test_a_word_can_be_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "hunter2" in report(tmp_path, capsys, DEPLOYMENT, "--keep", "hunter2")


@for_every_case(cases()[::9])
def test_no_case_loses_or_gains_a_finding(case: Case) -> None:
    def findings(manifest: Any) -> list[tuple[str, str]]:
        found = check(manifest, case.rules, case.context).findings
        return [(each.rule, pointer(each.path)) for each in found]

    manifest = case.manifest
    assert findings(redact(manifest, findings)) == findings(manifest)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: [", "x.yaml:1"),
        ("# nothing\n", "there is no object in it"),
        (
            "apiVersion: v1\nkind: Pod\n---\n" * (MAX_OBJECTS + 1),
            f"objects are more than {MAX_OBJECTS}",
        ),
        (
            f"apiVersion: v1\nkind: Pod\nx: [{','.join(f'a{n}' for n in range(MAX_TEXTS + 1))}]",
            "different texts",
        ),
    ],
)
def test_what_cannot_be_reported_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, why: str
) -> None:
    (tmp_path / "x.yaml").write_text(text)
    assert main([str(tmp_path / "x.yaml"), "--isolated"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert why in captured.err


def test_the_number_of_evaluations_is_bounded() -> None:
    texts = [f"a{number}" for number in range(MAX_TEXTS + 1)]
    with pytest.raises(TooManyTextsError):
        redact({"kind": "Pod", "x": texts}, lambda _: None)

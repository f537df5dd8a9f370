"""The linter about keys of ConfigMaps and Secrets, whose values no report shows."""

from __future__ import annotations

import json

import pytest
import yaml

from reports import FORMATS
from tests.testkit.lint_command import LintCommand

RULE = "visible-devices-key"
POLICY = """\
apiVersion: gpuward.io/v1
kind: Policy
rules:
  visible-devices-key: {action: deny}
"""
MANIFESTS = """\
apiVersion: v1
kind: Secret
metadata: {name: credentials, namespace: ml}
stringData:
  FIRST: top secret
  NVIDIA_VISIBLE_DEVICES: GPU-0123
  LAST: top secret
---
apiVersion: v1
kind: Secret
metadata: {name: in-one-line, namespace: ml}
stringData: {FIRST: top secret, NVIDIA_VISIBLE_DEVICES: GPU-0123, LAST: top secret}
"""


@pytest.mark.parametrize("form", FORMATS)
def test_no_report_shows_a_value_of_a_secret(command: LintCommand, form: str) -> None:
    command.write("gpuward.yaml", POLICY)
    command.write("secret.yaml", MANIFESTS)
    outcome = command("secret.yaml", f"--output={form}")
    assert outcome.status == 1
    assert RULE in outcome.out
    assert "top secret" not in outcome.out
    assert "GPU-0123" not in outcome.out


SECRET = {"kind": "Secret", "apiVersion": "v1", "stringData": {"A": "top secret"}}
CONFIG_MAP = {
    "kind": "ConfigMap",
    "apiVersion": "v1",
    "metadata": {"name": "a"},
    "data": {"NVIDIA_VISIBLE_DEVICES": "GPU-0123"},
}
BESIDE_A_SECRET = {
    "one line": json.dumps({"kind": "List", "apiVersion": "v1", "items": [SECRET, CONFIG_MAP]}),
    "documents": f"{yaml.safe_dump(SECRET, sort_keys=False)}---\n"
    "data: {NVIDIA_VISIBLE_DEVICES: GPU-0123}\nkind: ConfigMap\napiVersion: v1\n",
    "embedded": """\
apiVersion: v1
kind: Secret
stringData:
  pod.yaml: |
    apiVersion: v1
    kind: ConfigMap
    data:
      PASSWORD: top secret
      NVIDIA_VISIBLE_DEVICES: GPU-0123
""",
}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("text", BESIDE_A_SECRET.values(), ids=BESIDE_A_SECRET)
def test_nor_one_beside_another_object(command: LintCommand, form: str, text: str) -> None:
    command.write("gpuward.yaml", POLICY)
    command.write("both.yaml", text)
    outcome = command("both.yaml", f"--output={form}")
    assert RULE in outcome.out
    assert "top secret" not in outcome.out


def test_the_place_is_that_of_the_key(command: LintCommand) -> None:
    command.write("gpuward.yaml", POLICY)
    command.write("secret.yaml", MANIFESTS)
    found = command.json("secret.yaml").report["findings"]
    assert [each["line"] for each in found] == [6, 12]


def test_a_comment_suppresses_it_and_by_default_it_is_off(command: LintCommand) -> None:
    command.write("secret.yaml", MANIFESTS)
    assert command.json("secret.yaml").found == {}
    command.write("gpuward.yaml", POLICY.replace("deny", "warn"))
    comment = "  # gpuward: ignore[visible-devices-key] a test\n"
    text = MANIFESTS.partition("---")[0].replace("GPU-0123\n", f"GPU-0123{comment}")
    command.write("secret.yaml", text)
    assert command.json("secret.yaml").found == {}


def test_items_of_lists_and_other_kinds(command: LintCommand) -> None:
    command.write("gpuward.yaml", POLICY)
    item = "{metadata: {name: a}, data: {NVIDIA_VISIBLE_DEVICES: all}}"
    command.write("list.yaml", f"apiVersion: v1\nkind: ConfigMapList\nitems: [{item}]\n")
    assert command.json("list.yaml").found == {RULE: "error"}
    other = "apiVersion: example.com/v1\nkind: Secret\nmetadata: {name: a}\n"
    command.write("other.yaml", other + "data: {NVIDIA_VISIBLE_DEVICES: all}\n")
    assert command.json("other.yaml").found == {}

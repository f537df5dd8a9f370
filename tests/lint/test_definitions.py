"""Of CustomResourceDefinitions, in which there are no pods, the linter reads the kind alone."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeyaml import Chunk, YamlError, read
from rules.base.json_values import as_object
from sources.sources import definition_head
from tests.testkit.lint_command import LintCommand

BYPASS = """\
apiVersion: v1
kind: Pod
metadata: {name: taker}
spec:
  containers:
    - name: main
      image: example.com/app:1
      env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}]
"""

DEFINITION = """\
# made by controller-gen
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: widgets.example.com
spec:
  group: example.com
  versions:
  - name: v1
    schema: {}
"""
HEAD = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n"
# What may begin another object, another document or a text that goes over several lines.
PIECES = (
    *("metadata:\n", "spec:\n", "status:\n", "spec: \n", "spec: {\n", "metadata: x\n"),
    *("  a: b\n", "  - c\n", "# d\n", "\n", " \n", "  ]\n", "  }\n", "  text\n", "  ? x\n"),
    *("kind: Pod\n", "kind : Pod\n", '"kind": Pod\n', "? kind\n: Pod\n", " kind: Pod\n"),
    *("- kind: Pod\n", "apiVersion: v1\n", "<<: {kind: Pod}\n", "<<: *a\n", "{kind: Pod}\n"),
    *("  x: &a {kind: Pod}\n", '  x: "\n', '  "\n', '"\n', "  x: '\n", "  '\n", "  x: |\n"),
    *("  x: [\n", "  x: {\n", "...\n", "---\n", "--- {kind: Pod}\n", "%YAML 1.1\n", "!!map\n"),
    *("\tkind: Pod\n", "\rkind: Pod\r", "\r\n", "\x85kind: Pod\x85", "\u2028kind: Pod\u2028"),
    "  # x\u2029kind: Pod\n",
)


def kind_of(text: str) -> object:
    """Return the kind in `text`; None if it is no object."""
    try:
        document = read(Chunk(text))
    except YamlError:
        return None
    return as_object(document.value).get("kind") if document else None


@settings(max_examples=2_000)
@given(st.sampled_from(("", HEAD)), st.lists(st.sampled_from((HEAD, *PIECES)), max_size=8))
def test_nothing_else_is_taken_for_a_definition(first: str, pieces: list[str]) -> None:
    text = "".join([first, *pieces])
    if definition_head(text):
        assert kind_of(text) in {None, "CustomResourceDefinition"}


@pytest.mark.parametrize("before", ["", "---\n", "\n# Source: chart/crds/widgets.yaml\n"])
def test_what_tools_write_is_one(before: str) -> None:
    start = DEFINITION.index("metadata")
    assert definition_head(f"{before}{DEFINITION}status: \n  a: b\n") == before + DEFINITION[:start]


def test_it_counts_as_an_object_and_what_follows_has_its_lines(command: LintCommand) -> None:
    command.write("crd.yaml", f"{DEFINITION}---\n{BYPASS}")
    report = command.json("crd.yaml").report
    assert report["summary"]["objects"] == 2
    assert {finding["line"] for finding in report["findings"]} == {19}


def test_what_is_in_it_is_not_read(command: LintCommand) -> None:
    command.write("crd.yaml", f"{DEFINITION}  broken: [\n")
    command.write("other.yaml", f"{DEFINITION}  broken: [\n".replace("Definition", "Definitions"))
    outcome = command("crd.yaml", "other.yaml")
    assert "other.yaml" in outcome.out
    assert "crd.yaml" not in outcome.out


def test_with_a_comment_about_rules_it_is_read(command: LintCommand) -> None:
    command.write("crd.yaml", f"{DEFINITION}  # gpuward: ignore[privileged-gpu]\n")
    assert "crd.yaml:11" in command("crd.yaml").out

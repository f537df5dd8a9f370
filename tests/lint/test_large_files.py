"""Tests of files that are read in parts: the findings are those of the whole file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from lint.linter import Linter
from policies.loading import default_policy
from reports.results import Results
from rules.profile.context import Context
from sources import large_files
from sources.policy_file import OnePolicy
from sources.sources import InputFile, StandardInput
from tests.testkit.cases import TODAY

POD = """\
apiVersion: v1
kind: Pod
metadata: {{name: pod-{n}}}
spec:
  containers:
    - name: main  # {comment}
      env:
        - {{name: NVIDIA_VISIBLE_DEVICES, value: all}}
"""
IGNORE = "gpuward: ignore[visible-devices-env] a test"
PODS = [POD.format(n=n, comment=IGNORE if n % 5 == 0 else "é") for n in range(60)]
DATA: list[Any] = [yaml.safe_load(pod) for pod in PODS]
UNTYPED = [{"metadata": pod["metadata"], "spec": pod["spec"]} for pod in DATA]


def items(indent: int, note: str = "") -> str:
    lines = []
    for pod in PODS:
        first, *rest = pod.splitlines()
        lines += [note] if note else []
        lines += [f"{' ' * indent}- {first}", *(f"{' ' * indent}  {line}" for line in rest)]
    return "\n".join(lines) + "\n"


LIST = {"apiVersion": "v1", "kind": "List"}
HEAD = "apiVersion: v1\nkind: List\nitems:\n"
TEXTS = {
    "documents": "---\n".join(PODS),
    "documents with Windows' line breaks": "---\n".join(PODS).replace("\n", "\r\n"),
    "a YAML List": f"apiVersion: v1\nitems:\n{items(0)}kind: List\nmetadata: {{}}\n",
    "an indented List": f"kind: List\napiVersion: v1\nitems:  # all\n\n# a\n{items(4)}",
    "comments above items": f"apiVersion: v1\nkind: List\nitems:\n{items(2, f'  # {IGNORE}')}",
    "a List after a pod": f"{PODS[0]}---\n{HEAD}{items(2)}---\n{PODS[1]}",
    "a typed YAML List": yaml.safe_dump(
        {"apiVersion": "v1", "kind": "PodList", "items": UNTYPED}, sort_keys=False
    ),
    "JSON of kubectl": json.dumps({"apiVersion": "v1", "items": DATA, "kind": "List"}, indent=4),
    "compact JSON": json.dumps({"metadata": {"a": "]}"}, **LIST, "items": DATA}),
    "a typed JSON List": json.dumps({"kind": "PodList", "apiVersion": "v1", "items": UNTYPED}),
    "a JSON List and more": json.dumps({**LIST, "items": DATA}) + "\n---\n" + PODS[0],
}


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is large, so that small texts are cut."""
    for module in ("sources.sources", "sources.large_files"):
        monkeypatch.setattr(f"{module}.LARGE_BYTES", 2000)
    monkeypatch.setattr(large_files, "PART_CHARACTERS", 900)
    monkeypatch.setattr("sources.large_files._BLOCK_BYTES", 77)


def linted(file: Path, *, in_parts: bool) -> Results:
    linter = Linter(OnePolicy(default_policy()), Context(TODAY))
    given = InputFile(str(file), str(file))
    linter.evaluate(large_files.split_large_inputs([given]) if in_parts else [given])
    linter.finish()
    return linter.results


def facts(results: Results) -> list[Any]:
    return [
        (f.finding.identity, f.pointer, *f.span[2:], f.excerpt.end_line, f.excerpt.end_column)
        for f in results.findings
    ]


@pytest.mark.parametrize("case", TEXTS)
def test_parts_have_the_findings_of_the_whole(tmp_path: Path, case: str) -> None:
    file = tmp_path / "pods.yaml"
    file.write_bytes(TEXTS[case].encode())
    given = InputFile(str(file), str(file))
    assert len([*large_files.split_large_inputs([given])]) > 3
    cut, whole = (linted(file, in_parts=in_parts) for in_parts in (True, False))
    assert facts(cut) == facts(whole)
    assert len(facts(cut)) + cut.suppressed >= 60
    for name in ("file_count", "objects", "pods", "suppressed", "remarks", "not_evaluated"):
        assert getattr(cut, name) == getattr(whole, name), name


LONG = "x" * 3000
# A text, and what is said about it.
REFUSED = {
    "a quoted line like an item": (
        f'{HEAD}- kind: Pod\n  a: "b\n' + "- kind: Pod\n" * 500 + '  c"\n' + items(0),
        "while scanning a quoted scalar",
    ),
    "no List": (f"apiVersion: v1\nitems:\n{items(0)}kind: Pod\n", "its kind is 'Pod', not List"),
    "no kind": (json.dumps({"apiVersion": "v1", "items": DATA}), "its kind is None, not List"),
    "a kind that comes too late": (
        json.dumps({"apiVersion": "v1", "items": UNTYPED, "kind": "PodList"}),
        "the kind PodList comes after the items: write it before them",
    ),
    "items twice": (f"{HEAD}{items(0)}items:\n- a\n", "the key 'items' is here twice"),
    "items twice in JSON": (
        json.dumps({**LIST, "items": DATA})[:-1] + ', "items": []}',
        "the key 'items' is here twice",
    ),
    "a torn List": (json.dumps({**LIST, "items": DATA})[:-40], "an item that is no JSON"),
    "items without a comma": (
        json.dumps({**LIST, "items": DATA}).replace("}, {", "} {"),
        "no comma after an item",
    ),
    "an item and a stray comma": (
        json.dumps({**LIST, "items": DATA}).replace("}, {", "},, {"),
        "an item that is no JSON",
    ),
    "a comma after the last item": (
        json.dumps({**LIST, "items": DATA})[:-2] + " ,\n]}",
        "a comma after the last item",
    ),
    "a comma before the first item": (
        json.dumps({**LIST, "items": DATA}).replace("[", "[,", 1),
        "while parsing a flow node",
    ),
    "members without a comma": (
        json.dumps({**LIST, "items": DATA})[:-1] + ' "metadata": {}}',
        "too much text after the items of a List, or no JSON",
    ),
    "a comma after the last member": (
        json.dumps({**LIST, "items": DATA})[:-1] + ",}",
        "too much text after the items of a List, or no JSON",
    ),
    "text behind": (f"{HEAD}{items(0)}]\n", "this is no List"),
    "no UTF-8": (f"{HEAD}{items(0)}- \udcff\n", "not UTF-8"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_cut_is_not_evaluated(tmp_path: Path, case: str) -> None:
    text, message = REFUSED[case]
    file = tmp_path / "pods.yaml"
    file.write_bytes(text.encode(errors="surrogateescape"))
    results = linted(file, in_parts=True)
    assert message in " ".join(failed.message for failed in results.not_evaluated)
    assert results.exit_status("error") == 3


WHOLE = {
    "anchors": f"kind: List\napiVersion: v1\nitems:\n- &a {{kind: A, b: {LONG}}}\n{items(0)}",
    "one long document": PODS[0] + f"      image: {LONG}\n",
    "the JSON of another tool": json.dumps({"items": [{"a": "b"}] * 1000}),
    "a List in flow style": "{kind: List, apiVersion: v1, items: [" + json.dumps(DATA)[1:] + "}",
}


@pytest.mark.parametrize("case", WHOLE)
def test_a_file_that_can_be_read_at_once_is(tmp_path: Path, case: str) -> None:
    file = tmp_path / "pods.json"
    file.write_text(WHOLE[case])
    cut, whole = (linted(file, in_parts=in_parts) for in_parts in (True, False))
    assert (facts(cut), cut.not_evaluated) == (facts(whole), [])


@pytest.mark.parametrize("item", ["- a: " + LONG * 4, "- kind: Pod\n" + "  # x\n" * 2000])
def test_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, item: str) -> None:
    file = tmp_path / "pods.yaml"
    file.write_text(f"{HEAD}{items(0)}{item}\n{items(0)}")
    monkeypatch.setattr("sources.large_files.MAX_BYTES", 4000)
    (failed,) = linted(file, in_parts=True).not_evaluated
    assert "an item larger than" in failed.message
    monkeypatch.undo()
    monkeypatch.setattr(large_files, "LARGE_BYTES", 2000)
    monkeypatch.setattr("sources.sources.LARGE_BYTES", 2000)
    monkeypatch.setattr(large_files, "MAX_STREAM_BYTES", 9000)
    (failed,) = linted(file, in_parts=True).not_evaluated
    assert failed.message == "the part beyond 0 MiB"


def test_standard_input_is_read_in_parts() -> None:
    content = TEXTS["JSON of kubectl"].encode()
    position = 0

    def read(size: int) -> bytes:
        nonlocal position
        position += size
        return content[position - size : position]

    linter = Linter(OnePolicy(default_policy()), Context(TODAY))
    linter.evaluate(large_files.split_large_inputs([StandardInput("<stdin>", read)]))
    assert (linter.results.pods, linter.results.file_count) == (60, 1)


def test_a_file_of_many_documents_is_read_in_linear_time(tmp_path: Path) -> None:
    """Not a measurement: where each document searches the whole file, this takes minutes."""
    words = " ".join(["many words"] * 100)
    file = tmp_path / "many.yaml"
    file.write_text("---\n".join(POD.format(n=n, comment=words) for n in range(4000)), "utf-8")
    assert linted(file, in_parts=False).pods == 4000

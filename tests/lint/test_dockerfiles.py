"""Dockerfiles, as BuildKit reads them: tests/oracles/dockerfile has made the table."""

from __future__ import annotations

import json

import pytest

from sources.container_files.dockerfile_words import MAX_VALUE_CHARACTERS, Variables, expand
from sources.container_files.dockerfiles import stages_of
from sources.container_files.settings import ContainerFileError
from tests.testkit.paths import ROOT

ROWS = [
    tuple(map(json.loads, line.split("\t")))
    for line in (ROOT / "tests" / "data" / "dockerfiles.tsv").read_text("utf-8").splitlines()
]


@pytest.mark.parametrize(("text", "answer"), ROWS)
def test_the_variables_of_each_stage_are_those_of_the_build(text: str, answer: object) -> None:
    stages = stages_of(text)
    if not isinstance(answer, list):  # nothing that a build refuses fails here
        return
    assert len(stages) == len(answer)
    for stage, wanted in zip(stages, answer, strict=True):
        values = {name: value.value for name, value in stage.environment.items()}
        found = {name: text for name, text in values.items() if name.endswith("_VISIBLE_DEVICES")}
        assert found.keys() == wanted.keys()
        # What cuts and replaces, as in `${X#a}`, is not known.
        assert found == {name: found[name] and wanted[name] for name in found} or None in {
            *found.values()
        }


def test_most_values_are_known() -> None:
    """The table has all operators alike, and those that are not read are half of them."""
    values = [
        value.value
        for text, answer in ROWS
        if isinstance(answer, list)
        for stage in stages_of(text)
        for value in stage.environment.values()
    ]
    assert values.count(None) / len(values) < 0.2


@pytest.mark.parametrize(
    "text",
    ["${X" * 100_000, "$X" * 100_000, "'" * 99_999, '"${X:-' * 50_000, "\\" * 100_000],
    ids=["open", "many", "quotes", "nested", "escapes"],
)
def test_a_hostile_value_ends_and_has_a_bound(text: str) -> None:
    value = expand(text, Variables({"X": "x" * MAX_VALUE_CHARACTERS}), "\\")
    assert value is None or len(value) <= MAX_VALUE_CHARACTERS


def test_what_a_trigger_runs_counts_each_time() -> None:
    with pytest.raises(ContainerFileError, match="more than 5000 instructions"):
        stages_of("FROM a AS b\n" + "ONBUILD RUN x\n" * 1_000 + "FROM b\n" * 10)


def test_a_stage_is_used_by_its_number() -> None:
    names = ("1", "00", "9", "-1", "9" * 10_000)
    copies = "".join(f"COPY --from={name} a b\n" for name in names)
    stages = stages_of("FROM a\n" * 3 + copies)
    assert [stage.is_used for stage in stages] == [False, True, False]

"""SARIF and the other reports: they are well-formed for findings from any text in any file."""

from __future__ import annotations

import io
import json
from functools import cache
from typing import Any
from xml.etree import ElementTree as ET

from jsonschema import Draft4Validator

from lint.evaluation import FixTask
from lint.fix.suggestions import edit_suggester
from lint.linter import Linter
from reports import FORMATS
from reports.formats import ReportStyle, writer_of
from reports.results import Results
from rules.profile.context import Context
from sources.policy_file import OnePolicy
from sources.sources import DISK, Source, source_of
from tests.fuzzing.lint import POLICY, refuse_faults
from tests.testkit.cases import TODAY
from tests.testkit.paths import ROOT

_SCHEMA = ROOT / "tests/data/schemas/sarif-2.1.0-rtm.5.json"
_STYLE = ReportStyle(notes=True)


def check(data: bytes) -> None:
    """Report on a file, whose name is the first line of `data`."""
    name, _, content = data.partition(b"\n")
    try:
        file_name = "fuzzed/" + name.decode().replace("\0", "") + ".yaml"
    except UnicodeDecodeError:
        return
    source = source_of(file_name, content, DISK)
    linter = Linter(OnePolicy(POLICY), Context(TODAY), FixTask(suggest=edit_suggester(notes=True)))
    linter.evaluate([source])
    linter.finish()
    refuse_faults(linter.results)
    texts = {form: _written(form, linter.results) for form in FORMATS}
    log = json.loads(texts["sarif"])
    error = next(_validator().iter_errors(log), None)
    assert error is None, error
    if isinstance(source, Source):
        _check_regions(log, source.text)
    for form in ("json", "gitlab", "rdjson"):
        json.loads(texts[form])
    ET.fromstring(texts["junit"])  # noqa: S314  # our own


def _written(form: str, results: Results) -> str:
    out = io.StringIO()
    writer_of(form)(out, results, _STYLE)
    text = out.getvalue()
    text.encode()  # no half of a surrogate pair
    return text


@cache
def _validator() -> Any:
    return Draft4Validator(json.loads(_SCHEMA.read_text(encoding="utf-8")))


def _check_regions(log: Any, text: str) -> None:
    """Every region is in the text, and no edit ends before it begins."""
    lines = text.split("\n")
    run = log["runs"][0]
    for result in run["results"]:
        for location in result["locations"]:
            _check_region(location["physicalLocation"]["region"], lines)
        for fix in result.get("fixes", ()):
            for change in fix["artifactChanges"]:
                for replacement in change["replacements"]:
                    _check_region(replacement["deletedRegion"], lines)


def _check_region(region: Any, lines: list[str]) -> None:
    start = region["startLine"], region.get("startColumn", 1)
    end = region.get("endLine", start[0]), region.get("endColumn", start[1])
    assert start <= end
    for line, column in (start, end):
        assert 1 <= line <= len(lines)
        assert 1 <= column <= len(lines[line - 1]) + 1

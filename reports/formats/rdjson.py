"""The JSON of the Reviewdog Diagnostic Format, from which reviewdog comments on a change."""

from __future__ import annotations

import json
from typing import Any, TextIO

from reports.entries import ReportEntry, entries_beside_findings, entry_of_finding
from reports.findings import LocatedFinding
from reports.formats import ReportStyle
from reports.results import Results
from sources import STANDARD_INPUT
from terminal import HOME_PAGE_URL

_SEVERITY_BY_LEVEL = {"error": "ERROR", "warning": "WARNING", "note": "INFO"}


def write(out: TextIO, results: Results, style: ReportStyle) -> None:
    """Write one result with a diagnostic for each entry."""
    diagnostics = [
        _diagnostic(entry_of_finding(located, ""), _range(located)) | _suggestions(located)
        for located in results.findings
        if located.level != "note" or style.notes
    ]
    for entry in entries_beside_findings(results, style):
        range_ = {"start": {"line": entry.line}} if entry.line else {}
        diagnostics.append(_diagnostic(entry, range_))
    report = {"source": {"name": "gpuward", "url": HOME_PAGE_URL}, "diagnostics": diagnostics}
    json.dump(report, out, indent=2)
    out.write("\n")


def _diagnostic(entry: ReportEntry, range_: dict[str, Any]) -> dict[str, Any]:
    location: dict[str, Any] = {"path": entry.file or STANDARD_INPUT}
    if range_:
        location["range"] = range_
    code = {"value": entry.code}
    if entry.page:
        code["url"] = entry.page
    return {
        "message": entry.description,
        "location": location,
        "severity": _SEVERITY_BY_LEVEL[entry.level],
        "code": code,
    }


def _suggestions(located: LocatedFinding) -> dict[str, Any]:
    """The edit that fixes the finding, if it is one edit: users accept each by itself."""
    if len(located.edits) != 1:
        return {}
    (edit,) = located.edits
    start, end = _position(edit.line, edit.byte), _position(edit.end_line, edit.end_byte)
    return {"suggestions": [{"range": {"start": start, "end": end}, "text": edit.text}]}


def _range(located: LocatedFinding) -> dict[str, Any]:
    span, excerpt = located.span, located.excerpt
    return {
        "start": _position(span.line, excerpt.start_byte),
        "end": _position(excerpt.end_line, excerpt.end_byte),
    }


def _position(line: int, byte: int) -> dict[str, int]:
    """Line and column, which counts bytes of UTF-8; the line alone if the column is too large."""
    return {"line": line, "column": byte} if byte else {"line": line}

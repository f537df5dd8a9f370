"""The JSON of the Reviewdog Diagnostic Format, from which reviewdog comments on a change."""

from __future__ import annotations

import json
from typing import Any, TextIO

from lint.report import Style
from lint.report.entries import HOME, Entry, finding_entry, other_entries
from lint.results import LocatedFinding, Results
from lint.sources import STANDARD_INPUT

_SEVERITIES = {"error": "ERROR", "warning": "WARNING", "note": "INFO"}
# To count the bytes before a column takes time; a longer line is hardly for people.
_MAX_COLUMN = 10_000


def write(out: TextIO, results: Results, style: Style) -> None:
    """Write one result with a diagnostic for each entry."""
    diagnostics = [
        _diagnostic(finding_entry(located, ""), _range(located))
        for located in results.findings
        if located.level != "note" or style.notes
    ]
    for entry in other_entries(results, style):
        range_ = {"start": {"line": entry.line}} if entry.line else {}
        diagnostics.append(_diagnostic(entry, range_))
    report = {"source": {"name": "gpuward", "url": HOME}, "diagnostics": diagnostics}
    json.dump(report, out, indent=2)
    out.write("\n")


def _diagnostic(entry: Entry, range_: dict[str, Any]) -> dict[str, Any]:
    location: dict[str, Any] = {"path": entry.file or STANDARD_INPUT}
    if range_:
        location["range"] = range_
    code = {"value": entry.code}
    if entry.page:
        code["url"] = entry.page
    return {
        "message": entry.description,
        "location": location,
        "severity": _SEVERITIES[entry.level],
        "code": code,
    }


def _range(located: LocatedFinding) -> dict[str, Any]:
    text, span = located.file.source.text, located.span
    end_line = span.line + text.count("\n", span.start, span.end)
    return {
        "start": _position(text, span.start, span.line),
        "end": _position(text, span.end, end_line),
    }


def _position(text: str, offset: int, line: int) -> dict[str, int]:
    """Line and column, which counts bytes of UTF-8; the line alone if the column is too large."""
    start = text.rfind("\n", 0, offset) + 1
    if offset - start > _MAX_COLUMN:
        return {"line": line}
    before = text[start:offset].encode(errors="surrogatepass")
    return {"line": line, "column": len(before) + 1}

"""Workflow commands of GitHub Actions, which become annotations of a run and a pull request."""

from __future__ import annotations

from collections import Counter
from typing import TextIO

from reports.entries import ReportEntry, entries
from reports.formats import ReportStyle, many
from reports.results import Results

_COMMAND_BY_LEVEL = {"error": "error", "warning": "warning", "note": "notice"}
_MAX_ANNOTATIONS = 10  # of a level that GitHub shows for a step
_DATA_ESCAPES = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_PROPERTY_ESCAPES = _DATA_ESCAPES | str.maketrans({":": "%3A", ",": "%2C"})


def write(out: TextIO, results: Results, style: ReportStyle) -> None:
    """Write one command for each entry."""
    counts: Counter[str] = Counter()
    for entry in entries(results, style):
        counts[entry.level] += 1
        properties = ",".join(f"{key}={value}" for key, value in _properties(entry).items())
        where = f"{entry.object}: " if entry.object else ""
        message = f"{where}{entry.description}".translate(_DATA_ESCAPES)
        out.write(f"::{_COMMAND_BY_LEVEL[entry.level]} {properties}::{message}\n")
    for level, count in counts.items():
        if count > _MAX_ANNOTATIONS:
            shown = f"GitHub shows {_MAX_ANNOTATIONS} of them as annotations"
            out.write(f"gpuward: {many(count, level)}: {shown}; the log has all\n")


def _properties(entry: ReportEntry) -> dict[str, str | int]:
    properties: dict[str, str | int] = {
        "title": f"gpuward: {entry.code}".translate(_PROPERTY_ESCAPES)
    }
    if entry.file:
        properties["file"] = entry.file.translate(_PROPERTY_ESCAPES)
        if entry.line:
            properties |= {"line": entry.line, "col": entry.column}
    return properties

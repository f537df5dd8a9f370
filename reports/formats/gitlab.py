"""The JSON of GitLab's Code Quality, which merge requests and pipelines show."""

from __future__ import annotations

import json
from typing import Any, TextIO

from reports.entries import ReportEntry, entries
from reports.formats import ReportStyle
from reports.results import Results
from sources import STANDARD_INPUT

_SEVERITY_BY_LEVEL = {"error": "critical", "warning": "major", "note": "info"}


def write(out: TextIO, results: Results, style: ReportStyle) -> None:
    """Write one list of all entries."""
    json.dump([_issue(entry) for entry in entries(results, style)], out, indent=2)
    out.write("\n")


def _issue(entry: ReportEntry) -> dict[str, Any]:
    return {
        "description": f"{entry.code}: {entry.description}",
        "check_name": entry.code,
        "fingerprint": entry.fingerprint,
        "severity": _SEVERITY_BY_LEVEL[entry.level],
        "location": {
            "path": entry.file or STANDARD_INPUT,
            "lines": {"begin": max(entry.line, 1)},
        },
    }

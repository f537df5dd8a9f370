"""JSON for programs; `docs/json-report.md` describes the shape, `version` changes when it does."""

from __future__ import annotations

import json
from typing import Any, TextIO

from lint.report import Style
from lint.results import Located, Results

VERSION = 1


def write(out: TextIO, results: Results, _style: Style) -> None:
    """Write `results`, notes included."""
    report = {
        "version": VERSION,
        "policy": results.policy or None,
        "findings": [_finding(located) for located in results.findings],
        "remarks": [remark._asdict() for remark in results.remarks],
        "passed_over": [passed._asdict() for passed in results.passed_over],
        "unjudged": [unjudged._asdict() for unjudged in results.unjudged],
        "summary": {
            "files": results.files,
            "objects": results.objects,
            "pods": results.pods,
            "components": results.components,
            "errors": results.count("error"),
            "warnings": results.count("warning"),
            "notes": results.count("note"),
            "fixable": results.fixable,
            "suppressed": results.suppressed,
            "excepted": results.excepted,
            "seconds": round(results.seconds, 3),
        },
    }
    json.dump(report, out, indent=2)
    out.write("\n")


def _finding(located: Located) -> dict[str, Any]:
    finding = located.finding
    ref = finding.object
    return {
        "rule": finding.rule,
        "level": located.level,
        "file": located.file.source.name,
        "line": located.span.line,
        "column": located.span.column,
        "pointer": located.pointer,
        "kind": ref.kind if ref else "",
        "namespace": ref.namespace if ref else "",
        "name": ref.name if ref else "",
        "container": finding.container_name,
        "message": finding.message,
        "help": finding.help,
        "fixable": finding.fixable,
        "identity": finding.identity,
    }

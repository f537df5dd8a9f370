"""JSON for programs; `docs/json-report.md` describes the shape, `version` changes when it does."""

from __future__ import annotations

import json
from typing import Any, TextIO

from reports.entries import fingerprints
from reports.findings import LocatedFinding
from reports.formats import ReportStyle
from reports.results import FixedFinding, Results

FORMAT_VERSION = 1
_REMARK_FIELDS = ("level", "file", "line", "column", "message")


def write(out: TextIO, results: Results, _style: ReportStyle) -> None:
    """Write `results`, notes included."""
    report = {
        "version": FORMAT_VERSION,
        "policy": results.policy or None,
        "findings": list(map(_finding, results.findings, fingerprints(results.findings))),
        "remarks": [dict(zip(_REMARK_FIELDS, remark, strict=False)) for remark in results.remarks],
        "skipped": [{"file": skipped.name, "why": skipped.why} for skipped in results.skipped],
        "not_evaluated": [failed._asdict() for failed in results.not_evaluated],
        "fixed": [_fixed(entry) for entry in results.fixed],
        "not_fixed": [entry._asdict() for entry in results.not_fixed],
        "not_written": [failed._asdict() for failed in results.not_written],
        "summary": {
            "files": results.file_count,
            "renderings": results.renderings,
            "objects": results.objects,
            "pods": results.pods,
            "components": results.components,
            "errors": results.count("error"),
            "warnings": results.count("warning"),
            "notes": results.count("note"),
            "fixable": results.fixable_count,
            "fixed": len(results.fixed),
            "suppressed": results.suppressed,
            "excepted": results.excepted,
            "baselined": results.baselined,
            "seconds": round(results.seconds, 3),
        },
    }
    if results.pods_without_gpu:
        report["pods_without_gpu"] = [each._asdict() for each in results.pods_without_gpu]
    json.dump(report, out, indent=2)
    out.write("\n")


def _finding(located: LocatedFinding, mark: str) -> dict[str, Any]:
    finding = located.finding
    ref = finding.object
    return {
        "rule": finding.rule,
        "level": located.level,
        "file": located.file,
        "line": located.span.line,
        "column": located.span.column,
        "pointer": located.pointer,
        "kind": ref.kind if ref else "",
        "namespace": ref.namespace if ref else "",
        "name": ref.name if ref else "",
        "owner": _owner(located),
        "objects": located.object_count,
        "rendered_by": located.rendered_by,
        "rendered_line": located.rendered_line,
        "container": finding.container_name,
        "message": finding.message,
        "help": finding.help,
        "fixable": finding.fixable,
        "remedy": finding.remedy,
        "identity": finding.identity,
        "fingerprint": mark,
    }


def _owner(located: LocatedFinding) -> dict[str, str]:
    owner = located.owner
    return {"kind": owner.kind if owner else "", "name": owner.name if owner else ""}


def _fixed(entry: FixedFinding) -> dict[str, Any]:
    finding = entry.finding
    return {
        "rule": finding.rule,
        "file": entry.file,
        "container": finding.container_name,
        "message": finding.message,
        "fix": finding.fix,
        "identity": finding.identity,
    }

"""One line a finding: `file:line:column: level rule: message`, or the object for the file."""

from __future__ import annotations

from typing import TextIO

from reports.formats import (
    ReportStyle,
    affected_objects_text,
    fixed_files,
    line_prefix,
    position_text,
    why_not_fixed,
)
from reports.results import Results
from terminal import printable


def write(out: TextIO, results: Results, style: ReportStyle) -> None:
    """Write `results`, notes only if the style asks for them."""
    for located in results.findings:
        if located.level != "note" or style.notes:
            where = (
                position_text(located)
                or f"{affected_objects_text(located)}: {located.pointer_in_object}"
            )
            what = f"{located.level} {located.finding.rule}: {located.finding.message}"
            out.write(f"{printable(where)}: {printable(what)}\n")
    for remark in results.remarks:
        if remark.is_visible(notes=style.notes):
            where = printable(line_prefix(remark.file, remark.line, remark.column))
            out.write(f"{where}{remark.level}: {printable(remark.message)}\n")
    out.writelines(
        f"{printable(skipped.name)}: skipped: {printable(skipped.why)}\n"
        for skipped in (() if style.quiet else results.skipped)
    )
    for failed in results.not_evaluated:
        where = printable(f"{failed.file}:{failed.line}:{failed.column}: " if failed.file else "")
        out.write(f"{where}not evaluated: {printable(failed.message)}\n")
    out.writelines(f"{printable(file)}: fixed: {rules}\n" for file, rules in fixed_files(results))
    for entry in results.not_fixed:
        where = f"{entry.file}:{entry.line}:{entry.column}"
        out.write(f"{printable(where)}: not fixed: {printable(why_not_fixed(entry))}\n")
    for failed in results.not_written:
        out.write(f"{printable(failed.file)}: not written: {printable(failed.message)}\n")

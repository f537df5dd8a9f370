"""The number of findings of each rule: the option `--statistics`."""

from __future__ import annotations

from collections import defaultdict
from typing import TextIO

from reports.findings import LEVEL_BY_ACTION, LocatedFinding
from reports.formats import ReportStyle, write_table
from reports.formats.text import write_after_findings
from reports.results import Results
from rules.finding import Action


def write(out: TextIO, results: Results, style: ReportStyle) -> None:
    """Write one line for each rule, most findings first, then the rest of the text report."""
    found: dict[tuple[Action, str], list[LocatedFinding]] = defaultdict(list)
    for located in results.findings:
        if located.level != "note" or style.notes:
            found[located.finding.action, located.finding.rule].append(located)
    if found:
        lines = [
            (
                str(len(same)),
                LEVEL_BY_ACTION[action],
                rule,
                *map(str, _file_object_and_fix_counts(same)),
            )
            for (action, rule), same in sorted(found.items(), key=lambda item: item[0][1])
        ]
        lines.sort(key=lambda line: -int(line[0]))
        write_table(out, [("FINDINGS", "LEVEL", "RULE", "FILES", "OBJECTS", "FIXABLE"), *lines])
        out.write("\n")
    write_after_findings(out, results, style)


def _file_object_and_fix_counts(found: list[LocatedFinding]) -> tuple[int, int, int]:
    """In how many files and objects, and how many of them can be fixed."""
    files = {located.file for located in found}
    owners = {(located.file, located.finding.object_identity) for located in found}
    return len(files), len(owners), sum(located.finding.fixable for located in found)

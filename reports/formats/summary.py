"""Two tables for operators: faults by namespace, owner and rule; and the rules with their sums.

Remarks come from no rule, and are below the tables.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NamedTuple, TextIO

from reports.findings import LEVEL_BY_ACTION, LocatedFinding
from reports.formats import ReportStyle, write_table
from reports.formats.text import write_after_findings
from reports.results import Results
from rules.finding import Action

_NONE_TEXT = "<none>"


class _SummaryRow(NamedTuple):
    """One line of the first table: most severe first within an owner."""

    cluster: str
    namespace: str
    owner: str
    severity: int
    rule: str


def write(out: TextIO, results: Results, style: ReportStyle) -> None:
    """Write `results`, notes only if the style asks for them, then the rest of the text report."""
    shown = [f for f in results.findings if f.level != "note" or style.notes]
    if shown:
        write_table(out, _by_owner(shown))
        out.write("\n")
        write_table(out, _by_rule(shown))
        out.write("\n")
    write_after_findings(out, results, style)


def _by_owner(findings: Iterable[LocatedFinding]) -> list[tuple[str, ...]]:
    objects: Counter[_SummaryRow] = Counter()
    for located in findings:
        row = _row(located)
        objects[row] = max(objects[row], located.object_count)
    head = ("CLUSTER", "NAMESPACE", "OWNER", "LEVEL", "RULE", "OBJECTS")
    lines: list[tuple[str, ...]] = [
        (
            row.cluster,
            row.namespace,
            row.owner,
            LEVEL_BY_ACTION[Action(-row.severity)],
            row.rule,
            str(count),
        )
        for row, count in sorted(objects.items())
    ]
    table = [head, *lines]
    # Files have no cluster, and one cluster needs no name.
    return table if any(row.cluster for row in objects) else [line[1:] for line in table]


def _row(located: LocatedFinding) -> _SummaryRow:
    owner = located.owner
    namespace = owner.namespace if owner else ""
    name = f"{owner.kind}/{owner.name or _NONE_TEXT}" if owner else ""
    severity = -located.finding.action
    cluster = "" if located.span.line else located.file
    return _SummaryRow(
        cluster, namespace or _NONE_TEXT, name or _NONE_TEXT, severity, located.finding.rule
    )


def _by_rule(findings: Iterable[LocatedFinding]) -> list[tuple[str, ...]]:
    rows: dict[tuple[int, str], set[_SummaryRow]] = defaultdict(set)
    for row in map(_row, findings):
        rows[row.severity, row.rule].add(row)
    head = ("LEVEL", "RULE", "NAMESPACES", "OWNERS")
    lines = [
        (LEVEL_BY_ACTION[Action(-severity)], rule, _namespaces(found), str(len(found)))
        for (severity, rule), found in sorted(rows.items())
    ]
    return [head, *lines]


def _namespaces(rows: Iterable[_SummaryRow]) -> str:
    return str(len({(row.cluster, row.namespace) for row in rows}))

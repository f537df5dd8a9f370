"""The number of findings of a cluster on each day, kept beside the reports of an audit.

A report has only what the last audit found. So a report of the cluster, without results, keeps one
line for each of the last days in an annotation. No other storage is needed, and nothing is counted
twice by dashboards, which read results.
"""

from __future__ import annotations

import datetime
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from cluster.api.connection import Connection
from cluster.audit.policy_reports import MANAGED_BY, SOURCE, ReportKind, ReportWriter
from cluster.source.api_server import ApiServerSource
from cluster.source.objects import Object
from reports.findings import LocatedFinding
from rules.base.json_values import as_object, as_text

NAME = "gpuward-trend"
ANNOTATION = "gpuward.io/trend"
MAX_DAYS = 90
_MAX_CHARACTERS = 50 * MAX_DAYS
# For example `2026-11-26 12 3`: errors, then warnings.
_LINE_PATTERN = re.compile(r"(\d{4}-\d{2}-\d{2}) (\d{1,9}) (\d{1,9})", re.ASCII)


class Day(NamedTuple):
    """The result of the last audit of a day. The day begins and ends in UTC."""

    date: datetime.date
    errors: int
    warnings: int


def days_of(report: Object) -> tuple[Day, ...]:
    """The days that the report of the cluster keeps, the oldest first, without odd lines.

    Users who may write reports can write anything into it.
    """
    annotations = as_object(as_object(report.get("metadata")).get("annotations"))
    text = as_text(annotations.get(ANNOTATION))[:_MAX_CHARACTERS]
    days = {}
    for line in text.splitlines():
        if found := _LINE_PATTERN.fullmatch(line):
            try:
                date = datetime.date.fromisoformat(found[1])
            except ValueError:  # such as 2026-02-30
                continue
            days[date] = Day(date, int(found[2]), int(found[3]))
    return tuple(days[date] for date in sorted(days)[-MAX_DAYS:])


def with_today(
    days: Sequence[Day], today: datetime.date, findings: Iterable[LocatedFinding]
) -> tuple[Day, ...]:
    """The days with what is found today, and no more than are kept."""
    counts = Counter(found.level for found in findings)
    earlier = [day for day in days if day.date < today]
    return (*earlier, Day(today, counts["error"], counts["warning"]))[-MAX_DAYS:]


def report_of(kind: ReportKind, days: Iterable[Day]) -> Object:
    """The report of the cluster with these days."""
    text = "".join(f"{day.date} {day.errors} {day.warnings}\n" for day in days)
    return {
        "apiVersion": f"{kind.cluster.group}/{kind.cluster.versions[0]}",
        "kind": kind.cluster.kind,
        "metadata": {
            "name": NAME,
            "labels": {MANAGED_BY: SOURCE},
            "annotations": {ANNOTATION: text},
        },
    }


def publish_trend(
    connection: Connection,
    kind: ReportKind,
    findings: Iterable[LocatedFinding],
    today: datetime.date,
    wait: Callable[[float], object] = time.sleep,
) -> None:
    """Add what an audit of the whole cluster has found to the days. Raises SourceError."""
    source = ApiServerSource(connection)
    listed = source.list(kind.cluster, labels=f"{MANAGED_BY}={SOURCE}")
    before = next((raw for raw in listed if as_object(raw.get("metadata")).get("name") == NAME), {})
    report = report_of(kind, with_today(days_of(before), today, findings))
    ReportWriter(connection, kind, wait).request("PATCH", report)

"""Keep what an audit has found in the cluster: in reports, and in Events."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from cluster.api.connection import Connection
from cluster.audit.audit import AuditResult
from cluster.audit.policy_reports import publish
from cluster.audit.sinks import write_events
from cluster.source.objects import SourceError
from cluster_commands.audit.report_kinds import ReportKind
from lint.report import many
from reports.findings import LocatedFinding
from terminal import printable


def kept_findings(result: AuditResult, *, notes: bool) -> list[LocatedFinding]:
    """The findings that are kept: with `notes`, notes too."""
    return [found for found in result.results.findings if notes or found.level != "note"]


def keep(
    connection: Connection,
    result: AuditResult,
    namespace: str | None,
    on_error: Callable[[SourceError], object],
    *,
    reports: ReportKind | None,
    events: bool,
    notes: bool,
    wait: Callable[[float], object] = time.sleep,
) -> Iterator[str]:
    """Keep the findings in `reports`, and in `events`; yields what has been done, in words.

    What cannot be written is given to `on_error`. `wait` waits so many seconds.
    """
    findings = kept_findings(result, notes=notes)
    # What could not be listed, or evaluated, may still have what an earlier audit found in it.
    more = ""
    if not result.listed_all:
        more = "; earlier reports stay, as not everything was listed"
    elif result.incomplete:
        homes = many(len(result.incomplete), "namespace")
        more = f"; earlier reports of {homes} stay, as not everything there was evaluated"
    try:
        if reports:
            count = publish(
                connection,
                reports,
                findings,
                namespace,
                on_error,
                prune=result.listed_all,
                incomplete=result.incomplete,
                wait=wait,
            )
            yield f"{many(count, 'report')} published{more}"
    except SourceError as error:
        on_error(error)
    try:
        if events:
            identities = result.identities
            done = write_events(connection, findings, identities, on_error, wait=wait)
            workloads = f"{done.workloads:,} of {many(done.total, 'workload')}"
            yield f"Events written at {workloads} with errors"
            if done.invalid:
                first = printable(done.invalid[0])
                yield f"{many(len(done.invalid), 'Event')} not accepted, first {first}"
    except SourceError as error:
        on_error(error)

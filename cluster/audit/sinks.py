"""Write what an audit has found as Events at the workloads, for `kubectl describe`."""

from __future__ import annotations

import datetime
import hashlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from cluster.api.connection import Connection
from cluster.api.errors import (
    ClusterError,
    ConflictError,
    ForbiddenError,
    InternalError,
    InvalidError,
    MissingError,
    NamespaceTerminatingError,
    UnavailableError,
)
from cluster.api.events import EventsClient, Regarding, WarningEvent
from cluster.audit.audit import AuditResult
from cluster.audit.facts import Identity
from cluster.audit.policy_reports import ReportKind, publish, with_help
from cluster.audit.trend import publish_trend
from cluster.source.api_server import RetryingConnection
from cluster.source.objects import SourceError
from reports.findings import LocatedFinding
from reports.formats import many
from rules.objects.object_ref import ObjectRef
from terminal import printable

MAX_WORKLOADS = 1_000
"""At so many workloads one audit writes Events."""
_SECONDS = 0.1  # between two workloads
_REASON, _ACTION = "GpuPolicyViolation", "Audit"
_MAX_FAILURES = 10  # namespaces
_NEEDED_RIGHTS = "; the account needs the rights to get, create and patch events.events.k8s.io"


class Written(NamedTuple):
    """At how many workloads there is an Event, and at how many there should be.

    `invalid` says at which of them the API server does not accept it, and why.
    """

    workloads: int
    total: int
    invalid: list[str]


def write_events(
    connection: Connection,
    findings: Iterable[LocatedFinding],
    identities: Mapping[ObjectRef, Identity],
    on_error: Callable[[SourceError], object],
    *,
    wait: Callable[[float], object] = time.sleep,
) -> Written:
    """Write an Event at each workload with errors.

    A workload is what controls the pods at fault. While it has the same errors, its Event counts
    the audits; with others, it gets another one. Ten workloads a second get one, and no more than
    `MAX_WORKLOADS`. What cannot be written in one namespace is given to `on_error`, and nothing
    more is written there. An Event that is not accepted for what is in it is no such error: the
    owner of the workload can bring that about. `wait` waits so many seconds. Raises SourceError.
    """
    requests = RetryingConnection(connection, wait)
    client = EventsClient(requests.request)
    errors = _errors_by_workload(findings, identities)
    failed: set[str] = set()  # namespaces
    invalid: list[str] = []
    written = 0
    for ref, found in islice(errors.items(), MAX_WORKLOADS):
        if ref.namespace in failed:
            continue
        try:
            written += _write(client, ref, identities[ref], found)
        except UnavailableError as error:
            if not isinstance(error, InternalError):
                raise SourceError(f"cannot write an Event at {ref}: {error}") from error
            requests.gives_up_on = InternalError
            failed.add(ref.namespace)
            on_error(SourceError(f"cannot write an Event at {ref}: {error}"))
        except InvalidError as error:
            invalid.append(f"{ref}: {error}")
        except ClusterError as error:
            failed.add(ref.namespace)
            needed = _NEEDED_RIGHTS if isinstance(error, ForbiddenError) else ""
            on_error(SourceError(f"cannot write an Event at {ref}: {error}{needed}"))
        if len(failed) == _MAX_FAILURES:
            raise SourceError(
                f"no more Events are written after errors in {len(failed)} namespaces"
            )
        wait(_SECONDS)
    return Written(written, len(errors), invalid)


def _errors_by_workload(
    findings: Iterable[LocatedFinding], identities: Mapping[ObjectRef, Identity]
) -> dict[ObjectRef, list[LocatedFinding]]:
    """The errors of each workload; of an object itself, if its owner was not listed."""
    found: dict[ObjectRef, list[LocatedFinding]] = defaultdict(list)
    for located in findings:
        refs = (located.owner, located.finding.object)
        known = [ref for ref in refs if ref is not None and ref in identities]
        if known and located.level == "error":
            found[known[0]].append(located)
    return found


def _write(
    client: EventsClient, ref: ObjectRef, identity: Identity, found: list[LocatedFinding]
) -> bool:
    """Write or count the Event; False if the workload, or its namespace, is gone."""
    messages = {f"[{located.finding.rule}] {with_help(located.finding)}" for located in found}
    note = printable("gpuward audit: " + "; ".join(sorted(messages)))
    key = hashlib.sha256(f"{identity.uid} {note}".encode()).hexdigest()[:16]
    regarding = Regarding(identity.api_version, ref.kind, ref.namespace, ref.name, identity.uid)
    # The same instance for every process that counts it: it cannot change.
    event = WarningEvent(regarding, _REASON, _ACTION, note, "gpuward-audit")
    try:
        client.count(f"{ref.name[:200].rstrip('-.')}.{key}", event)
    except (ConflictError, MissingError, NamespaceTerminatingError):
        return False
    return True


def findings_to_store(result: AuditResult, *, notes: bool) -> list[LocatedFinding]:
    """The findings that are kept: with `notes`, notes too."""
    return [found for found in result.results.findings if notes or found.level != "note"]


def store_findings(
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
    findings = findings_to_store(result, notes=notes)
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
            # A part of the findings would look as if there were fewer.
            if namespace is None and result.listed_all and not result.incomplete:
                today = datetime.datetime.now(datetime.UTC).date()
                publish_trend(connection, reports, findings, today, wait)
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

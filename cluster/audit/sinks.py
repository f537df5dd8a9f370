"""Write what an audit has found as Events at workloads and pods, for `kubectl describe`."""

from __future__ import annotations

import datetime
import hashlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
"""At so many workloads, and about so many faults of devices at pods, one audit writes Events."""
_SECONDS = 0.1  # between two workloads
_VIOLATION, _ACTION = "GpuPolicyViolation", "Audit"
_MAX_FAILURES = 10  # namespaces
_NEEDED_RIGHTS = "; the account needs the rights to get, create and patch events.events.k8s.io"


class Concern(NamedTuple):
    """The text of an Event about a workload or a pod, and its reason in one word."""

    ref: ObjectRef
    identity: Identity
    reason: str
    note: str


class Written(NamedTuple):
    """At how many objects there is an Event, and at how many there should be.

    `invalid` says at which of them the API server does not accept it, and why.
    """

    objects: int
    total: int
    invalid: list[str]


def write_events(
    connection: Connection,
    concerns: Sequence[Concern],
    on_error: Callable[[SourceError], object],
    *,
    wait: Callable[[float], object] = time.sleep,
) -> Written:
    """Write an Event about each concern.

    While the same is to say about an object, its Event counts the audits; for something else, it
    gets another one. Ten objects a second get one, and no more than `MAX_WORKLOADS`. What cannot be
    written in one namespace is given to `on_error`, and nothing more is written there. An Event
    that is not accepted for what is in it is no such error: the owner of the object can bring that
    about. `wait` waits so many seconds. Raises SourceError.
    """
    requests = RetryingConnection(connection, wait)
    client = EventsClient(requests.request)
    failed: set[str] = set()  # namespaces
    invalid: list[str] = []
    written = 0
    for concern in concerns[:MAX_WORKLOADS]:
        ref = concern.ref
        if ref.namespace in failed:
            continue
        try:
            written += _write(client, concern)
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
    return Written(objects=written, total=len(concerns), invalid=invalid)


def violations(
    findings: Iterable[LocatedFinding], identities: Mapping[ObjectRef, Identity]
) -> list[Concern]:
    """The errors of each workload, which is what controls the pods at fault.

    They are those of an object itself if its owner was not listed.
    """
    found: dict[ObjectRef, set[str]] = defaultdict(set)
    for located in findings:
        refs = (located.owner, located.finding.object)
        known = [ref for ref in refs if ref is not None and ref in identities]
        if known and located.level == "error":
            found[known[0]].add(f"[{located.finding.rule}] {with_help(located.finding)}")
    return [
        Concern(
            ref=ref, identity=identities[ref], reason=_VIOLATION, note="; ".join(sorted(messages))
        )
        for ref, messages in found.items()
    ]


def _write(client: EventsClient, concern: Concern) -> bool:
    """Write or count the Event; False if the object, or its namespace, is gone."""
    ref, identity = concern.ref, concern.identity
    note = printable(f"gpuward audit: {concern.note}")
    key = hashlib.sha256(f"{identity.uid} {note}".encode()).hexdigest()[:16]
    regarding = Regarding(
        api_version=identity.api_version,
        kind=ref.kind,
        namespace=ref.namespace,
        name=ref.name,
        uid=identity.uid,
    )
    # The same instance for every process that counts it: it cannot change.
    event = WarningEvent(
        regarding=regarding,
        reason=concern.reason,
        action=_ACTION,
        note=note,
        instance="gpuward-audit",
    )
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
            yield from _write_events(connection, result, findings, on_error, wait)
    except SourceError as error:
        on_error(error)


def _write_events(
    connection: Connection,
    result: AuditResult,
    findings: Iterable[LocatedFinding],
    on_error: Callable[[SourceError], object],
    wait: Callable[[float], object],
) -> Iterator[str]:
    faults = [
        Concern(
            ref=fault.pod, identity=Identity("v1", fault.uid), reason=fault.reason, note=fault.note
        )
        for fault in result.devices.faults()
    ]
    errors = violations(findings, result.identities)
    for concerns, what, which in (
        (faults, "fault", "of devices"),
        (errors, "workload", "with errors"),
    ):
        if concerns is faults and not faults:
            continue  # as in nearly every audit
        done = write_events(connection, concerns, on_error, wait=wait)
        yield f"Events written at {done.objects:,} of {many(done.total, what)} {which}"
        if done.invalid:
            first = printable(done.invalid[0])
            yield f"{many(len(done.invalid), 'Event')} not accepted, first {first}"

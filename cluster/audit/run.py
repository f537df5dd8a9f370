"""Run `gpuward audit`: audit once, or as a service, and report what was found."""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial

from cluster.audit.audit import AuditResult, Clusters, audit, audit_clusters
from cluster.audit.period import ALWAYS, Period
from cluster.source.contexts import is_several, options_of_clusters
from cluster.source.objects import ObjectReader, SourceError
from cluster.source.options import open_connection, open_source
from policies.loading import PolicyError
from reports.formats import ReportStyle, writer_of
from reports.outputs import plan_outputs
from sources.policy_file import PolicyChoice
from sources.sources import UsageError, reduce_garbage_collection
from terminal import use_color, use_hyperlinks, write_error


def run(options: argparse.Namespace, period: Period) -> int:
    """Audit what was created in the period as the options say; the exit status."""
    if options.interval is not None:
        from cluster.audit import service  # noqa: PLC0415  # few audits repeat

        return service.run(options)
    started = time.perf_counter()
    try:
        outputs = plan_outputs(options.reports, options.files, options.output)
        choice = PolicyChoice(options.policy, options.profile, isolated=options.isolated)
        found = choice.load()
        clusters = _clusters(options)
    except (UsageError, PolicyError, SourceError) as error:
        return _refuse(str(error))
    if options.files and (options.publish or options.events):
        option = "--publish" if options.publish else "--events"
        return _refuse(f"{option} writes into a cluster: leave --filename out")
    reduce_garbage_collection()
    refused_by = options.refused_by

    def audit_one(source: ObjectReader) -> AuditResult:
        return audit(source, found.policy, options.namespace, refused_by=refused_by, period=period)

    results, last = audit_clusters(clusters, audit_one)
    results.policy = found.file
    results.seconds = time.perf_counter() - started
    if results.reason_nothing_evaluated and not options.quiet:
        where = " ".join(options.files) or "the cluster"
        where += "s" if is_several(options) else ""
        where += f", namespace {options.namespace}" if options.namespace else ""
        where += ", of that time" if period != ALWAYS else ""
        write_error("gpuward", f"note: {where}: {results.reason_nothing_evaluated}")
    notes = options.notes or options.fail_on == "note"
    style = ReportStyle(notes=notes, quiet=options.quiet, fail_on=options.fail_on)
    # The files first: the program that reads standard output may close it early.
    is_written = outputs.write(results, style)
    out = sys.stdout
    color, links = use_color(options.color, out), use_hyperlinks(options.color, out)
    write = writer_of(outputs.standard_output_format)
    write(out, results, style._replace(color=color, hyperlinks=links))
    is_stored = last is None or _store_findings(options, last, notes=notes)
    if not (is_written and is_stored):
        return 2
    status = results.exit_status(options.fail_on)
    return 0 if status == 1 and options.exit_zero else status


def _clusters(options: argparse.Namespace) -> Clusters:
    """Return the openers of clusters, by context; the only one has no name. Raises SourceError."""
    if not is_several(options):
        source = open_source(options)
        return {"": lambda: source}
    return {name: partial(open_source, one) for name, one in options_of_clusters(options)}


def _refuse(why: str) -> int:
    write_error("gpuward", *why.split("\n"))
    return 2


def _store_findings(options: argparse.Namespace, result: AuditResult, *, notes: bool) -> bool:
    """Write the findings into the cluster, if the user wants it; whether that succeeded."""
    if not (options.publish or options.events):
        return True
    # Few audits write into the cluster.
    from cluster.audit.policy_reports import KINDS  # noqa: PLC0415
    from cluster.audit.sinks import store_findings  # noqa: PLC0415

    failed: list[SourceError] = []
    try:
        for done in store_findings(
            open_connection(options),
            result,
            options.namespace,
            failed.append,
            reports=KINDS.get(options.publish),
            events=options.events,
            notes=notes,
        ):
            if not options.quiet:
                write_error("gpuward", done)
    except SourceError as error:
        failed.append(error)
    for found in failed:
        _refuse(str(found))
    return not failed

"""The command `gpuward audit`."""

from __future__ import annotations

import argparse
import datetime
import sys
import time
from functools import partial

from cluster.audit.audit import AuditResult, Clusters, audit, audit_clusters
from cluster.audit.evaluation import REFUSERS
from cluster.audit.period import ALWAYS, Period, duration, instant
from cluster.service_options import STATUS_PORT, port, seconds_between
from cluster.source.contexts import is_several, options_of_clusters
from cluster.source.objects import ObjectReader, SourceError
from cluster.source.options import add_options, open_connection, open_source
from lint.options import add_policy_options, add_report_options
from policies.loading import PolicyError
from reports.formats import ReportStyle, writer_of
from reports.outputs import plan_outputs
from sources.policy_file import PolicyChoice
from sources.sources import UsageError, reduce_garbage_collection
from terminal import CommandParser, use_color, use_hyperlinks, write_error

_DESCRIPTION = """\
Evaluate the pods, workloads, quotas, LimitRanges and claims of a cluster by the rules of
gpuward lint. Findings in pods are reported once, at the object that controls them. Nothing
is changed, but with --publish the reports of the audit itself, and with --events its Events."""
_EPILOG = """\
The credentials are those that kubectl would use: from a kubeconfig file, or else from the
pod in which this runs. The account needs the right to list what is evaluated; what it may
not list is reported, and the rest is evaluated. Nodes and namespaces, if it may list them,
tell which running pods can use GPUs that they did not request, and which pods mode deny
would refuse.

exit status:
  0  nothing found that reaches --fail-on
  1  findings at or above --fail-on
  2  wrong usage, no credentials, a policy that cannot be used, or a report that cannot be
     written
  3  something could not be listed or evaluated, or there is no such namespace"""

# The words of `gpuward gpus` and `gpuward doctor` for two of the formats.
_VIEWS = {"table": "summary", "wide": "text"}


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    made = CommandParser(
        prog="gpuward audit",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_options(made, several=True)
    rules = made.add_argument_group("rules")
    add_policy_options(rules)
    rules.add_argument(
        "--refused-by",
        choices=REFUSERS,
        help="only what would be refused if it were created again: by the webhook in mode deny, "
        "after its fixes, or by the policies of gpuward export vap in this mode",
    )
    times = made.add_argument_group("only what was created at a time, such as in an outage")
    since = times.add_mutually_exclusive_group()
    since.add_argument(
        "--since",
        metavar="DURATION",
        type=duration,
        help="only objects that are not older: 45s, 30m, 2h, 1h30m",
    )
    since.add_argument(
        "--since-time",
        metavar="TIME",
        type=instant,
        help="only objects that were created then or later: 2031-03-01T02:10:00Z",
    )
    times.add_argument(
        "--until-time",
        metavar="TIME",
        type=instant,
        help="only objects that were created then or earlier",
    )
    reports = made.add_argument_group("report")
    add_report_options(reports, _VIEWS)
    reports.add_argument(
        "--exit-zero",
        action="store_true",
        help="status 0 although there are findings: for a job that only reports",
    )
    reports.add_argument(
        "--publish",
        choices=("policyreport", "openreports"),
        help="also keep the findings in the cluster, as PolicyReports (wgpolicyk8s.io/v1alpha2) or "
        "as Reports (openreports.io/v1alpha1), which are updated and deleted by the next audit",
    )
    reports.add_argument(
        "--events",
        action="store_true",
        help="also write an Event at each workload with errors, and at each pod with a device that "
        "is unhealthy or that another one has too; kubectl describe shows them",
    )
    service = made.add_argument_group("as a service")
    service.add_argument(
        "--interval",
        metavar="SECONDS",
        type=seconds_between,
        help="audit until told to stop, with so many seconds between two audits, log as JSON, and "
        "serve /healthz and /metrics",
    )
    service.add_argument(
        "--status-port",
        metavar="PORT",
        type=port,
        help=f"the port of /healthz and /metrics; default: {STATUS_PORT}",
    )
    service.add_argument(
        "--count-namespace",
        metavar="NAME",
        dest="counted_namespaces",
        action="append",
        default=[],
        help="also count the findings in this namespace apart; repeatable",
    )
    return made


def main(arguments: list[str]) -> int:
    """Audit as the command line says; the exit status."""
    options = make_parser().parse_args(arguments)
    if why := _contradiction(options):
        return _refuse(why)
    options.output = _VIEWS.get(options.output, options.output)
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
    period = _period(options)

    def run(source: ObjectReader) -> AuditResult:
        return audit(source, found.policy, options.namespace, refused_by=refused_by, period=period)

    results, last = audit_clusters(clusters, run)
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


def _period(options: argparse.Namespace) -> Period:
    """Return the period in which the audited objects were created."""
    first: datetime.datetime | None = options.since_time
    if options.since is not None:
        first = datetime.datetime.now(datetime.UTC) - options.since
    return Period(first, options.until_time)


def _contradiction(options: argparse.Namespace) -> str:
    """Return which options do not go together, and what to do; empty if all do."""
    first, last = period = _period(options)
    if period != ALWAYS and (options.interval is not None or options.publish):
        given = "--publish" if options.publish else "--interval"
        return f"{given} is about all objects: leave --since, --since-time and --until-time out"
    if first and last and first > last:
        return "--until-time is earlier than --since or --since-time"
    if is_several(options) and (options.publish or options.events or options.interval is not None):
        given = "--publish" if options.publish else "--events" if options.events else "--interval"
        return f"{given} is for one cluster: give one context"
    if options.interval is not None:
        if options.files or options.output or options.reports:
            return "--interval has no report: leave --filename, --output and --report out"
    elif options.status_port is not None or options.counted_namespaces:
        given = "--count-namespace" if options.status_port is None else "--status-port"
        return f"{given} is for an audit that runs as a service: add --interval SECONDS"
    return ""


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

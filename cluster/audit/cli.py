"""The command `gpuward audit`."""

from __future__ import annotations

import argparse
import datetime

from cluster.audit import REFUSERS
from cluster.audit.period import ALWAYS, Period, duration, instant
from cluster.service_options import STATUS_PORT, port, seconds_between
from cluster.source.contexts import is_several
from cluster.source.options import add_options
from lint.options import add_policy_options, add_report_options
from terminal import CommandParser, write_error

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


def main(arguments: list[str]) -> int:
    """Audit as the command line says; the exit status."""
    options = make_parser().parse_args(arguments)
    if why := _contradiction(options):
        write_error("gpuward", why)
        return 2
    options.output = _VIEWS.get(options.output, options.output)
    from cluster.audit.run import run  # noqa: PLC0415  # it takes long to load, and help and completion do without

    return run(options, _period(options))


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
        help="audit until told to stop, and wait so many seconds between two audits; log as JSON, "
        "and serve /healthz and /metrics; default: one audit",
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

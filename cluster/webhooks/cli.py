"""The commands `gpuward webhooks check`, `watch`, `policy` and `remove`.

They check whether the webhook works, report changes of its configurations, print the policy of the
cluster, and delete the configurations.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable
from functools import partial
from urllib.parse import urlsplit

from cluster.api.errors import ClusterError, ConfigurationKind, ConfigurationRef
from cluster.service_options import add_service_options, seconds
from cluster.webhooks.check import (
    CheckReport,
    check,
    check_certificate,
    retry_until_ok,
    send_sample,
    summary,
)
from cluster.webhooks.comparison import ExpectationError, read_expectation
from cluster.webhooks.removal import remove
from terminal import CommandParser, printable, write_error

# gpuward webhooks check

_CHECK_DESCRIPTION = """\
Read gpuward's webhook configurations, compare them with those that the release should
have, and call every address that they name, as API servers do: over TLS, trusting only
their caBundle. The request holds a pod that takes GPUs without requesting them. Nothing
is created or changed."""
_CHECK_EPILOG = """\
The credentials are those that kubectl would use: from a kubeconfig file, or else from
the pod in which this runs. They must allow getting the configurations.

To compare with what the chart has rendered for this release (gpuward-system is its
namespace):
  kubectl get configmap gpuward-registration -n gpuward-system \\
    -o jsonpath='{.data.expected\\.yaml}' | gpuward webhooks check --expected -

exit status: 0 all is well, 1 something is wrong, 2 wrong usage"""
_NOT_COMPARED = "note: not compared with what the release should have, see --expected\n"


def _add_check_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `check` alone."""
    parser.add_argument(
        "--address",
        metavar="HOST:PORT",
        type=_address,
        help="address to connect to instead of the Service, as with kubectl port-forward",
    )
    parser.add_argument(
        "--expected",
        metavar="FILE",
        help="also compare the configurations with those in this file, as the chart renders them; "
        "- is standard input",
    )
    parser.add_argument(
        "--tls-only",
        action="store_true",
        help="only check the certificate: for servers that demand a client certificate",
    )
    parser.add_argument(
        "--wait",
        metavar="SECONDS",
        type=seconds,
        default=0.0,
        help="how long to retry until everything works; default: 0",
    )


def _check(options: argparse.Namespace, refs: list[ConfigurationRef]) -> int:
    """Check the webhook and print the results; the exit status."""
    from cluster.api.client import KubernetesConfigurations  # noqa: PLC0415  # --help needs none of this
    from cluster.api.connection import Connection  # noqa: PLC0415

    try:
        expectation = read_expectation(options.expected) if options.expected else None
        connection = Connection.like_kubectl(options.kubeconfig, options.context)
    except (ClusterError, ExpectationError) as error:
        write_error("gpuward webhooks", error)
        return 1
    get = KubernetesConfigurations(connection).get_configuration
    probe = partial(check_certificate if options.tls_only else send_sample, address=options.address)
    report = retry_until_ok(
        lambda: check(get, probe, refs, expectation), options.wait, _report_retries()
    )
    _print(report, compared=expectation is not None)
    return 0 if report.ok else 1


def _report_retries() -> Callable[[CheckReport], None]:
    printed = set()

    def on_failure(report: CheckReport) -> None:
        for line in _error_lines(report, "not yet: "):
            if line not in printed:  # most attempts fail for the same reason
                write_error("gpuward webhooks", line)
            printed.add(line)
        sys.stderr.flush()

    return on_failure


def _print(report: CheckReport, *, compared: bool) -> None:
    for result in report.results:
        if result.ok:
            sys.stdout.write(printable(f"{result.subject}: {result.message}") + "\n")
    if report.ok:
        sys.stdout.write(f"the webhook works: {summary(report.entries)}\n")
        if not compared:
            sys.stdout.write(_NOT_COMPARED)
    sys.stdout.flush()
    for line in _error_lines(report):
        write_error("gpuward webhooks", line)
    for result in report.results:
        if result.warning:
            write_error("gpuward webhooks", f"warning: {result.subject}: {result.warning}")
    hints = dict.fromkeys(result.hint for result in report.results if result.hint)
    for hint in hints:
        sys.stderr.writelines(f"{printable(line)}\n" for line in hint.split("\n"))


def _error_lines(report: CheckReport, prefix: str = "") -> list[str]:
    return [
        f"{prefix}{result.subject}: {result.message}" for result in report.results if not result.ok
    ]


def _address(text: str) -> tuple[str, int]:
    try:
        place = urlsplit(f"//{text}")
        host, port = place.hostname, place.port
    except ValueError:
        host = port = None
    if not host or not port or place.path or place.username is not None:
        raise argparse.ArgumentTypeError(f"{text}: expected HOST:PORT")
    return host, port


# gpuward webhooks watch

_WATCH_DESCRIPTION = """\
Compare gpuward's webhook configurations with those that this release should have, when
they change and every ten seconds. Differences that persist are logged, become a
Kubernetes Event, and set a metric to 0. With --policy, a policy that cannot be used is
logged and becomes an Event. Nothing is changed without --repair. The certificate
controller does the same, so this command is for clusters without it."""
_WATCH_EPILOG = """\
The credentials are those of the pod in which this runs, or of a kubeconfig file. They must
allow getting and watching the configurations, and creating events in the namespace of the pod. The
events are about the pod that the variables POD_NAMESPACE, POD_NAME and POD_UID name;
without them, none is created."""


def _add_watch_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `watch`."""
    parser.add_argument(
        "--expected",
        metavar="FILE",
        required=True,
        help="the webhook configurations that this release should have, as the chart renders them",
    )
    parser.add_argument(
        "--policy",
        metavar="FILE",
        help="the policy of the webhook, to report also if that cannot be used",
    )
    parser.add_argument(
        "--replicas",
        metavar="HOST:PORT",
        type=_address,
        help="a name with the addresses of all replicas, to report also if the certificate that "
        "one of them serves expires soon",
    )
    parser.add_argument(
        "--server-name",
        metavar="NAME",
        help="the name to send to them; default: the host of --replicas",
    )
    parser.add_argument(
        "--repair",
        action="store_true",
        help="create a configuration again that somebody has deleted, which needs the rights to "
        "create and patch configurations of these names",
    )
    add_service_options(parser, 10.0, "comparisons")
    parser.add_argument(
        "--settle-seconds",
        metavar="SECONDS",
        type=seconds,
        default=180.0,
        help="seconds for which a difference must persist before it is reported, so that an "
        "upgrade is no change; default: 180",
    )


def _watch(options: argparse.Namespace) -> int:
    """Watch until SIGTERM or SIGINT; the exit status."""
    from cluster.api.client import KubernetesConfigurations  # noqa: PLC0415  # --help needs none of this
    from cluster.api.connection import Connection  # noqa: PLC0415
    from cluster.api.events import event_sender  # noqa: PLC0415
    from cluster.control_loop import Controller, ControlLoop, run_loop  # noqa: PLC0415
    from cluster.webhooks.served_certificates import (  # noqa: PLC0415
        CertificateWatch,
        served_validities,
    )
    from cluster.webhooks.watch import make_policy_watch, make_watch, watch_changes  # noqa: PLC0415

    def make() -> ControlLoop:
        connection = Connection.in_cluster(options.kubeconfig)
        controllers: list[Controller] = [
            make_watch(
                connection,
                options.expected,
                options.settle_seconds,
                options.interval,
                repair=options.repair,
            )
        ]
        if options.policy:
            controllers.append(make_policy_watch(connection, options.policy))
        if options.replicas:
            host, port = options.replicas

            def send_event(reason: str, text: str) -> None:
                event_sender(connection, reason, "CheckCertificates")(text)

            read = partial(served_validities, host, port, options.server_name or host)
            controllers.append(CertificateWatch(read, send_event))
        changes = KubernetesConfigurations(connection).changes
        watches = watch_changes(changes, _expected_refs(options.expected))
        return ControlLoop(controllers, options.interval, watches=watches)

    return run_loop(make, options.status_port, "webhooks")


def _expected_refs(expected: str) -> list[ConfigurationRef]:
    """The configurations that the file `expected` has; those of the chart while it has none."""
    try:
        return [*read_expectation(expected)]
    except ExpectationError:  # the watch reports it
        return [ConfigurationRef(kind, _NAME) for kind in _OPTIONS]


# gpuward webhooks policy

_POLICY_DESCRIPTION = """\
Print the policy of the release behind the registered webhooks, as a policy file:
  gpuward webhooks policy > cluster-policy.yaml
  gpuward audit --policy cluster-policy.yaml"""
_POLICY_EPILOG = """\
The credentials are those that kubectl would use. They must allow listing validating webhook
configurations, and getting the ConfigMap with the policy. If the policy cannot be used, the
webhook decides by an earlier one: gpuward policy check says so.

exit status: 0 printed, 1 not found or not readable, 2 wrong usage"""


def _print_policy(options: argparse.Namespace) -> int:
    """Print the policy of the cluster; the exit status."""
    from cluster.source.api_server import ApiServerSource  # noqa: PLC0415  # --help needs none of this
    from cluster.source.objects import SourceError  # noqa: PLC0415
    from cluster.source.options import open_connection  # noqa: PLC0415
    from cluster.source.release import read_policy  # noqa: PLC0415

    try:
        text = read_policy(ApiServerSource(open_connection(options)))
    except SourceError as error:
        write_error("gpuward webhooks", error)
        return 1
    if sys.stdout.isatty():
        text = "".join(f"{printable(line)}\n" for line in text.splitlines())
    sys.stdout.write(text)
    return 0


# gpuward webhooks remove

_DESCRIPTION = """\
Delete gpuward's webhook configurations, so that the API server no longer calls it.
A configuration that does not exist is no failure. Those of others are not deleted. If
gpuward may create deleted configurations again (registration.repair of the chart), that
permission is deleted first."""
_EPILOG = """\
The credentials are those that kubectl would use: from a kubeconfig file, or else from
the pod in which this runs. A tool that keeps the chart applied, such as Argo CD, creates
the configurations again.

exit status: 0 none exists any more, 1 one may still exist, 2 wrong usage

The same with kubectl alone:
  kubectl delete validatingwebhookconfiguration,mutatingwebhookconfiguration gpuward \\
    --ignore-not-found"""
_NAME = "gpuward"
# Validating first, because only this one refuses objects.
_OPTIONS = {ConfigurationKind.VALIDATING: "validating", ConfigurationKind.MUTATING: "mutating"}


def main(arguments: list[str]) -> int:
    """Run the subcommand; the exit status."""
    options = make_parser().parse_args(arguments)
    run: Callable[[argparse.Namespace], int] = options.run
    return run(options)


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    parser = CommandParser(
        prog="gpuward webhooks", description="The webhook configurations of a cluster."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    check = commands.add_parser(
        "check",
        help="call the webhook as API servers do, and say whether it works",
        description=_CHECK_DESCRIPTION,
        epilog=_CHECK_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    check.set_defaults(run=lambda options: _check(options, _refs(options)))
    watch = commands.add_parser(
        "watch",
        help="report changes of gpuward's webhook configurations, for use in a pod",
        description=_WATCH_DESCRIPTION,
        epilog=_WATCH_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    watch.set_defaults(run=_watch)
    _add_watch_options(watch)
    remove = commands.add_parser(
        "remove",
        help="delete gpuward's webhook configurations",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    remove.set_defaults(run=_run_removal)
    policy = commands.add_parser(
        "policy",
        help="print the policy by which the webhook decides, for gpuward audit --policy",
        description=_POLICY_DESCRIPTION,
        epilog=_POLICY_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    policy.set_defaults(run=_print_policy)
    _add_connection(policy)
    for command in (check, remove):
        _add_configurations(command)
    remove.add_argument(
        "--repair-binding",
        metavar="NAME",
        default="",
        help="the ClusterRoleBinding by which gpuward may create deleted configurations again, "
        "which is deleted first; default: CONFIGURATION-repair, if the configuration names that "
        "in its annotation gpuward.io/repair-binding",
    )
    _add_check_options(check)
    return parser


def _add_configurations(command: argparse.ArgumentParser) -> None:
    for option in _OPTIONS.values():
        command.add_argument(
            f"--{option}-configuration",
            metavar="NAME[,NAME]",
            type=_names,
            default=_NAME,
            help=f"the {option} webhook configurations; default: gpuward",
        )
    _add_connection(command)


def _add_connection(command: argparse.ArgumentParser) -> None:
    command.add_argument("--kubeconfig", metavar="FILE", help="the kubeconfig file to use")
    command.add_argument("--context", metavar="NAME", help="the context in it to use")


def _refs(options: argparse.Namespace) -> list[ConfigurationRef]:
    return [
        ConfigurationRef(kind, name)
        for kind, option in _OPTIONS.items()
        for name in getattr(options, f"{option}_configuration")
    ]


def _names(text: str) -> list[str]:
    names = [name for part in text.split(",") if (name := part.strip())]
    if not names:
        raise argparse.ArgumentTypeError("expected a name")
    return names


def _run_removal(options: argparse.Namespace) -> int:
    remaining = _remove(options, _refs(options))
    if remaining:
        for line in _kubectl_hint(options, remaining).splitlines():
            sys.stderr.write(f"{printable(line)}\n")
    return 1 if remaining else 0


def _remove(options: argparse.Namespace, refs: list[ConfigurationRef]) -> list[ConfigurationRef]:
    """Delete the configurations and print what happens; returns those that may remain."""
    from cluster.api.client import KubernetesConfigurations  # noqa: PLC0415  # --help needs none of this
    from cluster.api.connection import Connection  # noqa: PLC0415

    printed = set()

    def on_deleted(ref: ConfigurationRef, outcome: str) -> None:
        sys.stdout.write(f"{_kubectl_name(ref)}: {outcome}\n")

    def on_failed(ref: ConfigurationRef, reason: str) -> None:
        line = f"{_kubectl_name(ref)}: not deleted: {reason}"
        if line not in printed:  # most attempts fail for the same reason
            write_error("gpuward webhooks", line)
        printed.add(line)

    try:
        connection = Connection.like_kubectl(options.kubeconfig, options.context)
    except ClusterError as error:
        write_error("gpuward webhooks", error)
        return refs
    cluster = KubernetesConfigurations(connection)
    return remove(
        cluster,
        refs,
        on_deleted=on_deleted,
        on_failed=on_failed,
        repair_binding=options.repair_binding,
    )


def _kubectl_hint(options: argparse.Namespace, remaining: list[ConfigurationRef]) -> str:
    bindings = [f"clusterrolebinding/{options.repair_binding}"] if options.repair_binding else []
    names = [*bindings, *map(_kubectl_name, remaining)]
    command = ["kubectl", "delete", *names, "--ignore-not-found"]
    for option in ("kubeconfig", "context"):
        if value := getattr(options, option):
            command += [f"--{option}", value]
    text = "With sufficient rights, delete them by hand; kubectl does not check whose they are:"
    return f"{text}\n  {shlex.join(command)}\n"


def _kubectl_name(ref: ConfigurationRef) -> str:
    """The configuration as kubectl names it."""
    return f"{ref.kind.value}/{ref.name}"

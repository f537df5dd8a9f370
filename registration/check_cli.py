"""The command `gpuward webhooks check`: check whether the webhook works."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from urllib.parse import urlsplit

from cluster.durations import seconds
from cluster.protocols import ClusterError, ConfigurationRef
from cluster.webhooks.check import CheckReport, check, retry_until_ok, summary
from registration.expectation import ExpectationError, read_expectation
from registration.sample import check_certificate, send_sample
from terminal import printable, write_error

DESCRIPTION = """\
Read gpuward's webhook configurations, compare them with those that the release should
have, and call every address that they name, as API servers do: over TLS, trusting only
their caBundle. The request holds a pod that takes GPUs without requesting them. Nothing
is created or changed."""
EPILOG = """\
The credentials are those that kubectl would use: from a kubeconfig file, or else from
the pod in which this runs. They must allow getting the configurations.

To compare with what the chart has rendered for this release (gpuward-system is its
namespace):
  kubectl get configmap gpuward-registration -n gpuward-system \\
    -o jsonpath='{.data.expected\\.yaml}' | gpuward webhooks check --expected -

exit status: 0 all is well, 1 something is wrong, 2 wrong usage"""
_NOT_COMPARED = "note: not compared with what the release should have, see --expected\n"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `check` alone."""
    parser.add_argument(
        "--address",
        metavar="HOST:PORT",
        type=_address,
        help="Address to connect to instead of the Service, as with kubectl port-forward.",
    )
    parser.add_argument(
        "--expected",
        metavar="FILE",
        help="Also compare the configurations with those in this file, as the chart renders them; "
        "`-` is standard input.",
    )
    parser.add_argument(
        "--tls-only",
        action="store_true",
        help="Only check the certificate: for servers that demand a client certificate.",
    )
    parser.add_argument(
        "--wait",
        metavar="SECONDS",
        type=seconds,
        default=0.0,
        help="How long to retry until everything works. The default is 0.",
    )


def run(options: argparse.Namespace, refs: list[ConfigurationRef]) -> int:
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

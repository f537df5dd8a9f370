"""The command `gpuward certs`: run the certificate controller, or check a certificate.

Every option of `gpuward certs run` except --kubeconfig has an environment variable as its default.
"""

from __future__ import annotations

import argparse
import os
import secrets
import socket
import sys
from collections.abc import Callable
from typing import Any

from cluster.service_options import STATUS_PORT, port
from terminal import CommandParser, printable, write_error

_EPILOG = (
    "An option that is missing is read from an environment variable: --namespace from "
    "GPUWARD_CERTS_NAMESPACE, and so on. Only --kubeconfig has no variable."
)
_OBJECTS = {
    "--namespace": "namespace of the Service, the Secrets and the Lease",
    "--service": "the Service that API servers call",
    "--headless-service": "the headless Service with the addresses of all replicas",
    "--secret": "the Secret with the serving certificate, which the replicas mount; the controller "
    "creates this and the following objects if they do not exist",
    "--ca-secret": "the Secret with the CA and its key, which no pod mounts",
    "--lease": "the Lease that elects one controller as the leader",
    "--service-account": "the ServiceAccount of the controller: Kubernetes deletes the Secrets and "
    "the Lease that the controller has created when this account is deleted",
    "--mutating-configuration": "the mutating webhook configurations whose caBundle the "
    "controller writes, separated by commas",
    "--validating-configuration": "the validating webhook configurations, likewise",
    "--expected-registration": "the webhook configurations that the release should have, as the "
    "chart renders them; without it, the configurations are not compared with anything",
    "--policy": "the policy of the webhook, to report it if that cannot be used",
    "--also-trust": "CA certificates (PEM) to publish in caBundle beside those of gpuward, such as "
    "those of a CA that is being replaced",
}
_METAVARS = {"--also-trust": "PEM", "--expected-registration": "FILE", "--policy": "FILE"}
_TIMES = {
    "--ca-days": (365.0, "lifetime of a CA in days"),
    "--leaf-days": (90.0, "lifetime of a serving certificate in days"),
    "--propagation-minutes": (
        10.0,
        "minutes for which a new CA is in caBundle before it signs, so that API servers know it",
    ),
    "--settle-seconds": (
        180.0,
        "seconds for which a webhook configuration must differ before that is reported",
    ),
    "--interval": (10.0, "seconds between two reconciliations"),
}
_PORTS = {
    "--serving-port": (10250, "port on which the replicas serve the webhook"),
    "--status-port": (STATUS_PORT, "port on which this controller serves /healthz and /metrics"),
}


def main(arguments: list[str]) -> int:
    """Run the command with these command-line arguments, and return its exit status."""
    options = make_parser().parse_args(arguments)
    perform: Callable[[argparse.Namespace], int] = options.perform
    return perform(options)


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    parser = CommandParser(
        prog="gpuward certs", description="Certificates for the admission webhook."
    )
    verbs = parser.add_subparsers(required=True, metavar="COMMAND")
    run = verbs.add_parser(
        "run",
        help="create and renew the webhook's certificates in a cluster",
        description="Create and renew the webhook's CA and serving certificate, and write the CA "
        "into caBundle of the webhook configurations. Report changes of these configurations.",
        epilog=_EPILOG,
    )
    run.set_defaults(perform=_run)
    _add_objects(run)
    _add_numbers(run)
    check = verbs.add_parser(
        "check",
        help="check whether the webhook would serve a certificate",
        description="Check whether the webhook would serve the certificate in a folder, and print "
        "until when.",
        epilog="exit status: 0 it would be served, 1 it would be refused, 2 wrong usage",
    )
    check.add_argument("directory", metavar="DIRECTORY", help="the folder with tls.crt and tls.key")
    check.add_argument(
        "--name",
        help="a DNS name or IP address that the certificate must have, such as gpuward.gpuward.svc",
    )
    check.add_argument(
        "--client-ca", metavar="FILE", help="the CAs of client certificates (PEM), for mTLS"
    )
    check.set_defaults(perform=_check)
    return parser


def _add_objects(run: argparse.ArgumentParser) -> None:
    for name, text in _OBJECTS.items():
        _option(run, name, metavar=_METAVARS.get(name, "NAME"), help=text)
    run.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="a kubeconfig file to use instead of the service account of the pod",
    )
    _option(
        run,
        "--identity",
        metavar="NAME",
        default=socket.gethostname(),
        help="name of this process in the Lease; default: the host name",
    )


def _add_numbers(run: argparse.ArgumentParser) -> None:
    for name, (value, text) in _TIMES.items():
        help_text = f"{text}; default: {value:g}"
        _option(run, name, metavar="N", type=_positive, default=value, help=help_text)
    _option(
        run,
        "--repair-registration",
        metavar="true|false",
        type=_boolean,
        default="false",
        help="whether to create a webhook configuration again that somebody has deleted, with "
        "--expected-registration; default: false",
    )
    for name, (number, text) in _PORTS.items():
        help_text = f"{text}; default: {number}"
        _option(run, name, metavar="PORT", type=port, default=number, help=help_text)


def _option(parser: argparse.ArgumentParser, name: str, **keywords: Any) -> None:
    """Add an option that is read from an environment variable if it is missing."""
    # The prefix is not GPUWARD_: for a Service called gpuward, Kubernetes sets GPUWARD_PORT to an
    # address.
    variable = "GPUWARD_CERTS_" + name.removeprefix("--").upper().replace("-", "_")
    fallback = keywords.pop("default", None)
    parser.add_argument(name, default=os.environ.get(variable) or fallback, **keywords)


def _boolean(text: str) -> bool:
    if text not in {"true", "false"}:
        raise argparse.ArgumentTypeError(f"{text}: expected true or false")
    return text == "true"


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e5:  # noqa: PLR2004  # also refuses NaN
        raise argparse.ArgumentTypeError(f"{text}: expected a number above 0")
    return number


def _run(options: argparse.Namespace) -> int:
    required = ("namespace", "service", "headless_service", "secret", "ca_secret", "lease")
    missing = [name.replace("_", "-") for name in required if not getattr(options, name)]
    if not (options.mutating_configuration or options.validating_configuration):
        missing.append("mutating-configuration or --validating-configuration")
    if missing:
        return _fail(f"not given: --{', --'.join(missing)}", 2)
    from certs.keypairs import CertificateError  # noqa: PLC0415
    from cluster.control_loop import run_loop  # noqa: PLC0415  # `check` needs none of these
    from cluster.controllers.certificates import make_loop  # noqa: PLC0415

    options.identity = f"{options.identity}_{secrets.token_hex(4)}"

    try:
        return run_loop(lambda: make_loop(options), options.status_port, "certs")
    except CertificateError as error:
        return _fail(f"--also-trust: {error}", 2)


def _check(options: argparse.Namespace) -> int:
    if not os.path.isdir(options.directory):
        return _fail(f"{options.directory}: not a folder", 2)
    from certs.serving import ServingCertificate  # noqa: PLC0415

    certificate = ServingCertificate(options.directory, options.name, options.client_ca)
    if not certificate.reload():
        return _fail(f"{options.directory}: would be refused: {certificate.last_error}", 1)
    days = (certificate.expiry_seconds() or 0) / 86400
    line = (
        f"{options.directory}: would be served until {certificate.not_after:%Y-%m-%d %H:%M} UTC"
        f" ({days:.0f} days); for {', '.join(certificate.names)};"
        f" SHA-256 {certificate.fingerprint}"
    )
    sys.stdout.write(printable(line) + "\n")
    return 0


def _fail(message: str, status: int) -> int:
    write_error("gpuward certs", message)
    return status

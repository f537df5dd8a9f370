"""The command `gpuward certs`: run the certificate controller, or check a certificate."""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any

from certs.serving.certificate import ServingCertificate

_EPILOG = "GPUWARD_CERTS_NAMESPACE and so on stand in for options that are not given."
_OBJECTS = {
    "--namespace": "Namespace of the Service, the Secrets and the Lease.",
    "--service": "Name of the Service that API servers call.",
    "--headless-service": "Name of the headless Service that has the address of every replica.",
    "--secret": "Name of the Secret with the serving certificate, which the replicas mount.",
    "--ca-secret": "Name of the Secret for the authority and its key, which nobody mounts.",
    "--lease": "Name of the Lease by which one controller of several leads.",
    "--mutating-configuration": "Names of the mutating webhook configurations whose caBundle "
    "is kept, separated by commas.",
    "--validating-configuration": "Names of the validating ones.",
    "--also-trust": "Certificates (PEM) of authorities to publish beside ours, such as one that is "
    "being replaced.",
}
_TIMES = {
    "--ca-days": (365.0, "How many days an authority lives."),
    "--leaf-days": (90.0, "How many days a serving certificate lives."),
    "--propagation-minutes": (
        10.0,
        "How many minutes a new authority is published before it signs, for API servers to hear.",
    ),
    "--interval": (10.0, "How many seconds lie between two looks at everything."),
}
_PORTS = {
    "--serving-port": (10250, "Port on which the replicas serve."),
    "--status-port": (8081, "Port of /healthz and /metrics of this controller."),
}


def main(arguments: list[str]) -> int:
    """Do as the command line says; the exit status."""
    options = _parser().parse_args(arguments)
    perform: Callable[[argparse.Namespace], int] = options.perform
    return perform(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpuward certs", description="Certificates for the admission webhook."
    )
    verbs = parser.add_subparsers(required=True, metavar="COMMAND")
    run = verbs.add_parser(
        "run",
        help="make and renew the certificates in a cluster",
        description="Make and renew the webhook's certificates, and publish their authority.",
        epilog=_EPILOG,
    )
    run.set_defaults(perform=_run)
    _add_objects(run)
    _add_numbers(run)
    check = verbs.add_parser(
        "check",
        help="say whether a certificate would be served",
        description="Say whether the certificate in a folder would be served, and until when.",
        epilog="exit status: 0 it would be, 1 it would be refused, 2 wrong usage",
    )
    check.add_argument(
        "directory", metavar="DIRECTORY", help="The folder that holds tls.crt and tls.key."
    )
    check.add_argument("--name", help="A name that it must be for, such as gpuward.gpuward.svc.")
    check.add_argument("--client-ca", metavar="FILE", help="The authorities of clients, for mTLS.")
    check.set_defaults(perform=_check)
    return parser


def _add_objects(run: argparse.ArgumentParser) -> None:
    for name, text in _OBJECTS.items():
        _option(run, name, metavar="PEM" if name == "--also-trust" else "NAME", help=text)
    run.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="Credentials to use instead of those of the pod that this runs in.",
    )
    _option(
        run,
        "--identity",
        metavar="NAME",
        default=socket.gethostname(),
        help="What this process is called in the Lease. The default is the host's name.",
    )


def _add_numbers(run: argparse.ArgumentParser) -> None:
    for name, (days, text) in _TIMES.items():
        told = f"{text} The default is {days:g}."
        _option(run, name, metavar="N", type=_positive, default=days, help=told)
    for name, (port, text) in _PORTS.items():
        told = f"{text} The default is {port}."
        _option(run, name, metavar="PORT", type=int, default=port, help=told)


def _option(parser: argparse.ArgumentParser, name: str, **keywords: Any) -> None:
    """Add an option whose default is an environment variable."""
    # Not GPUWARD_PORT: Kubernetes sets that to an address where a Service is called gpuward.
    variable = "GPUWARD_CERTS_" + name.removeprefix("--").upper().replace("-", "_")
    otherwise = keywords.pop("default", None)
    parser.add_argument(name, default=os.environ.get(variable) or otherwise, **keywords)


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < 1e5:  # noqa: PLR2004  # also refuses what is no number
        raise argparse.ArgumentTypeError(f"{text}: expected a number above 0")
    return number


def _run(options: argparse.Namespace) -> int:
    needed = ("namespace", "service", "headless_service", "secret", "ca_secret", "lease")
    missing = [name.replace("_", "-") for name in needed if not getattr(options, name)]
    if not (options.mutating_configuration or options.validating_configuration):
        missing.append("mutating-configuration or --validating-configuration")
    if missing:
        return _fail(f"not given: --{', --'.join(missing)}", 2)
    from certs.controller.factory import log_as_json, make_controller  # noqa: PLC0415
    from certs.controller.status import serve  # noqa: PLC0415
    from certs.pki.keypairs import CertificateError  # noqa: PLC0415
    from cluster.api import ClusterError  # noqa: PLC0415  # `check` needs none of this

    log_as_json()
    options.identity = f"{options.identity}_{secrets.token_hex(4)}"
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        controller = make_controller(options)
        server = serve(controller.status, options.status_port)
    except CertificateError as error:
        return _fail(f"--also-trust: {error}", 2)
    except (ClusterError, OSError) as error:
        return _fail(str(error), 1)
    controller.run(stop)
    server.shutdown()
    server.server_close()
    return 0


def _check(options: argparse.Namespace) -> int:
    if not os.path.isdir(options.directory):
        return _fail(f"{options.directory}: not a folder", 2)
    certificate = ServingCertificate(options.directory, options.name, options.client_ca)
    if not certificate.reload():
        return _fail(f"{options.directory}: would be refused: {certificate.last_error}", 1)
    days = (certificate.expiry_seconds() or 0) / 86400
    sys.stdout.write(
        f"{options.directory}: would be served until {certificate.not_after:%Y-%m-%d %H:%M} UTC"
        f" ({days:.0f} days); for {', '.join(certificate.names)};"
        f" SHA-256 {certificate.fingerprint}\n"
    )
    return 0


def _fail(message: str, status: int) -> int:
    sys.stderr.write(f"gpuward certs: {message}\n")
    return status

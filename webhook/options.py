"""The options of `gpuward serve`."""

from __future__ import annotations

import argparse
import ipaddress
import re
from collections.abc import Callable

from terminal import CommandParser
from webhook.settings import LOG_LEVELS, MAX_NAME_CHARACTERS, Limits, ServerSettings

EPILOG = """\
paths, with POST:   /mutate/MODE and /validate/MODE; MODE is deny, warn or audit
on the plain port:  /healthz, /readyz and /metrics

exit status:
  0  stopped by SIGTERM or SIGINT after answering every request
  2  wrong usage, a policy that cannot be used, or an address that cannot be used
A second signal stops it immediately.
"""


_LABEL_PATTERN = r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)"
_DNS_NAME_PATTERN = re.compile(rf"(?:{_LABEL_PATTERN}\.)*(?![0-9]+$){_LABEL_PATTERN}")
_NAMESPACE_PATTERN = re.compile("[a-z0-9]([-a-z0-9]*[a-z0-9])?")
MAX_NAMESPACE_CHARACTERS = 63
_DEFAULT_SETTINGS, _DEFAULT_LIMITS = ServerSettings(), Limits()
_ADDRESSES_AND_FILES = {
    "--listen HOST:PORT": "address for reviews, over TLS; no HOST means every address; "
    f"default: {_DEFAULT_SETTINGS.listen}, with --dev 127.0.0.1:8443",
    "--metrics-listen HOST:PORT": "address for probes and metrics, without TLS; "
    f"default: {_DEFAULT_SETTINGS.metrics_listen}, with --dev a free port of 127.0.0.1",
    "--certificate DIR": "folder with the certificate, tls.crt and tls.key, such as a mounted "
    "Secret; it may be empty at the start; newer versions are loaded when they appear; needed "
    "without --dev",
    "--server-name NAME": "DNS name or IP address that the certificate must have, such as "
    "gpuward.gpuward-system.svc; default: any; with --dev, the name by which the cluster reaches "
    "this machine",
    "--client-ca FILE": "PEM file with CAs: only callers with a certificate of theirs may connect; "
    "without it, callers need none",
    "--policy FILE": "the policy; it is reloaded when the file changes; without it, the default "
    "policy applies",
    "--fallback-policy FILE": "the policy to start with if that of --policy cannot be used",
    "--gpu-exceptions FILE": "exceptions of owners of namespaces, as gpuward exceptions writes "
    "them; those that the policy allows apply; the file is reloaded when it changes",
    "--inventory FOLDER": "what is known of other objects, as gpuward inventory writes it; it is "
    "reloaded when it changes",
}
_FLAGS = {
    "--log-user-names": "log the names of users; by default the log has hashes of them",
    "--dev": "serve on this machine with a temporary certificate and print how to call it",
    "--print-configuration": "with --dev, write the webhook configurations to standard output, "
    "for `kubectl apply -f -`, and everything else to standard error",
}


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    parser = CommandParser(
        prog="gpuward serve",
        description="Run the admission webhook.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for option, text in _ADDRESSES_AND_FILES.items():
        flag, metavar = option.split()
        kind = _server_name if flag == "--server-name" else str
        parser.add_argument(flag, metavar=metavar, help=text, type=kind)
    parser.add_argument(
        "--profile",
        metavar="NAME",
        action="append",
        default=[],
        help="the GPU platform of the cluster, such as gke, instead of those that the policy "
        "names; repeatable; default: nvidia",
    )
    parser.add_argument(
        "--count-namespace",
        metavar="NAME",
        type=_namespace,
        action="append",
        default=[],
        help="also count the outcomes of rules in this namespace apart; repeatable",
    )
    _add_limits(parser)
    _add_lifecycle_options(parser)
    for flag, text in _FLAGS.items():
        parser.add_argument(flag, action="store_true", help=text)
    return parser


def _add_limits(parser: argparse.ArgumentParser) -> None:
    for flag, kind, default, text in (
        (
            "--read-seconds",
            _number_at_least(float, 0.1),
            _DEFAULT_LIMITS.read_seconds,
            "seconds for a body to arrive; must be less than timeoutSeconds of the registration",
        ),
        (
            "--max-in-flight",
            _number_at_least(int, 1),
            _DEFAULT_LIMITS.in_flight,
            "bodies read at once; further requests get 429 and are retried after a second",
        ),
        (
            "--max-connections",
            _number_at_least(int, 1),
            _DEFAULT_LIMITS.connections,
            "open connections; for a further one, that which is idle longest is closed",
        ),
    ):
        parser.add_argument(
            flag,
            metavar="N",
            type=kind,
            default=default,
            help=f"{text}; default: {default:g}",
        )


def _add_lifecycle_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--drain-seconds",
        metavar="N",
        type=_number_at_least(float, 0),
        help="seconds to go on answering after SIGTERM, until the cluster sends no more requests; "
        f"default: {_DEFAULT_SETTINGS.drain_seconds:g}, with --dev 0",
    )
    parser.add_argument(
        "--log-level",
        choices=LOG_LEVELS,
        default="info",
        help="the lowest level to log; decisions are info; default: info",
    )
    parser.add_argument(
        "--no-uvloop",
        dest="uvloop",
        action="store_false",
        help="use Python's own event loop even if uvloop is installed",
    )


def _server_name(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        if len(text) <= MAX_NAME_CHARACTERS and _DNS_NAME_PATTERN.fullmatch(text):
            return text
        raise argparse.ArgumentTypeError(f"{text!r} is no DNS name or IP address") from None


def _namespace(text: str) -> str:
    if len(text) <= MAX_NAMESPACE_CHARACTERS and _NAMESPACE_PATTERN.fullmatch(text):
        return text
    raise argparse.ArgumentTypeError(f"{text!r} is no name of a namespace")


def _number_at_least(kind: Callable[[str], float], least: float) -> Callable[[str], float]:
    def number(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = float("nan")
        if not least <= value < float("inf"):
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from {least:g} up")
        return value

    return number

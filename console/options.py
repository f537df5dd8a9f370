"""The options of `gpuward console`."""

from __future__ import annotations

import argparse
import ipaddress

from cluster.service_options import port
from cluster.source.options import add_connection_options, add_file_option
from console.utilisation import PrometheusUrl, UrlError, parse_url
from lint.options import add_policy_options
from terminal import CommandParser

_PORT = 8088
_DESCRIPTION = """\
Serve a page that shows the GPUs of a cluster, what is wrong, why a pod is Pending, and what
a manifest would get. It only reads: it creates and changes nothing."""
_EPILOG = "exit status: 0 stopped, 2 wrong usage, or nothing could be read"
LOOPBACK, ANY = "127.0.0.1", "*"


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    made = CommandParser(
        prog="gpuward console",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    where = add_connection_options(made)
    add_file_option(where, "--from")
    where.add_argument("--demo", action="store_true", help="show a small made-up cluster")
    where.add_argument(
        "--team-label",
        metavar="KEY",
        default="",
        help="the label of namespaces whose value is the team that they belong to: totals by team",
    )
    where.add_argument(
        "--prometheus",
        metavar="URL",
        type=_prometheus_url,
        help="the address of a Prometheus with the metrics of NVIDIA's dcgm-exporter, to say how "
        "busy cards were; a user and a password in it are sent to it, and shown nowhere",
    )
    add_policy_options(made.add_argument_group("rules"))
    serving = made.add_argument_group("serving")
    serving.add_argument(
        "--port",
        metavar="PORT",
        type=port,
        default=_PORT,
        help=f"the port; default: {_PORT}",
    )
    serving.add_argument(
        "--listen",
        metavar="ADDRESS",
        type=_address,
        default=LOOPBACK,
        help="the IP address to listen on, or * for all; default: the loopback address, which no "
        "other machine reaches. Others need --authenticate",
    )
    serving.add_argument(
        "--authenticate",
        action="store_true",
        help="ask the API server who viewers are, by their tokens, and show them only the "
        "namespaces in which they may list pods",
    )
    serving.add_argument(
        "--proxy-secret",
        metavar="FILE",
        help="with --authenticate: trust X-Forwarded-User and X-Forwarded-Groups of a proxy that "
        "sends the secret in this file as X-Gpuward-Proxy-Secret",
    )
    serving.add_argument(
        "--export",
        metavar="FILE",
        help="write the whole into one HTML file, which loads nothing, instead of serving it; "
        "- for standard output",
    )
    return made


def _address(text: str) -> str:
    """The IP address in `text`, or `*`; for argparse."""
    if text == ANY:
        return text
    try:
        return str(ipaddress.ip_address(LOOPBACK if text == "localhost" else text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text}: expected an IP address, or *") from None


def _prometheus_url(text: str) -> PrometheusUrl:
    """The address in `text`, which may have a password; for argparse."""
    try:
        return parse_url(text)
    except UrlError as error:
        raise argparse.ArgumentTypeError(str(error)) from None

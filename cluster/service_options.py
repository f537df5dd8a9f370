"""The options of every program that runs in a cluster until it is told to stop."""

from __future__ import annotations

import argparse

_MAX_SECONDS = 86_400  # a day


def seconds(text: str) -> float:
    """The number of seconds in `text`, at most a day; for argparse."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= _MAX_SECONDS:  # also refuses what is no number
        raise argparse.ArgumentTypeError(f"{text}: expected a number of seconds")
    return number


def seconds_between(text: str) -> float:
    """Return the seconds between two repetitions, at least one."""
    number = seconds(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text}: expected at least 1 second")
    return number


_MAX_PORT = 65_535
STATUS_PORT = 8081
"""The default port of /healthz and /metrics."""


def port(text: str) -> int:
    """The number of a port in `text`; for argparse. The system chooses one for 0."""
    try:
        number = int(text)
    except ValueError:
        number = -1
    if not 0 <= number <= _MAX_PORT:  # also refuses what is no number
        raise argparse.ArgumentTypeError(f"{text}: expected a port, up to {_MAX_PORT}")
    return number


def add_service_options(parser: argparse.ArgumentParser, interval: float, what: str) -> None:
    """Add the options; by default `interval` seconds are between two of `what`, a plural."""
    parser.add_argument(
        "--kubeconfig", metavar="FILE", help="the kubeconfig file; default: the account of the pod"
    )
    parser.add_argument(
        "--status-port",
        metavar="PORT",
        type=port,
        default=STATUS_PORT,
        help=f"port of /healthz and /metrics; default: {STATUS_PORT}",
    )
    parser.add_argument(
        "--interval",
        metavar="SECONDS",
        type=seconds_between,
        default=interval,
        help=f"seconds between two {what}, at least 1; default: {interval:g}",
    )

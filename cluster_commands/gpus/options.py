"""The options of `gpuward gpus`."""

from __future__ import annotations

import argparse

from cluster.gpus.accounting import DEFAULT_POD_SIZE, PodSize
from cluster.gpus.pod_requests import amount_of
from cluster.source.options import add_options
from terminal.arguments import CommandParser

LEAST_SECONDS = 2.0
_SECONDS = 10.0
_DESCRIPTION = """\
Show which GPUs a cluster has, who has them, which are free, and which are stranded: free
cards of nodes whose CPU or memory is used up. Nothing is created or changed."""
_EPILOG = """\
exit status: 0 done, 2 wrong usage, or nothing could be read, 3 something is not known, such as
nodes, for which the account needs a right"""


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    made = CommandParser(
        prog="gpuward gpus",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("names", metavar="NODE", nargs="*", help="only these nodes")
    made.add_argument("--output", "-o", choices=("table", "wide", "json", "yaml"), default="table")
    view = made.add_mutually_exclusive_group()
    view.add_argument(
        "--by",
        choices=("node", "model", "namespace", "owner"),
        help="one row for each of these; default: node, with --namespace owner",
    )
    view.add_argument(
        "--details", "-d", action="store_true", help="the pods of each card, as far as known"
    )
    made.add_argument(
        "--format", choices=("cgpu",), help="print what `kubectl inspect cgpu` prints"
    )
    made.add_argument(
        "--watch",
        "-w",
        metavar="SECONDS",
        type=_seconds,
        nargs="?",
        const=_SECONDS,
        help=f"show it again every {_SECONDS:g} seconds, or as many as given, until Ctrl-C",
    )
    made.add_argument("--color", choices=("auto", "always", "never"), default="auto")
    made.add_argument(
        "--policy", metavar="FILE", help="a policy, whose profiles say which resources are GPUs"
    )
    size = made.add_argument_group("stranded cards", "how much a pod needs beside a card:")
    size.add_argument("--pod-cpu", metavar="CPU", type=_amount, help="default: 1")
    size.add_argument("--pod-memory", metavar="MEMORY", type=_amount, help="default: 1Gi")
    add_options(made)
    return made


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options; exits with status 2 if they contradict each other."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    if options.namespace and (options.by in {"node", "model"} or options.format):
        view = f"--by {options.by}" if options.by else f"--format {options.format}"
        parser.error(
            f"{view} needs the pods of all namespaces to tell what is free: leave --namespace out"
        )
    if options.format and (options.by or options.output != "table"):
        parser.error(f"--format {options.format} has its own columns: leave --by and --output out")
    if options.format and (options.pod_cpu or options.pod_memory):
        unused = "--pod-cpu and --pod-memory"
        parser.error(f"--format {options.format} shows no stranded cards: leave {unused} out")
    if options.format and options.policy:
        parser.error(f"--format {options.format} reads no profile: leave --policy out")
    return options


def pod_size(options: argparse.Namespace) -> PodSize:
    """What a pod needs beside a card."""
    return PodSize(
        options.pod_cpu or DEFAULT_POD_SIZE.cpu, options.pod_memory or DEFAULT_POD_SIZE.memory
    )


def _amount(text: str) -> int:
    amount = amount_of(text)
    if not amount:
        raise argparse.ArgumentTypeError(f"{text}: expected an amount such as 500m or 2Gi")
    return amount


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not LEAST_SECONDS <= seconds <= 86400:  # noqa: PLR2004  # a day
        raise argparse.ArgumentTypeError(
            f"{text}: expected a number of seconds, at least {LEAST_SECONDS:g}"
        )
    return seconds

"""The command `gpuward gpus`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from cluster.accounting.pod_requests import amount_of
from cluster.source.contexts import is_several
from cluster.source.options import add_options
from terminal import CommandParser

LEAST_SECONDS = 2.0
_SECONDS = 10.0
_DESCRIPTION = """\
Show which GPUs a cluster has, who has them, which are free, and which are stranded: free
cards of nodes whose CPU or memory is used up. Nothing is created or changed."""
_EPILOG = """\
exit status: 0 done, 2 wrong usage, or nothing could be read, 3 something is not known, such as
nodes, for which the account needs a right"""


def main(arguments: list[str], wait: Callable[[float], object] = time.sleep) -> int:
    """Run the command with these arguments; the exit status. `wait` waits so many seconds."""
    options = parse(arguments)
    from cluster.gpus.run import run  # noqa: PLC0415  # it takes long to load, and help and completion do without

    return run(options, wait)


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    made = CommandParser(
        prog="gpuward gpus",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("names", metavar="NODE", nargs="*", help="only these nodes")
    made.add_argument(
        "--output",
        "-o",
        choices=("table", "wide", "json", "yaml", "cgpu"),
        default="table",
        help="cgpu: what `kubectl inspect cgpu` prints; default: table",
    )
    view = made.add_mutually_exclusive_group()
    view.add_argument(
        "--by",
        choices=("node", "model", "namespace", "owner"),
        help="one row for each of these; default: node, with --namespace owner",
    )
    view.add_argument(
        "--details", "-d", action="store_true", help="the pods of each card, as far as known"
    )
    view.add_argument(
        "--without-gpu",
        action="store_true",
        help="the pods on GPU nodes that ask for no GPU, why they run there, and what they take",
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
    made.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="whether to color text; default: auto, on a terminal",
    )
    made.add_argument(
        "--policy", metavar="FILE", help="a policy, whose profiles say which resources are GPUs"
    )
    size = made.add_argument_group("stranded cards, and room for pods")
    beside = "that a pod needs for each of its cards; default:"
    size.add_argument("--pod-cpu", metavar="CPU", type=_amount, help=f"CPU {beside} 1")
    size.add_argument("--pod-memory", metavar="MEMORY", type=_amount, help=f"memory {beside} 1Gi")
    add_options(made, several=True)
    return made


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options; exits with status 2 if they contradict each other."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    is_cgpu = options.output == "cgpu"
    if is_several(options) and (is_cgpu or options.names):
        unfit = "--output cgpu" if is_cgpu else "a node"
        parser.error(f"{unfit} is of one cluster: give one context")
    if options.namespace and (options.by in {"node", "model"} or is_cgpu):
        view = f"--by {options.by}" if options.by else "--output cgpu"
        parser.error(
            f"{view} needs the pods of all namespaces to tell what is free: leave --namespace out"
        )
    if options.without_gpu and options.namespace:
        parser.error("--without-gpu needs the nodes to tell which have GPUs: leave --namespace out")
    if is_cgpu and options.without_gpu:
        parser.error("--output cgpu has its own columns: leave --without-gpu out")
    if is_cgpu and options.by:
        parser.error("--output cgpu has its own columns: leave --by out")
    if is_cgpu and (options.pod_cpu or options.pod_memory):
        unused = "--pod-cpu and --pod-memory"
        parser.error(f"--output cgpu shows no stranded cards: leave {unused} out")
    if is_cgpu and options.policy:
        parser.error("--output cgpu reads no profile: leave --policy out")
    return options


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

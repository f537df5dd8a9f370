"""The command `gpuward why`."""

from __future__ import annotations

import argparse

from cluster.source.options import add_options
from terminal import CommandParser

_DESCRIPTION = """\
Say why a pod is Pending: each group of nodes with the first reason why kube-scheduler, the kubelet
or the device plugin refuses the pod, and what would change that. Without POD, say it of each pod
that waits for a node. Nothing is created or changed."""
_EPILOG = """\
exit status: 0 the pod has a node, or a node can take it; 1 it cannot run; 2 wrong usage, or
there is no such pod; 3 not known: what decides about it is not looked at, or could not be read"""


def main(arguments: list[str]) -> int:
    """Explain pods as the command line says; the exit status."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    if options.pod and options.manifest:
        parser.error("name a POD, or give one by --manifest")
    from cluster.why.run import run  # noqa: PLC0415  # it takes long to load, and help and completion do without

    return run(options)


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    made = CommandParser(
        prog="gpuward why",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument(
        "pod",
        metavar="POD",
        nargs="?",
        help="the name of a pod, or of what makes pods: train, job/train, jobset/train",
    )
    made.add_argument(
        "--manifest",
        metavar="FILE",
        help="pods that do not exist yet, or a Job or another workload; - for standard input",
    )
    made.add_argument(
        "--output", "-o", choices=("text", "json", "yaml"), default="text", help="default: text"
    )
    add_options(made)
    return made

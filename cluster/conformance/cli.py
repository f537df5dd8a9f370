"""The command `gpuward conformance`."""

from __future__ import annotations

import argparse

from cluster.source.options import add_connection_options, add_file_option
from lint.options import add_policy_options
from terminal import CommandParser

_DESCRIPTION = """\
Write a report about the requirement "Secure Accelerator Access" (KAR-0049) of Kubernetes AI
Conformance: which ways to a GPU this cluster's admission closes, by which control, and which
pods reach GPUs without asking. The ways are tried by dry runs. Nothing is created or changed."""
_EPILOG = """\
The account needs the rights of gpuward audit and gpuward doctor, to list admission policies,
and to create pods in the namespaces; with --as, to impersonate the user, who needs that right.
Of files the ways are not known, and only the controls and the pods in them are reported.

exit status: 0 every way is closed, and no pod reaches GPUs without asking; 1 a way is open, or
a pod reaches GPUs; 2 wrong usage, a namespace that does not exist, or nothing could be read;
3 something is not known"""
_IMAGE = "registry.example.com/app:1"


def main(arguments: list[str]) -> int:
    """Write a report as the command line says; the exit status."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    if options.groups and not options.user:
        parser.error("--as-group is for --as USER")
    if options.user and options.files:
        parser.error("--as is for dry runs in a cluster: leave --filename out")
    from cluster.conformance.run import run  # noqa: PLC0415  # it takes long to load, and help and completion do without

    return run(options)


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    made = CommandParser(
        prog="gpuward conformance",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument(
        "--output",
        "-o",
        choices=("markdown", "json", "html"),
        default="markdown",
        help="default: markdown",
    )
    tried = made.add_argument_group("dry runs")
    tried.add_argument(
        "--namespace",
        "-n",
        metavar="NS",
        dest="namespaces",
        action="append",
        default=[],
        help="a namespace of users in which to try the ways; repeatable; default: default",
    )
    tried.add_argument(
        "--as", metavar="USER", dest="user", help="try them as this user; default: you"
    )
    tried.add_argument(
        "--as-group",
        metavar="GROUP",
        dest="groups",
        action="append",
        default=[],
        help="as a member of this group; repeatable",
    )
    tried.add_argument(
        "--image",
        default=_IMAGE,
        help="an image that users may use there, if a policy restricts images; none is started; "
        f"default: {_IMAGE}",
    )
    add_file_option(add_connection_options(made))
    add_policy_options(made.add_argument_group("rules"))
    return made

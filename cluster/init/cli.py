"""The command `gpuward init`."""

from __future__ import annotations

import argparse

from cluster.init import POLICY, PRIORITY_QUOTA, VALUES
from cluster.source.options import add_options
from terminal import CommandParser

_DESCRIPTION = f"""\
Look at a cluster and write a policy ({POLICY}) and values of the chart ({VALUES})
that fit it. Each line says what was seen. What is not certain is a comment, for you to
decide. A third file ({PRIORITY_QUOTA}) is a quota that keeps the
priority classes of the system from the users of a namespace. A file that exists is not
changed: the difference is printed. Lines about what the account may not list stay as
they are."""
_EPILOG = """\
exit status: 0 the files say what the cluster is like, 1 a file differs in more than what was
seen, also if it was written anew, 2 wrong usage, or the cluster or a file could not be read
or written, 3 something may not be listed, and what depends on it was kept"""


def main(arguments: list[str]) -> int:
    """Look at a cluster as the command line says; the exit status."""
    options = make_parser().parse_args(arguments)
    from cluster.init.run import run  # noqa: PLC0415  # it takes long to load, and help and completion do without

    return run(options)


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    made = CommandParser(
        prog="gpuward init",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument(
        "--directory",
        metavar="DIR",
        default=".",
        help="the folder of the files; default: the working folder",
    )
    made.add_argument(
        "--write",
        action="store_true",
        help="print the differences and replace the files; your own changes are lost",
    )
    add_options(made, namespaced=False)
    return made

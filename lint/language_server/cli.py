"""The command `gpuward lsp`."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import redirect_stdout
from io import BufferedReader
from typing import cast

from lint.language_server.policies import EditorSettings
from lint.options import add_policy_options
from terminal import CommandParser, write_error

_NO_PROTOCOL = "is not in the Language Server Protocol: let an editor start this command"


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    parser = CommandParser(
        prog="gpuward lsp",
        description="Language server: findings, fixes and explanations in editors.",
    )
    parser.add_argument("--stdio", action="store_true", help="the default, and the only transport")
    add_policy_options(parser)
    parser.add_argument("--namespace", "-n", help="the namespace of objects that name none")
    parser.add_argument(
        "--notes", action="store_true", help="show notes too: what admission sets by default"
    )
    return parser


def main(arguments: list[str]) -> int:
    """Serve one editor on standard input and output until it closes them; the exit status.

    It is 2 if what arrives is from no editor. Raises OSError if standard input cannot be read.
    """
    options = make_parser().parse_args(arguments)
    settings = EditorSettings(
        policy=options.policy,
        profiles=tuple(options.profile),
        namespace=options.namespace,
        notes=options.notes,
        isolated=options.isolated,
    )
    from lint.language_server.server import create_server  # noqa: PLC0415  # it takes long to load, and help and completion do without

    server = create_server(settings)
    has_input = bool(cast("BufferedReader", sys.stdin.buffer).peek(1))
    # Only messages of the protocol may go to standard output.
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as out, redirect_stdout(sys.stderr):
        server.start_io(stdout=out)
    if has_input and not server.has_client:
        write_error("gpuward", f"standard input {_NO_PROTOCOL}")
        return 2
    return 0

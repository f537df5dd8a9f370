"""The command `gpuward console`."""

from __future__ import annotations

import argparse
import os
import sys
import threading

from aiohttp import web

from cluster.service_options import port
from cluster.source.files import FileSource
from cluster.source.objects import SourceError
from cluster.source.options import add_connection_options, add_file_option, open_connection
from console.export import export
from console.server import Console
from console.state import FOLLOWED, ClusterState, state_of, state_of_files
from lint.options import add_policy_options
from policies.loading import PolicyError
from sources.policy_file import FoundPolicy, PolicyChoice
from terminal import CommandParser, printable, write_error

DEMO = os.path.join(os.path.dirname(os.path.abspath(__file__)), "demo.yaml")
_PORT = 8088
_DESCRIPTION = """\
Serve a page that shows the GPUs of a cluster, what is wrong, why a pod is Pending, and what
a manifest would get. It only reads: it creates and changes nothing."""
_EPILOG = "exit status: 0 stopped, 2 wrong usage, or nothing could be read"
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})


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
    add_policy_options(made.add_argument_group("rules"))
    serving = made.add_argument_group("serving")
    serving.add_argument(
        "--port",
        metavar="PORT",
        type=port,
        default=_PORT,
        help=f"the port on the loopback address, which no other machine reaches; default: {_PORT}",
    )
    serving.add_argument(
        "--export",
        metavar="FILE",
        help="write the whole into one HTML file, which loads nothing, instead of serving it; "
        "- for standard output",
    )
    return made


def main(arguments: list[str]) -> int:
    """Run the command with these arguments; the exit status."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    if options.demo and options.files:
        parser.error("--demo and --from are two clusters: leave one out")
    stop = threading.Event()
    try:
        choice = PolicyChoice(options.policy, options.profile, isolated=options.isolated)
        state = _state(options, choice.load(), stop)
        if options.export:
            return _export(state, options.export)
    except (PolicyError, SourceError) as error:
        write_error("gpuward console", error)
        return 2
    try:
        return _serve(state, options.port)
    finally:
        stop.set()


def _export(state: ClusterState, file: str) -> int:
    """Write the file; the exit status. Raises SourceError."""
    page = export(state)
    if file == "-":
        sys.stdout.write(page)
        return 0
    try:
        with open(file, "w", encoding="utf-8") as out:
            out.write(page)
    except OSError as error:
        write_error("gpuward console", f"{file}: {(error.strerror or str(error)).lower()}")
        return 2
    return 0


def _serve(state: ClusterState, number: int) -> int:
    where = f"http://localhost:{number}/"
    sys.stderr.write(printable(f"gpuward console: {state.title}: {where} until Ctrl-C") + "\n")
    try:
        web.run_app(
            Console(state, _LOOPBACK).application(),
            host="127.0.0.1",
            port=number,
            print=None,
            access_log=None,
        )
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        write_error("gpuward console", f"port {number}: {why}; choose another one by --port")
        return 2
    return 0


def _state(options: argparse.Namespace, found: FoundPolicy, stop: threading.Event) -> ClusterState:
    if options.demo or options.files:
        files = [DEMO] if options.demo else options.files
        if not options.demo and (options.kubeconfig or options.context):
            raise SourceError("--from reads files: leave --kubeconfig and --context out")
        title = "demo cluster" if options.demo else ", ".join(files)
        return state_of_files(title, FileSource(files, sys.stdin.buffer), found.policy, found.file)
    return _followed_cluster(options, found, stop)


def _followed_cluster(
    options: argparse.Namespace, found: FoundPolicy, stop: threading.Event
) -> ClusterState:
    """The state of a cluster, which threads follow until `stop` is set. Raises SourceError."""
    # With files, the Kubernetes client need not be installed.
    from cluster.source.api_server import ApiServerSource  # noqa: PLC0415
    from cluster.source.following import Following  # noqa: PLC0415

    connection = open_connection(options)
    title, source = options.context or "cluster", ApiServerSource(connection)
    if options.export:
        return state_of(title, source, found.policy, found.file)
    state = ClusterState(title, source, found.policy, found.file)
    for resource in FOLLOWED:
        following = Following(connection, resource, state, stop)
        threading.Thread(target=following.run, name=str(resource), daemon=True).start()
    return state

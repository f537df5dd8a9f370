"""The command `gpuward mcp`."""

from __future__ import annotations

import argparse
import os

from policies import POLICY_FILE
from sources.containment import is_inside
from terminal import CommandParser, reason_of

_DESCRIPTION = """\
Serve an assistant by the Model Context Protocol, on standard input and output: the tools lint, fix,
explain, rules, why and gpus. It reads one folder and writes nothing, unless options say so."""


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    made = CommandParser(prog="gpuward mcp", description=_DESCRIPTION)
    made.add_argument(
        "--folder",
        metavar="FOLDER",
        default=".",
        help="the folder that tools read; default: the working folder",
    )
    made.add_argument(
        "--write",
        metavar="FOLDER",
        help="let the tool fix write files in this folder, the one of --folder or one in it",
    )
    made.add_argument(
        "--cluster",
        action="store_true",
        help="let the tools why and gpus ask the cluster of the kubeconfig",
    )
    made.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="the kubeconfig file, with --cluster; default: that of kubectl",
    )
    made.add_argument(
        "--context",
        metavar="NAME",
        help="the context in it, with --cluster; default: the current one",
    )
    made.add_argument(
        "--policy",
        metavar="FILE",
        help=f"the policy, in any folder; default: the nearest {POLICY_FILE}",
    )
    made.add_argument(
        "--isolated",
        action="store_true",
        help=f"look for no {POLICY_FILE}: without --policy, use the default policy",
    )
    return made


def main(arguments: list[str]) -> int:
    """Serve one client until it closes standard input; the exit status."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    if os.name != "posix":
        parser.error("Windows cannot keep a path inside of a folder: run it in WSL")
    if (options.kubeconfig or options.context) and not options.cluster:
        parser.error("--kubeconfig and --context are about a cluster: add --cluster")
    # They take long to load, and help and completion do without.
    from gpuward.mcp_server.folder import Folder  # noqa: PLC0415
    from gpuward.mcp_server.processes import ServerSettings  # noqa: PLC0415
    from gpuward.mcp_server.server import serve  # noqa: PLC0415

    try:
        folder = Folder(options.folder)
    except OSError as error:
        parser.error(f"--folder: {options.folder}: {reason_of(error)}")
    write = None if options.write is None else os.path.realpath(options.write)
    if write is not None and not (os.path.isdir(write) and is_inside(write, folder.path)):
        parser.error(f"--write: {options.write} is no folder in {folder.path}")
    policy = os.path.realpath(options.policy) if options.policy else ""
    if policy and not os.path.isfile(policy):
        parser.error(f"--policy: {options.policy} is no file")

    with folder:
        serve(
            ServerSettings(
                folder=folder,
                write=write,
                policy_arguments=(
                    *([f"--policy={policy}"] if policy else ()),
                    *(["--isolated"] if options.isolated else ()),
                ),
                policy_files=(policy,) if policy else (),
                cluster_arguments=_cluster_arguments(options),
            )
        )
    return 0


def _cluster_arguments(options: argparse.Namespace) -> tuple[str, ...] | None:
    """The options by which commands find the cluster; None if no tool may ask one."""
    if not options.cluster:
        return None
    kubeconfig = os.path.abspath(options.kubeconfig) if options.kubeconfig else ""
    return (
        *([f"--kubeconfig={kubeconfig}"] if kubeconfig else ()),
        *([f"--context={options.context}"] if options.context else ()),
    )

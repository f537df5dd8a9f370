"""The command `gpuward inventory`: run the controller for the webhook's inventory."""

from __future__ import annotations

import argparse

from cluster.service_options import add_service_options
from policies.controller_files import MAX_PARTS
from terminal import write_error
from terminal.arguments import CommandParser

_DESCRIPTION = """\
List what rules may need to know of other objects, every minute, and write it into
ConfigMaps, from which the webhook reads it."""
_EPILOG = """\
The credentials are those of the pod in which this runs, or of a kubeconfig file. They must
allow getting and updating the ConfigMaps, which must exist, and should allow listing what
is to be known. What they do not allow stays unknown, and the log says so."""


def main(arguments: list[str]) -> int:
    """Run the command with these command-line arguments, and return its exit status."""
    return _run(make_parser().parse_args(arguments))


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    parser = CommandParser(
        prog="gpuward inventory", description="What the webhook knows of other objects."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser(
        "run",
        help="run the controller",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    run.add_argument(
        "--namespace", metavar="NAME", required=True, help="The namespace of the ConfigMaps."
    )
    run.add_argument(
        "--config-map",
        metavar="NAME",
        required=True,
        dest="config_maps",
        action="append",
        help=f"A ConfigMap for a part of the inventory; repeatable, at most {MAX_PARTS} times. "
        "Each holds a megabyte.",
    )
    run.add_argument("--policy", metavar="FILE", required=True, help="The policy of the webhook.")
    run.add_argument(
        "--fallback-policy",
        metavar="FILE",
        help="The policy to start with if the other is unusable.",
    )
    run.add_argument(
        "--read-config-maps",
        action="store_true",
        help="List also the ConfigMaps of all namespaces, and keep those variables in them that "
        "container runtimes read.",
    )
    run.add_argument(
        "--read-nodes",
        action="store_true",
        help="List also the Nodes, and say that these are all: for clusters in which no autoscaler "
        "adds nodes of other kinds.",
    )
    add_service_options(run, 60.0, "lists")
    return parser


def _run(options: argparse.Namespace) -> int:
    """Run until SIGTERM or SIGINT; the exit status."""
    if len(options.config_maps) > MAX_PARTS:
        write_error("gpuward inventory", f"more than {MAX_PARTS} times --config-map")
        return 2
    from cluster.api.connection import Connection  # noqa: PLC0415
    from cluster.config_map import StoredConfigMap  # noqa: PLC0415  # --help needs none of this
    from cluster.controllers.inventory import InventoryController  # noqa: PLC0415
    from cluster.service import Service, repeat, run_or_report  # noqa: PLC0415
    from cluster.source.api_server import ApiServerSource  # noqa: PLC0415
    from delegation.policy_source import PolicySource  # noqa: PLC0415

    def make() -> Service:
        connection = Connection.in_cluster(options.kubeconfig)
        policy = PolicySource(options.policy, options.fallback_policy)
        controller = InventoryController(
            ApiServerSource(connection),
            [
                StoredConfigMap(connection, options.namespace, name, "gpuward-inventory")
                for name in options.config_maps
            ],
            profile=lambda: policy.load().profile,
            reads_config_maps=options.read_config_maps,
            reads_nodes=options.read_nodes,
        )
        run = repeat(controller.reconcile, options.interval)
        return Service(run, lambda: controller.alive, controller.metrics)

    return run_or_report(make, options.status_port, "inventory")

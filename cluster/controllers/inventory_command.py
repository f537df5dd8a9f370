"""The command `gpuward inventory`: run the controller that lists objects for the webhook."""

from __future__ import annotations

import argparse

from cluster.service_options import add_service_options
from policies.controller_files import MAX_PARTS
from terminal import CommandParser, write_error

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
        "--namespace", metavar="NAME", required=True, help="the namespace of the ConfigMaps"
    )
    run.add_argument(
        "--config-map",
        metavar="NAME",
        required=True,
        dest="config_maps",
        action="append",
        help="a ConfigMap for a part of the inventory, which holds a megabyte; repeatable, "
        f"at most {MAX_PARTS} times",
    )
    run.add_argument("--policy", metavar="FILE", required=True, help="the policy of the webhook")
    run.add_argument(
        "--fallback-policy",
        metavar="FILE",
        help="the policy to start with if the other is unusable",
    )
    run.add_argument(
        "--read-config-maps",
        action="store_true",
        help="list also the ConfigMaps of all namespaces, and keep those variables in them that "
        "container runtimes read",
    )
    run.add_argument(
        "--read-nodes",
        action="store_true",
        help="list also the Nodes, and say that these are all: for clusters in which no autoscaler "
        "adds nodes of other kinds",
    )
    run.add_argument(
        "--read-node-names",
        action="store_true",
        help="list also the Nodes, and keep the names of those that have GPUs",
    )
    run.add_argument(
        "--read-queues",
        action="store_true",
        help="list also the queues of Kueue, Volcano and KAI, and the ResourceFlavors and "
        "Topologies of Kueue",
    )
    run.add_argument(
        "--read-namespaces",
        action="store_true",
        help="list also the Namespaces, and keep the labels that rules read",
    )
    add_service_options(run, 60.0, "lists")
    return parser


def _run(options: argparse.Namespace) -> int:
    """Run until SIGTERM or SIGINT; the exit status."""
    if len(options.config_maps) > MAX_PARTS:
        write_error("gpuward inventory", f"more than {MAX_PARTS} times --config-map")
        return 2
    # They take long to load, and help and completion do without.
    from cluster.api.client import StoredConfigMap  # noqa: PLC0415
    from cluster.api.connection import Connection  # noqa: PLC0415
    from cluster.control_loop import ControlLoop, run_loop  # noqa: PLC0415
    from cluster.controllers.gpu_exceptions import PolicySource  # noqa: PLC0415
    from cluster.controllers.inventory import InventoryController, Scope  # noqa: PLC0415
    from cluster.source.api_server import ApiServerSource  # noqa: PLC0415

    def make() -> ControlLoop:
        connection = Connection.in_cluster(options.kubeconfig)
        policy = PolicySource(options.policy, options.fallback_policy)
        controller = InventoryController(
            ApiServerSource(connection),
            [
                StoredConfigMap(connection, options.namespace, name, "gpuward-inventory")
                for name in options.config_maps
            ],
            policy.load,
            Scope(
                config_maps=options.read_config_maps,
                nodes=options.read_nodes,
                node_names=options.read_node_names,
                queues=options.read_queues,
                namespaces=options.read_namespaces,
            ),
        )
        return ControlLoop((controller,), options.interval)

    return run_loop(make, options.status_port, "inventory")

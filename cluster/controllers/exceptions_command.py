"""The command `gpuward exceptions`: run the controller that accepts GpuExceptions."""

from __future__ import annotations

import argparse

from cluster.service_options import add_service_options
from terminal import CommandParser

_DESCRIPTION = """\
Compare the GpuExceptions of all namespaces with what the policy allows, every 15
seconds. Write the condition Accepted of each, and all accepted ones into a ConfigMap,
from which the webhook reads them."""
_EPILOG = """\
The credentials are those of the pod in which this runs, or of a kubeconfig file. They must
allow listing GpuExceptions and patching their status, and getting and updating the
ConfigMap, which must exist."""


def main(arguments: list[str]) -> int:
    """Run the command with these command-line arguments, and return its exit status."""
    return _run(make_parser().parse_args(arguments))


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    parser = CommandParser(prog="gpuward exceptions", description="GpuExceptions.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser(
        "run",
        help="run the controller",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for option, required, text in (
        ("--namespace NAME", True, "the namespace of the ConfigMap"),
        ("--config-map NAME", True, "the ConfigMap for the accepted GpuExceptions"),
        ("--policy FILE", True, "the policy of the webhook"),
        ("--fallback-policy FILE", False, "the policy to start with if the other is unusable"),
    ):
        flag, metavar = option.split()
        run.add_argument(flag, metavar=metavar, required=required, help=text)
    add_service_options(run, 15.0, "comparisons")
    return parser


def _run(options: argparse.Namespace) -> int:
    """Run until SIGTERM or SIGINT; the exit status."""
    # They take long to load, and help and completion do without.
    from cluster.api.client import KubernetesGpuExceptions  # noqa: PLC0415
    from cluster.api.connection import Connection  # noqa: PLC0415
    from cluster.control_loop import ControlLoop, run_loop  # noqa: PLC0415
    from cluster.controllers.gpu_exceptions import (  # noqa: PLC0415
        ExceptionsController,
        PolicySource,
    )

    def make() -> ControlLoop:
        connection = Connection.in_cluster(options.kubeconfig)
        cluster = KubernetesGpuExceptions(connection, options.namespace, options.config_map)
        policy = PolicySource(options.policy, options.fallback_policy)
        controller = ExceptionsController(cluster, policy.load)
        return ControlLoop((controller,), options.interval)

    return run_loop(make, options.status_port, "exceptions")

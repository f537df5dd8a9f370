"""The command `gpuward exceptions`: run the controller for GpuExceptions."""

from __future__ import annotations

import argparse

from cluster.service_options import add_service_options
from terminal.arguments import CommandParser

_DESCRIPTION = """\
Compare the GpuExceptions of all namespaces with what the policy delegates, every 15
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
        ("--namespace NAME", True, "The namespace of the ConfigMap."),
        ("--config-map NAME", True, "The ConfigMap for the accepted GpuExceptions."),
        ("--policy FILE", True, "The policy of the webhook."),
        ("--fallback-policy FILE", False, "The policy to start with if the other is unusable."),
    ):
        flag, metavar = option.split()
        run.add_argument(flag, metavar=metavar, required=required, help=text)
    add_service_options(run, 15.0, "comparisons")
    return parser


def _run(options: argparse.Namespace) -> int:
    """Run until SIGTERM or SIGINT; the exit status."""
    from cluster.api.connection import Connection  # noqa: PLC0415  # --help needs none of this
    from cluster.controllers.gpu_exceptions import ExceptionsController  # noqa: PLC0415
    from cluster.gpu_exceptions import KubernetesGpuExceptions  # noqa: PLC0415
    from cluster.service import Service, repeat, run_or_report  # noqa: PLC0415
    from delegation.policy_source import PolicySource  # noqa: PLC0415

    def make() -> Service:
        connection = Connection.in_cluster(options.kubeconfig)
        cluster = KubernetesGpuExceptions(connection, options.namespace, options.config_map)
        policy = PolicySource(options.policy, options.fallback_policy)
        controller = ExceptionsController(cluster, policy.load)
        run = repeat(controller.reconcile, options.interval)
        return Service(run, lambda: controller.alive, controller.metrics)

    return run_or_report(make, options.status_port, "exceptions")

"""The command `gpuward webhooks`: check whether the webhook works, watch it, or remove it."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable

from cluster.protocols import ClusterError, ConfigurationKind, ConfigurationRef
from cluster.webhooks.removal import remove
from registration import check_cli, watch_cli
from terminal import printable, write_error
from terminal.arguments import CommandParser

_DESCRIPTION = """\
Delete gpuward's webhook configurations, so that the API server no longer calls it.
A configuration that does not exist is no failure. Those of others are not deleted."""
_EPILOG = """\
The credentials are those that kubectl would use: from a kubeconfig file, or else from
the pod in which this runs. A tool that keeps the chart applied, such as Argo CD, creates
the configurations again.

exit status: 0 none exists any more, 1 one may still exist, 2 wrong usage

The same with kubectl alone:
  kubectl delete validatingwebhookconfiguration,mutatingwebhookconfiguration gpuward \\
    --ignore-not-found"""
# Validating first, because only this one refuses objects.
_OPTIONS = {ConfigurationKind.VALIDATING: "validating", ConfigurationKind.MUTATING: "mutating"}


def main(arguments: list[str]) -> int:
    """Run the subcommand; the exit status."""
    options = make_parser().parse_args(arguments)
    run: Callable[[argparse.Namespace], int] = options.run
    return run(options)


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    parser = CommandParser(
        prog="gpuward webhooks", description="The webhook configurations of a cluster."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    check = commands.add_parser(
        "check",
        help="call the webhook as API servers do, and say whether it works",
        description=check_cli.DESCRIPTION,
        epilog=check_cli.EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    check.set_defaults(run=lambda options: check_cli.run(options, _refs(options)))
    watch = commands.add_parser(
        "watch",
        help="report changes of gpuward's webhook configurations, for use in a pod",
        description=watch_cli.DESCRIPTION,
        epilog=watch_cli.EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    watch.set_defaults(run=watch_cli.run)
    watch_cli.add_options(watch)
    remove = commands.add_parser(
        "remove",
        help="delete gpuward's webhook configurations",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    remove.set_defaults(run=_run_removal)
    for command in (check, remove):
        _add_configurations(command)
    check_cli.add_options(check)
    return parser


def _add_configurations(command: argparse.ArgumentParser) -> None:
    for option in _OPTIONS.values():
        command.add_argument(
            f"--{option}-configuration",
            metavar="NAME[,NAME]",
            type=_names,
            default="gpuward",
            help=f"Names of the {option} webhook configurations. The default is gpuward.",
        )
    command.add_argument("--kubeconfig", metavar="FILE", help="The kubeconfig file to use.")
    command.add_argument("--context", metavar="NAME", help="The context in it to use.")


def _refs(options: argparse.Namespace) -> list[ConfigurationRef]:
    return [
        ConfigurationRef(kind, name)
        for kind, option in _OPTIONS.items()
        for name in getattr(options, f"{option}_configuration")
    ]


def _names(text: str) -> list[str]:
    names = [name for part in text.split(",") if (name := part.strip())]
    if not names:
        raise argparse.ArgumentTypeError("expected a name")
    return names


def _run_removal(options: argparse.Namespace) -> int:
    remaining = _remove(options, _refs(options))
    if remaining:
        for line in _kubectl_hint(options, remaining).splitlines():
            sys.stderr.write(f"{printable(line)}\n")
    return 1 if remaining else 0


def _remove(options: argparse.Namespace, refs: list[ConfigurationRef]) -> list[ConfigurationRef]:
    """Delete the configurations and print what happens; returns those that may remain."""
    from cluster.api.client import KubernetesConfigurations  # noqa: PLC0415  # --help needs none of this
    from cluster.api.connection import Connection  # noqa: PLC0415

    printed = set()

    def on_deleted(ref: ConfigurationRef, outcome: str) -> None:
        sys.stdout.write(f"{_kubectl_name(ref)}: {outcome}\n")

    def on_failed(ref: ConfigurationRef, reason: str) -> None:
        line = f"{_kubectl_name(ref)}: not deleted: {reason}"
        if line not in printed:  # most attempts fail for the same reason
            write_error("gpuward webhooks", line)
        printed.add(line)

    try:
        connection = Connection.like_kubectl(options.kubeconfig, options.context)
    except ClusterError as error:
        write_error("gpuward webhooks", error)
        return refs
    cluster = KubernetesConfigurations(connection)
    return remove(cluster, refs, on_deleted=on_deleted, on_failed=on_failed)


def _kubectl_hint(options: argparse.Namespace, remaining: list[ConfigurationRef]) -> str:
    command = ["kubectl", "delete", *map(_kubectl_name, remaining), "--ignore-not-found"]
    for option in ("kubeconfig", "context"):
        if value := getattr(options, option):
            command += [f"--{option}", value]
    text = "With sufficient rights, delete them by hand; kubectl does not check whose they are:"
    return f"{text}\n  {shlex.join(command)}\n"


def _kubectl_name(ref: ConfigurationRef) -> str:
    """The configuration as kubectl names it."""
    return f"{ref.kind.value}/{ref.name}"

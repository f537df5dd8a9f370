"""The command `gpuward webhooks`: ask whether the webhook works, or take it out of a cluster."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable

from certs.api import ClusterError, Kind
from certs.publish import Configuration
from certs.webhooks import checkup_command
from certs.webhooks.removal import remove

_DESCRIPTION = """\
Delete gpuward's webhook configurations, so that the API server no longer calls it.
What does not exist is no failure. What does not belong to gpuward is left alone."""
_EPILOG = """\
The credentials are those that kubectl would take: of a kubeconfig file, or else of
the pod that this runs in. An installer that keeps the chart applied, such as Argo CD,
makes the configurations again.

exit status: 0 none is there any more, 1 one may still be there, 2 wrong usage

The same by kubectl alone:
  kubectl delete validatingwebhookconfiguration,mutatingwebhookconfiguration gpuward \\
    --ignore-not-found"""
# Validating first: it is what refuses.
_OPTIONS = {Kind.VALIDATING: "validating", Kind.MUTATING: "mutating"}


def main(arguments: list[str]) -> int:
    """Do as the command line says; the exit status."""
    options = _parser().parse_args(arguments)
    wanted = [
        Configuration(kind, name)
        for kind, option in _OPTIONS.items()
        for name in getattr(options, f"{option}_configuration")
    ]
    run: Callable[[argparse.Namespace, list[Configuration]], int] = options.run
    return run(options, wanted)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpuward webhooks", description="The webhook configurations of a cluster."
    )
    verbs = parser.add_subparsers(required=True, metavar="COMMAND")
    check = verbs.add_parser(
        "check",
        help="call the webhook as API servers do, and say whether it works",
        description=checkup_command.DESCRIPTION,
        epilog=checkup_command.EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    check.set_defaults(run=checkup_command.run)
    remove = verbs.add_parser(
        "remove",
        help="delete gpuward's webhook configurations",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    remove.set_defaults(run=_run_removal)
    for verb in (check, remove):
        _add_configurations(verb)
    checkup_command.add_options(check)
    return parser


def _add_configurations(verb: argparse.ArgumentParser) -> None:
    for option in _OPTIONS.values():
        verb.add_argument(
            f"--{option}-configuration",
            metavar="NAME[,NAME]",
            type=_names,
            default="gpuward",
            help=f"Names of the {option} webhook configurations. The default is gpuward.",
        )
    verb.add_argument("--kubeconfig", metavar="FILE", help="The kubeconfig file to use.")
    verb.add_argument("--context", metavar="NAME", help="The context in it to use.")


def _names(text: str) -> list[str]:
    names = [name for part in text.split(",") if (name := part.strip())]
    if not names:
        raise argparse.ArgumentTypeError("expected a name")
    return names


def _run_removal(options: argparse.Namespace, wanted: list[Configuration]) -> int:
    left = _remove(options, wanted)
    if left:
        sys.stderr.write(_remedy(options, left))
    return 1 if left else 0


def _remove(options: argparse.Namespace, wanted: list[Configuration]) -> list[Configuration]:
    """Delete them, and say so; those that may be left."""
    from certs.cluster import KubernetesConfigurations  # noqa: PLC0415  # --help needs none of this
    from certs.connection import Connection  # noqa: PLC0415

    complained = set()

    def gone(configuration: Configuration, said: str) -> None:
        sys.stdout.write(f"{_called(configuration)}: {said}\n")

    def failed(configuration: Configuration, why: str) -> None:
        complaint = f"gpuward webhooks: {_called(configuration)}: not deleted: {why}\n"
        if complaint not in complained:  # at each attempt the same
            sys.stderr.write(complaint)
        complained.add(complaint)

    try:
        connection = Connection.of_kubectl(options.kubeconfig, options.context)
    except ClusterError as error:
        sys.stderr.write(f"gpuward webhooks: {error}\n")
        return wanted
    return remove(KubernetesConfigurations(connection), wanted, gone=gone, failed=failed)


def _remedy(options: argparse.Namespace, left: list[Configuration]) -> str:
    command = ["kubectl", "delete", *(_called(one) for one in left), "--ignore-not-found"]
    for option in ("kubeconfig", "context"):
        if given := getattr(options, option):
            command += [f"--{option}", given]
    told = "Whoever may delete them can do it by hand; kubectl does not ask whose they are:"
    return f"{told}\n  {shlex.join(command)}\n"


def _called(configuration: Configuration) -> str:
    """As kubectl takes it."""
    return f"{configuration.kind.value}/{configuration.name}"

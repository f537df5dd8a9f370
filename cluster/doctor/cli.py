"""The command `gpuward doctor`."""

from __future__ import annotations

import argparse

from cluster.source.options import add_options
from cluster.webhooks.dry_runs import IMAGE
from terminal import CommandParser

_DESCRIPTION = """\
Say whether a cluster is guarded, and prove it: in a namespace of each mode the command
creates pods that take GPUs, by dry runs, which store nothing. Below is what it has checked
about gpuward's own health, and whether the cluster is fit for GPUs: other webhooks, node
labels, versions, device plugins, shared cards. Every row is ok, wrong with what to do, or
not known. Nothing is created or changed; the webhook is also called with a sample, as
`gpuward webhooks check` does."""
_EPILOG = """\
exit status: 0 all is well, 1 something is wrong, 2 wrong usage, or nothing could be read,
3 nothing is wrong as far as is known, but something is not known"""


def main(arguments: list[str]) -> int:
    """Examine a cluster as the command line says; the exit status."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    if options.files and (options.ask_kubelets or options.tls_only):
        parser.error("--ask-kubelets and --tls-only call the cluster: leave --filename out")
    if options.image and (options.files or options.no_dry_run):
        parser.error("--image is for dry runs: leave --filename and --no-dry-run out")
    from cluster.doctor.run import run  # noqa: PLC0415  # it takes long to load, and help and completion do without

    return run(options)


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    made = CommandParser(
        prog="gpuward doctor",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument(
        "--output",
        "-o",
        choices=("table", "wide", "json", "yaml"),
        default="table",
        help="wide: what to do is a column, instead of a list below the table",
    )
    made.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="whether to color text; default: auto, on a terminal",
    )
    made.add_argument(
        "--policy", metavar="FILE", help="a policy, whose profiles and rules are used"
    )
    made.add_argument(
        "--ask-kubelets",
        action="store_true",
        help="ask the kubelets of nodes with shared cards for their CPU policy; needs the right "
        "to get nodes/proxy, with which one can do much more",
    )
    made.add_argument(
        "--tls-only",
        action="store_true",
        help="only check the certificate of the webhook: for servers that demand a client "
        "certificate",
    )
    made.add_argument(
        "--no-dry-run",
        action="store_true",
        help="create no pods by dry runs, which needs the right to create pods; then it is not "
        "known whether the cluster is guarded",
    )
    made.add_argument(
        "--image",
        metavar="IMAGE",
        help="an image that pods may have there, if a policy restricts images; no container "
        f"starts; default: {IMAGE}",
    )
    made.add_argument(
        "--static-manifests",
        metavar="DIR",
        help="see whether the API server has loaded the files in this folder, which gpuward export "
        "static has written",
    )
    made.add_argument(
        "--since-report",
        metavar="FILE",
        help="what an earlier run wrote with -o json: calls of the webhook that had failed before "
        "do not count",
    )
    made.add_argument(
        "--allow-not-known",
        action="store_true",
        help="exit with 0 instead of 3 if something is not known, and nothing is wrong",
    )
    add_options(made, namespaced=False)
    return made

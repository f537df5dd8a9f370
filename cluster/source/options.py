"""The options that say which cluster a command looks at, and the source that they mean."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from cluster.source.contexts import add_context_options
from cluster.source.objects import Object, ObjectReader, SourceError
from rules.base.json_values import as_object, as_text
from rules.objects.object_ref import ObjectRef, object_ref
from terminal import printable

if TYPE_CHECKING:
    from cluster.api.connection import Connection

KUBECONFIG_HELP = "the kubeconfig file; default: that of kubectl, $KUBECONFIG or ~/.kube/config"
CONTEXT_HELP = "the context in it; default: the current one"


def add_options(
    made: argparse.ArgumentParser, *, namespaced: bool = True, several: bool = False
) -> None:
    """Add the options to the parser of a command.

    It may be for all namespaces alone, and may look at `several` clusters at once.
    """
    group = add_connection_options(made, several=several)
    if namespaced:
        scope = group.add_mutually_exclusive_group()
        scope.add_argument("--namespace", "-n", metavar="NS", help="only objects in this namespace")
        scope.add_argument(
            "--all-namespaces", "-A", action="store_true", help="all namespaces: the default"
        )
    else:
        group.add_argument(
            "--all-namespaces",
            "-A",
            action="store_true",
            help="all namespaces, which are always meant: accepted for the habit of kubectl",
        )
    add_file_option(group)


def add_file_option(group: argparse._ArgumentGroup, *more_names: str) -> None:
    """Add `--filename`, by which a command reads files and no cluster, with `more_names`."""
    group.add_argument(
        "--filename",
        "-f",
        *more_names,
        metavar="FILE",
        dest="files",
        action="append",
        default=[],
        help="no cluster, but what kubectl get -o json wrote into a file, or manifests; "
        "- for standard input; repeatable",
    )


def add_connection_options(
    made: argparse.ArgumentParser, *, several: bool = False
) -> argparse._ArgumentGroup:
    """Add the options of a command that only reads clusters; returns their group."""
    group = made.add_argument_group("where the objects are")
    group.add_argument("--kubeconfig", metavar="FILE", help=KUBECONFIG_HELP)
    if several:
        add_context_options(group)
    else:
        group.add_argument("--context", metavar="NAME", help=CONTEXT_HELP)
    return group


def open_connection(options: argparse.Namespace) -> Connection:
    """The connection to the cluster that the options mean. Raises SourceError."""
    # With files, the Kubernetes client need not be installed.
    from cluster.api.connection import Connection  # noqa: PLC0415
    from cluster.api.errors import ClusterError  # noqa: PLC0415

    try:
        return Connection.like_kubectl(options.kubeconfig, options.context)
    except ClusterError as error:
        instead = "; or read files with --filename" if hasattr(options, "files") else ""
        raise SourceError(f"{error}{instead}") from error


class _DifferenceNotes:
    """Notes on standard error about objects that are in files twice, each once."""

    _MOST = 10

    def __init__(self) -> None:
        self._noted: set[ObjectRef] = set()

    def __call__(self, raw: Object) -> None:
        group = as_text(raw.get("apiVersion")).rpartition("/")[0]
        ref = object_ref(as_text(raw.get("kind")), group, as_object(raw.get("metadata")), None)
        if ref in self._noted or len(self._noted) > self._MOST:
            return
        self._noted.add(ref)
        text = f"{ref} is in the files twice, and not the same: the first counts"
        if len(self._noted) > self._MOST:
            text = "more objects are in the files twice, and not the same: the first counts"
        sys.stderr.write(printable(f"gpuward: note: {text}") + "\n")


def open_source(options: argparse.Namespace) -> ObjectReader:
    """The source that the options mean; nothing is read yet. Raises SourceError."""
    if options.files:
        if options.kubeconfig or options.context:
            raise SourceError("--filename reads files: leave --kubeconfig and --context out")
        from cluster.source.files import FileSource  # noqa: PLC0415  # one of two

        return FileSource(options.files, sys.stdin.buffer, _DifferenceNotes())
    from cluster.source.api_server import ApiServerSource  # noqa: PLC0415  # the other

    return ApiServerSource(open_connection(options))

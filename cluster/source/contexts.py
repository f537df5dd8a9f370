"""Several clusters at once: the contexts that a command line names, and what was found in each."""

from __future__ import annotations

import argparse
import copy
from collections.abc import Iterator

from cluster.source.objects import SourceError


def add_context_options(group: argparse._ArgumentGroup) -> None:
    """Add the options that choose clusters by their contexts."""
    chosen = group.add_mutually_exclusive_group()
    chosen.add_argument(
        "--context",
        metavar="NAME",
        help="the context in it, or several with commas between them for one report about all; "
        "default: the current one",
    )
    chosen.add_argument(
        "--all-contexts",
        action="store_true",
        help="a context for each cluster in the kubeconfig file",
    )


def is_several(options: argparse.Namespace) -> bool:
    """Return whether the options mean several clusters, or all that there are."""
    return bool(options.all_contexts or "," in (options.context or ""))


def options_of_clusters(options: argparse.Namespace) -> Iterator[tuple[str, argparse.Namespace]]:
    """For each of several clusters its context, and the options for it alone.

    Raises SourceError if there is no context, or if files are named too.
    """
    if options.files:
        raise SourceError("--filename reads files: leave --context and --all-contexts out")
    for name in _contexts(options):
        of_one = copy.copy(options)
        of_one.context, of_one.all_contexts = name, False
        yield name, of_one


def _contexts(options: argparse.Namespace) -> list[str]:
    if not options.all_contexts:
        named = [name.strip() for name in options.context.split(",")]
        if not all(named):
            raise SourceError(f"--context {options.context}: a name between two commas is missing")
        return [*dict.fromkeys(named)]
    from cluster.api.connection import contexts_of_clusters  # noqa: PLC0415  # as open_connection
    from cluster.api.errors import ClusterError  # noqa: PLC0415

    try:
        found = contexts_of_clusters(options.kubeconfig)
    except ClusterError as error:
        raise SourceError(str(error)) from error
    if not found:
        raise SourceError("--all-contexts: the kubeconfig file has no context")
    return found

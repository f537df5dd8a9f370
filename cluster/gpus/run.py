"""Run `gpuward gpus`: read the GPUs of clusters, and print them."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterable

from cluster.accounting.account import DEFAULT_POD_SIZE, PodSize
from cluster.accounting.usage import Usage
from cluster.gpus.cgpu import inspect
from cluster.gpus.document import to_document, to_document_of_clusters
from cluster.gpus.tables import (
    ALLOCATED,
    LEGEND,
    Table,
    cards_table,
    join,
    models_table,
    namespaces_table,
    nodes_table,
    owners_table,
    pods_table,
    pods_without_gpu_table,
    room_table,
    tables_of_clusters,
    totals_table,
    words_about_pods_without_gpu,
)
from cluster.snapshot.snapshot import Snapshot
from cluster.source.contexts import is_several, options_of_clusters
from cluster.source.objects import NODES, PODS, ObjectReader, SourceError
from cluster.source.options import open_source
from cluster.structured_output import format_document
from policies.loading import PolicyError, load_policy_file
from rules.base.json_values import as_object, as_text
from rules.profile.profile import Profile
from sources.sources import reduce_garbage_collection
from terminal import (
    display_width,
    printable,
    use_color,
    width_of,
    write_error,
)

_INCOMPLETE = 3
_CLEAR = "\x1b[H\x1b[2J"


def run(options: argparse.Namespace, wait: Callable[[float], object]) -> int:
    """Show what the options say; the exit status. `wait` waits so many seconds."""
    reduce_garbage_collection()
    try:
        profile = load_policy_file(options.policy, []).profile
        ask = _question(options, profile)
        text, status = ask()
    except (PolicyError, SourceError) as error:
        return _fail(error)
    sys.stdout.write(text)
    while options.watch:
        sys.stdout.flush()
        wait(options.watch)
        try:
            text, status = ask()
        except SourceError as error:  # the cluster may be back next time
            _fail(error)
            continue
        sys.stdout.write((_CLEAR if sys.stdout.isatty() else "\n") + text)
    return status


def _pod_size(options: argparse.Namespace) -> PodSize:
    """Return the needs of a pod beside a card."""
    return PodSize(
        options.pod_cpu or DEFAULT_POD_SIZE.cpu, options.pod_memory or DEFAULT_POD_SIZE.memory
    )


def _question(options: argparse.Namespace, profile: Profile) -> Callable[[], tuple[str, int]]:
    """Return a function that asks for the text to print and the exit status, each time anew."""
    if not is_several(options):
        source = open_source(options)
        return lambda: _output(options, source.again(), profile)
    clusters = [*options_of_clusters(options)]
    return lambda: _of_clusters(options, clusters, profile)


def _of_clusters(
    options: argparse.Namespace,
    clusters: Iterable[tuple[str, argparse.Namespace]],
    profile: Profile,
) -> tuple[str, int]:
    """Return the text about several clusters, and the exit status; a failure hides no other."""
    status = 0
    found: dict[str, Usage] = {}
    for context, of_one in clusters:
        try:
            source = open_source(of_one)
            usage, notes = _read_usage(options, source, profile)
        except SourceError as error:
            notes = [str(error)]
        else:
            found[context] = usage
        if notes:
            status = _INCOMPLETE
        remarks = found[context].remarks() if context in found else ()
        for line in (*notes, *remarks):
            _fail(f"{context}: {line}")
    if options.output in {"json", "yaml"}:
        return format_document(to_document_of_clusters(found), options.output), status
    if not any(usage.nodes or usage.consumers for usage in found.values()):
        return (_nothing_found(options) if found else ""), status
    by = options.by or ("owner" if options.namespace else "node")
    tables = {context: _tables_by(by, usage, options) for context, usage in found.items()}
    text = _printed(tables_of_clusters(tables), options)
    said = (_summary(usage, options, f"{printable(c)}: ") for c, usage in found.items())
    return text + "".join(said), status


def _output(options: argparse.Namespace, source: ObjectReader, profile: Profile) -> tuple[str, int]:
    """Return the text to print, and the exit status."""
    if options.output == "cgpu":
        return _cgpu(options, source), 0
    usage, notes = _read_usage(options, source, profile)
    if options.names:
        known = {node.name for node in usage.nodes}
        known |= {c.node for c in usage.consumers} | {pod.node for pod in usage.without_gpu}
        absent = [name for name in options.names if name not in known]
        notes += [f"there is no node {name!r} with GPUs" for name in absent]
        usage = usage.on_nodes(frozenset(options.names))
    for line in (*notes, *usage.remarks()):
        _fail(line)
    return _written(usage, options), _INCOMPLETE if notes else 0


def _read_usage(
    options: argparse.Namespace, source: ObjectReader, profile: Profile
) -> tuple[Usage, list[str]]:
    """Count the GPUs of a cluster, or of one namespace alone, without nodes.

    Returns one line, too, for each thing that is not known. Raises SourceError if pods cannot be
    listed, or nothing can be.
    """
    snapshot = Snapshot(source, profile)
    account = snapshot.count(options.namespace, with_nodes=not options.namespace)
    usage = snapshot.usage(account, options.namespace, _pod_size(options))
    return usage, [*snapshot.missing_rights, *usage.notes()]


def _cgpu(options: argparse.Namespace, source: ObjectReader) -> str:
    nodes = (
        node
        for node in source.list(NODES)
        if not options.names
        or as_text(as_object(node.get("metadata")).get("name")) in options.names
    )
    return inspect(nodes, source.list(PODS), details=options.details)


def _written(usage: Usage, options: argparse.Namespace) -> str:
    if options.output in {"json", "yaml"}:
        return format_document(to_document(usage), options.output)
    return _tables(usage, options)


def _nothing_found(options: argparse.Namespace) -> str:
    if options.names:  # what is said about them is enough
        return ""
    if options.namespace:
        return f"No GPUs found: no pod in namespace {printable(options.namespace)} asks for any.\n"
    return "No GPUs found: no node offers any, and no pod asks for any.\n"


def _tables(usage: Usage, options: argparse.Namespace) -> str:
    if not (usage.nodes or usage.consumers or usage.without_gpu):
        return _nothing_found(options)
    by = options.by or ("owner" if options.namespace or not usage.nodes else "node")
    return _printed(_tables_by(by, usage, options), options) + _summary(usage, options)


def _summary(usage: Usage, options: argparse.Namespace, prefix: str = "") -> str:
    """Return the line about pods without a GPU that stands below the nodes; empty elsewhere."""
    said = words_about_pods_without_gpu(usage)
    if not said or options.details or options.without_gpu or options.by not in {None, "node"}:
        return ""
    return f"\n{prefix}{said}\n`gpuward gpus --without-gpu` lists them.\n"


def _tables_by(by: str, usage: Usage, options: argparse.Namespace) -> list[Table]:
    """The tables with one row for each node, model, namespace or owner, or with the details."""
    if options.details:
        return [cards_table(usage), pods_table(usage)]
    if options.without_gpu:
        return [pods_without_gpu_table(usage)]
    if by == "namespace":
        return [namespaces_table(usage)]
    if by == "owner":
        return [owners_table(usage)]
    if by == "model":
        return [models_table(usage), totals_table(usage), room_table(usage)]
    nodes = nodes_table(usage, wide=options.output == "wide")
    return [nodes, totals_table(usage), room_table(usage)]


def _printed(tables: list[Table], options: argparse.Namespace) -> str:
    bars = use_color(options.color, sys.stdout) and _has_blocks()
    width = width_of(sys.stdout)
    text = join(tables, bars=bars, width=math.inf)
    if max(map(display_width, text.splitlines()), default=0) > width:
        text, bars = join(tables, bars=False, width=width), False
    text = text or _NO_ROWS[options.without_gpu]
    return f"{text}\n{LEGEND}" if bars and ALLOCATED in text else text


_NO_ROWS = {
    False: "No pods have GPUs of these nodes.\n",
    True: "No pods without a GPU are on these nodes.\n",
}


def _has_blocks() -> bool:
    """Return whether standard output can encode the characters of bars."""
    try:
        LEGEND.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def _fail(message: object) -> int:
    write_error("gpuward gpus", message)
    return 2

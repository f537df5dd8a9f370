"""The command `gpuward gpus`."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterable

from cluster.accounting.account import DEFAULT_POD_SIZE, PodSize
from cluster.accounting.pod_requests import amount_of
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
from cluster.source.options import add_options, open_source
from cluster.structured_output import format_document
from policies.loading import PolicyError, load_policy_file
from rules.base.json_values import as_object, as_text
from rules.profile.profile import Profile
from sources.sources import reduce_garbage_collection
from terminal import (
    CommandParser,
    display_width,
    printable,
    use_color,
    width_of,
    write_error,
)

# The options of `gpuward gpus`.

LEAST_SECONDS = 2.0
_SECONDS = 10.0
_DESCRIPTION = """\
Show which GPUs a cluster has, who has them, which are free, and which are stranded: free
cards of nodes whose CPU or memory is used up. Nothing is created or changed."""
_EPILOG = """\
exit status: 0 done, 2 wrong usage, or nothing could be read, 3 something is not known, such as
nodes, for which the account needs a right"""


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    made = CommandParser(
        prog="gpuward gpus",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("names", metavar="NODE", nargs="*", help="only these nodes")
    made.add_argument(
        "--output",
        "-o",
        choices=("table", "wide", "json", "yaml", "cgpu"),
        default="table",
        help="cgpu: what `kubectl inspect cgpu` prints; default: table",
    )
    view = made.add_mutually_exclusive_group()
    view.add_argument(
        "--by",
        choices=("node", "model", "namespace", "owner"),
        help="one row for each of these; default: node, with --namespace owner",
    )
    view.add_argument(
        "--details", "-d", action="store_true", help="the pods of each card, as far as known"
    )
    view.add_argument(
        "--without-gpu",
        action="store_true",
        help="the pods on GPU nodes that ask for no GPU, why they run there, and what they take",
    )
    made.add_argument(
        "--watch",
        "-w",
        metavar="SECONDS",
        type=_seconds,
        nargs="?",
        const=_SECONDS,
        help=f"show it again every {_SECONDS:g} seconds, or as many as given, until Ctrl-C",
    )
    made.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="whether to color text; default: auto, on a terminal",
    )
    made.add_argument(
        "--policy", metavar="FILE", help="a policy, whose profiles say which resources are GPUs"
    )
    size = made.add_argument_group("stranded cards", "how much a pod needs beside a card:")
    size.add_argument("--pod-cpu", metavar="CPU", type=_amount, help="default: 1")
    size.add_argument("--pod-memory", metavar="MEMORY", type=_amount, help="default: 1Gi")
    add_options(made, several=True)
    return made


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options; exits with status 2 if they contradict each other."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    is_cgpu = options.output == "cgpu"
    if is_several(options) and (is_cgpu or options.names):
        unfit = "--output cgpu" if is_cgpu else "a node"
        parser.error(f"{unfit} is of one cluster: give one context")
    if options.namespace and (options.by in {"node", "model"} or is_cgpu):
        view = f"--by {options.by}" if options.by else "--output cgpu"
        parser.error(
            f"{view} needs the pods of all namespaces to tell what is free: leave --namespace out"
        )
    if options.without_gpu and options.namespace:
        parser.error("--without-gpu needs the nodes to tell which have GPUs: leave --namespace out")
    if is_cgpu and options.without_gpu:
        parser.error("--output cgpu has its own columns: leave --without-gpu out")
    if is_cgpu and options.by:
        parser.error("--output cgpu has its own columns: leave --by out")
    if is_cgpu and (options.pod_cpu or options.pod_memory):
        unused = "--pod-cpu and --pod-memory"
        parser.error(f"--output cgpu shows no stranded cards: leave {unused} out")
    if is_cgpu and options.policy:
        parser.error("--output cgpu reads no profile: leave --policy out")
    return options


def _pod_size(options: argparse.Namespace) -> PodSize:
    """Return the needs of a pod beside a card."""
    return PodSize(
        options.pod_cpu or DEFAULT_POD_SIZE.cpu, options.pod_memory or DEFAULT_POD_SIZE.memory
    )


def _amount(text: str) -> int:
    amount = amount_of(text)
    if not amount:
        raise argparse.ArgumentTypeError(f"{text}: expected an amount such as 500m or 2Gi")
    return amount


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not LEAST_SECONDS <= seconds <= 86400:  # noqa: PLR2004  # a day
        raise argparse.ArgumentTypeError(
            f"{text}: expected a number of seconds, at least {LEAST_SECONDS:g}"
        )
    return seconds


__all__ = ["main", "make_parser"]

_INCOMPLETE = 3
_CLEAR = "\x1b[H\x1b[2J"


def main(arguments: list[str], wait: Callable[[float], object] = time.sleep) -> int:
    """Run the command with these arguments; the exit status. `wait` waits so many seconds."""
    options = parse(arguments)
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

"""The command `gpuward why`."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Callable, Iterator

from cluster.gpus.accounting import PodLedger
from cluster.source.files import FileSource
from cluster.source.objects import (
    CLAIMS,
    NODES,
    PODS,
    QUOTAS,
    Object,
    ObjectSource,
    SourceError,
    list_readable,
)
from cluster.source.options import add_options, open_source
from cluster.structured_output import format_document
from cluster.why.explanation import Explanation, explain, to_document
from cluster.why.filters import read_node
from policies.loading import default_policy
from reports.formats import some
from rules.base.json_values import as_object, as_text
from terminal import CommandParser, printable, write_error

_DESCRIPTION = """\
Say why a pod is Pending: each group of nodes with the first reason why kube-scheduler
cannot use it, and what would change that. Nothing is created or changed."""
_EPILOG = """\
exit status: 0 the pod has a node, or a node can take it; 1 no node can; 2 wrong usage, or
there is no such pod; 3 something could not be read"""
_WIDTH = 100
_NAMED = 3


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    made = CommandParser(
        prog="gpuward why",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("pod", metavar="POD", nargs="?", help="the name of a pod")
    made.add_argument(
        "--manifest", metavar="FILE", help="a pod that does not exist yet; - for standard input"
    )
    made.add_argument(
        "--output", "-o", choices=("text", "json", "yaml"), default="text", help="default: text"
    )
    add_options(made)
    return made


def main(arguments: list[str]) -> int:
    """Explain a pod; the exit status."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    if bool(options.pod) == bool(options.manifest):
        parser.error("name a POD, or give one by --manifest")
    missing: list[str] = []
    try:
        source = open_source(options)
        pod = _manifest(options.manifest) if options.manifest else _pod(source, options)
        found = explanation_of(
            pod, source, missing.append, namespace=options.namespace, exists=not options.manifest
        )
    except SourceError as error:
        write_error("gpuward why", error)
        return 2
    for line in missing:
        write_error("gpuward why", line)
    if options.output == "text":
        sys.stdout.write("\n".join(map(printable, lines(found))) + "\n")
    else:
        sys.stdout.write(format_document(to_document(found), options.output))
    if missing:
        return 3
    return 0 if found.node or (found.fitting and not found.hurdles) else 1


def explanation_of(
    pod: Object,
    source: ObjectSource,
    on_missing: Callable[[str], object],
    *,
    namespace: str | None = None,
    exists: bool = True,
) -> Explanation:
    """Why `pod` is Pending in the cluster of `source`.

    `on_missing` is called with a line for each thing that the account may not list. Raises
    SourceError if nodes or pods cannot be listed.
    """
    home = as_text(as_object(pod.get("metadata")).get("namespace")) or namespace or "default"
    ledger = PodLedger(default_policy().profile, {})
    own = as_object(pod.get("metadata")).get("uid")
    for other in source.list(PODS):
        if not own or as_object(other.get("metadata")).get("uid") != own:
            ledger.add(other)
    nodes = [*source.list(NODES)]
    claims = {
        as_text(as_object(raw.get("metadata")).get("name")): raw
        for raw in list_readable(source, CLAIMS, home, on_missing)
    }
    quotas = [] if exists else [*list_readable(source, QUOTAS, home, on_missing)]
    return explain(
        pod,
        (read_node(raw, ledger.loads.get(_name(raw))) for raw in nodes),
        claims=claims,
        quotas=quotas,
        exists=exists,
    )


def _name(raw: Object) -> str:
    return as_text(as_object(raw.get("metadata")).get("name"))


def _manifest(file: str) -> Object:
    pods = [*FileSource([file], sys.stdin.buffer).list(PODS)]
    if len(pods) != 1:
        raise SourceError(f"{file}: expected one object of the kind Pod, and there are {len(pods)}")
    return pods[0]


def _pod(source: ObjectSource, options: argparse.Namespace) -> Object:
    name = options.pod.removeprefix("pod/")
    found = [raw for raw in source.list(PODS, options.namespace) if _name(raw) == name]
    if not found:
        where = f" in namespace {options.namespace}" if options.namespace else ""
        raise SourceError(f"there is no pod {name!r}{where}")
    if len(found) > 1:
        homes = [as_text(as_object(raw.get("metadata")).get("namespace")) for raw in found]
        raise SourceError(
            f"several namespaces have a pod {name!r}: give one of {some(homes)} by -n"
        )
    return found[0]


def lines(found: Explanation) -> Iterator[str]:
    """What is printed for people."""
    asks = f" asks for {', '.join(found.asks)}" if found.asks else ""
    yield f"{found.namespace or 'default'}/{found.name}{asks}"
    yield from _wrapped(found.verdict[:1].upper() + found.verdict[1:], "")
    if found.node:
        return
    for hurdle in found.hurdles:
        yield ""
        yield from _wrapped(hurdle.what, "  ")
        yield from _wrapped(hurdle.remedy, "    -> ")
    for group in found.groups:
        yield ""
        count = f"{len(group.names):,} node{'s'[len(group.names) == 1 :]}"
        more = f" and {len(group.names) - _NAMED:,} more" if len(group.names) > _NAMED else ""
        model = f", {group.model}" if group.model else ""
        yield f"{count}{model}: {', '.join(group.names[:_NAMED])}{more}"
        for reason in group.reasons:
            yield from _wrapped(reason, "  - ")
        for remedy in group.remedies:
            yield from _wrapped(remedy, "    -> ")
        for reason in group.further:
            yield from _wrapped(f"that alone would not do: {reason}", "    -> ")
    yield ""
    yield from _wrapped(found.summary, "")
    if found.unchecked:
        yield from _wrapped(f"Not looked at: {'; '.join(found.unchecked)}", "")


def _wrapped(line: str, indent: str) -> list[str]:
    return textwrap.wrap(
        line,
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=" " * len(indent),
        break_long_words=False,
        break_on_hyphens=False,
    )

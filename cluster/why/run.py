"""Run `gpuward why`: explain pods, and print the answers."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Iterator, Sequence

from cluster.snapshot.snapshot import Snapshot
from cluster.source.objects import Object, SourceError
from cluster.source.options import open_source
from cluster.structured_output import format_document
from cluster.why.explainer import Explainer, read_workloads
from cluster.why.explanation import Answer, Explanation, to_document
from cluster.why.groups import NodeGroup
from policies.loading import default_policy
from reports.formats import some
from rules.base.json_values import as_object, as_text
from sources.sources import reduce_garbage_collection
from terminal import printable, write_error

_WIDTH = 100
_NAMED = 3


def run(options: argparse.Namespace) -> int:
    """Explain the pods that the options name; the exit status."""
    reduce_garbage_collection()
    try:
        snapshot = Snapshot(open_source(options), default_policy().profile)
        name = _asked_name(options.pod or "")
        explainer = Explainer(snapshot, namespace=options.namespace, name=name)
        is_list = not options.pod and not options.manifest
        if options.manifest:
            workloads = read_workloads(
                options.manifest,
                options.namespace,
                lambda: explainer.training_runtimes(options.namespace),
            )
            answers = [*map(explainer.explain_workload, workloads)]
        elif name:
            answers, is_list = _explain_named(explainer, name, options.namespace)
        else:
            answers = [*explainer.explain_pending()]
    except SourceError as error:
        write_error("gpuward why", error)
        return 2
    for line in snapshot.missing_rights:
        write_error("gpuward why", line)
    if options.output != "text":
        documents = [*map(to_document, answers)]
        is_one = len(documents) == 1 and not is_list
        document = documents[0] if is_one else {"version": 1, "pods": documents}
        sys.stdout.write(format_document(document, options.output))
    else:
        text = _waiting(answers) if is_list else _each(answers)
        sys.stdout.write("\n".join(map(printable, text)) + "\n")
    if snapshot.missing_rights:
        return 3
    found = {answer.answer for answer in answers}
    return 1 if Answer.CANNOT in found else 3 if Answer.NOT_KNOWN in found else 0


def _asked_name(text: str) -> str:
    """Return what is asked for as NAME or KIND/NAME, with the kind as objects spell it."""
    kind, slash, name = text.rpartition("/")
    kind = kind.lower().partition(".")[0]
    kind = {"po": "pod"}.get(kind, kind.removesuffix("s"))
    return f"{kind}{slash}{name}"


def _explain_named(
    explainer: Explainer, name: str, namespace: str | None
) -> tuple[list[Explanation], bool]:
    """Return the answers about a pod or the pods of an object, and whether they are a list.

    Raises SourceError if there is none, or several namespaces have one.
    """
    if explainer.named or name.startswith("pod/"):
        pod = _only(explainer.named, name.removeprefix("pod/"), namespace)
        return [explainer.explain(pod)], False
    if explainer.owned:
        return explainer.explain_owned(), bool(explainer.waiting_owned)
    if found := explainer.explain_held():
        return found, False
    raise SourceError(f"there is no pod {name!r}{_where(namespace)}")


def _only(found: Sequence[Object], name: str, namespace: str | None) -> Object:
    """Return the only pod with this name. Raises SourceError."""
    if not found:
        raise SourceError(f"there is no pod {name!r}{_where(namespace)}")
    if len(found) > 1:
        homes = [as_text(as_object(raw.get("metadata")).get("namespace")) for raw in found]
        raise SourceError(
            f"several namespaces have a pod {name!r}: give one of {some(homes)} by -n"
        )
    return found[0]


def _where(namespace: str | None) -> str:
    return f" in namespace {namespace}" if namespace else ""


def lines(found: Explanation) -> Iterator[str]:
    """Yield the lines that are printed for people."""
    asks = f" asks for {', '.join(found.asks)}" if found.asks else ""
    yield f"{found.namespace or 'default'}/{found.name}{asks}"
    for line in found.defaults:
        yield from _wrapped(f"{_sentence(line)}.", "")
    verdict = _sentence(found.verdict)
    if found.placed is not None and not found.group:
        may = "may have" if found.unchecked else "have"
        yield f"{found.placed:,} of its {found.wanted:,} pods {may} room."
        if found.answer is Answer.CANNOT and found.placed != found.wanted:
            verdict = f"The next: {found.verdict}"
    yield from _wrapped(verdict, "")
    for hurdle in found.hurdles:
        yield ""
        yield from _wrapped(hurdle.what, "  ")
        yield from _wrapped(hurdle.remedy, "    -> ")
    for group in found.groups:
        yield ""
        yield from _group(group)
    if found.summary and not found.is_bound:
        yield ""
        yield from _wrapped(found.summary, "")
    if found.evicting:
        count = len(found.evicting)
        nodes = f"{count:,} node{'s'[count == 1 :]}: {some(found.evicting)}"
        yield from _wrapped(
            f"kube-scheduler may evict pods of lower priority for it from {nodes}", ""
        )
    if found.unchecked and found.answer is not Answer.CANNOT:
        yield from _wrapped(f"Not known: {'; '.join(found.unchecked)}", "")


def _group(group: NodeGroup) -> Iterator[str]:
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


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _each(answers: Sequence[Explanation]) -> Iterator[str]:
    for number, found in enumerate(answers):
        if number:
            yield ""
        yield from lines(found)


def _waiting(answers: Sequence[Explanation]) -> Iterator[str]:
    """Pods that wait, those together that wait for the same."""
    if not answers:
        yield "No pod waits for a node."
        return
    alike: dict[tuple[Answer, str], list[Explanation]] = {}
    for found in answers:
        alike.setdefault((found.answer, found.verdict), []).append(found)
    yield f"{len(answers):,} pod{' waits' if len(answers) == 1 else 's wait'} for a node."
    for (answer, verdict), group in sorted(alike.items(), key=lambda item: -len(item[1])):
        yield ""
        oldest = min((found.since for found in group if found.since), default="")
        count = f"{len(group):,} pod{'s'[len(group) == 1 :]}"
        yield f"{count}, {answer.value}{f', since {oldest}' if oldest else ''}:"
        names = [f"{found.namespace or 'default'}/{found.name}" for found in group]
        yield from _wrapped(some(names), "  ")
        yield from _wrapped(verdict, "  - ")
        first = group[0]
        for remedy in _remedies(first) if answer is not Answer.CAN else ():
            yield from _wrapped(remedy, "    -> ")
        if first.evicting:
            nodes = some(first.evicting)
            yield from _wrapped(f"pods of lower priority may be evicted from {nodes}", "    -> ")
        for unknown in first.unchecked if answer is Answer.NOT_KNOWN else ():
            yield from _wrapped(f"not known: {unknown}", "    -> ")


def _remedies(found: Explanation) -> Iterator[str]:
    """Yield the lines about what would change an answer: of nodes, the nearest."""
    if found.hurdles:
        yield found.hurdles[0].remedy
        for hurdle in found.hurdles[1:]:
            yield f"that alone would not do: {hurdle.what}"
        return
    for group in found.groups[:1]:
        yield from group.remedies
        for reason in group.further:
            yield f"that alone would not do: {reason}"


def _wrapped(line: str, indent: str) -> list[str]:
    return textwrap.wrap(
        line,
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=" " * len(indent),
        break_long_words=False,
        break_on_hyphens=False,
    )

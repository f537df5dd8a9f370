"""The report as Markdown, HTML and plain data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element, tostring

from cluster.conformance.dry_runs import State
from cluster.conformance.evidence import MOST_PODS, REQUIREMENT, VERSION, Evidence
from reports.formats.html import add_element
from terminal import printable

_TITLE = "Secure Accelerator Access (KAR-0049)"
_STATES = {
    State.REFUSED: "the API server refuses it, by the control that is named",
    State.CHANGED: "it is admitted without the way, after something has changed the pod",
    State.BY_SETTING: "it is admitted; a setting that was seen makes the runtime ignore it. Nobody "
    "has tried that",
    State.OPEN: "it is admitted as it is",
    State.NOT_KNOWN: "the answer says nothing about the way",
}
_NOT_SAID = (
    "What this report does not say: whether the container runtime of a node isolates GPUs, which "
    "only a container on a node with GPUs can show; whether admission answers the same for users "
    "and namespaces that were not tried; what images set; and ways that are not listed here."
)
_OWN = (
    "These are the rights of the account that ran the command, which may do more than users of the "
    "namespace. --as makes the dry runs as one of them."
)
_STYLES = (
    "body{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:75rem;padding:0 1rem}"
    "table{border-collapse:collapse;width:100%;margin:1rem 0}"
    "th,td{border:1px solid #8888;padding:.3rem .5rem;text-align:left;vertical-align:top;"
    "overflow-wrap:anywhere}"
    "td.open,td.error{background:#c0392b33}td.unknown{background:#f1c40f33}"
)
_LONGEST = 400  # characters of a message


class Section(NamedTuple):
    """A part of the report: text, and a table if it has a header."""

    title: str
    text: tuple[str, ...] = ()
    header: tuple[str, ...] = ()
    rows: Sequence[tuple[str, ...]] = ()


def sections(evidence: Evidence) -> Iterator[Section]:
    """The parts of the report, in order."""
    counts = [
        (state.value, f"{evidence.counts()[state]:,}", text) for state, text in _STATES.items()
    ]
    facts = [(name, value) for name, value in evidence.about.items() if value]
    yield Section("", (f"Read at {evidence.read_at}.", f"The requirement: {REQUIREMENT}"))
    yield Section("What was read", (), ("", ""), facts)
    yield Section("Ways to a GPU", (*_how_tried(evidence),), ("result", "ways", "meaning"), counts)
    yield Section(
        "Each way",
        (),
        ("way", "namespace", "result", "control", "seen"),
        [
            (result.title, result.namespace, result.state.value, result.control, result.seen)
            for result in evidence.results
        ],
    )
    yield Section(
        "Controls that were seen",
        (),
        ("what", "name", "setting", "SHA-256"),
        [
            (control.kind, control.name, control.setting, control.sha256)
            for control in evidence.controls
        ],
    )
    yield from _reaching(evidence)
    yield Section("What is not known", (_NOT_SAID, *evidence.unread))


def _how_tried(evidence: Evidence) -> Iterator[str]:
    if not evidence.was_tried:
        yield "Files answer no dry run: no way was tried."
        return
    who = f"As {evidence.user or 'an unknown user'}"
    groups = f", of the groups {', '.join(evidence.groups)}" if evidence.groups else ""
    yield (
        f"{who}{groups}, in {', '.join(evidence.namespaces)}: a dry run of each pod, and of a "
        "harmless pod of the same shape, which is admitted where an answer counts. Nothing was "
        "created or changed."
    )
    if evidence.is_own:
        yield _OWN


def _reaching(evidence: Evidence) -> Iterator[Section]:
    title = "Pods that reach GPUs without asking, now"
    if not evidence.reaching:
        text = ("None was found in what the account may list, by their manifests.",)
        yield Section(title, text)
        return
    shown = evidence.reaching[:MOST_PODS]
    left_out = len(evidence.reaching) - len(shown)
    more = (f"{left_out:,} more are left out; the format json has all.",) if left_out else ()
    yield Section(
        title,
        ("By their manifests: an error is certain, a warning depends on the node.", *more),
        ("level", "namespace", "object", "rule", "what"),
        [(each.level, each.namespace, each.object, each.rule, each.message) for each in shown],
    )


def to_document(evidence: Evidence) -> dict[str, Any]:
    """The report as the object that docs/conformance.md describes."""
    return {
        "version": VERSION,
        "requirement": {"id": "KAR-0049", "text": REQUIREMENT},
        "readAt": evidence.read_at,
        "about": {**evidence.about},
        "user": {
            "name": evidence.user,
            "groups": [*evidence.groups],
            "isOwnAccount": evidence.is_own,
        },
        "tried": evidence.was_tried,
        "namespaces": [*evidence.namespaces],
        "counts": {state.value: count for state, count in evidence.counts().items()},
        "ways": [{**result._asdict(), "state": result.state.value} for result in evidence.results],
        "controls": [control._asdict() for control in evidence.controls],
        "reaching": [each._asdict() for each in evidence.reaching],
        "unread": [*evidence.unread],
    }


def to_markdown(evidence: Evidence) -> str:
    """The report as Markdown, in which the names that users chose are text and nothing else."""
    parts = [f"# {_TITLE}"]
    for section in sections(evidence):
        if section.title:
            parts.append(f"## {section.title}")
        parts += [_text(paragraph) for paragraph in section.text]
        if section.header:
            lines = [section.header, ("---",) * len(section.header), *section.rows]
            parts.append("\n".join(_row(line) for line in lines))
    return "\n\n".join(parts) + "\n"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(_text(_cut(cell)) for cell in cells)} |"


def _text(text: str) -> str:
    """Text without control characters, in which no character begins Markdown or HTML."""
    shown = printable(" ".join(text.split()))
    return "".join(f"\\{c}" if c in "\\`*_[]<>|#&" else c for c in shown)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def to_html(evidence: Evidence) -> str:
    """The report as one page, which loads nothing and has no script."""
    page = Element("html", lang="en")
    head = add_element(page, "head")
    add_element(head, "meta", charset="utf-8")
    policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    add_element(head, "meta", http_equiv="Content-Security-Policy", content=policy)
    add_element(head, "title", f"gpuward: {_TITLE}")
    add_element(head, "style").text = _STYLES
    body = add_element(page, "body")
    add_element(body, "h1", _TITLE)
    for section in sections(evidence):
        if section.title:
            add_element(body, "h2", section.title)
        for paragraph in section.text:
            add_element(body, "p", paragraph)
        if section.header:
            _add_table(body, section)
    return f"<!DOCTYPE html>\n{tostring(page, 'unicode', method='html')}\n"


_CSS = {State.OPEN.value: "open", State.NOT_KNOWN.value: "unknown", "error": "error"}


def _add_table(body: Element, section: Section) -> None:
    table = add_element(body, "table")
    row = add_element(table, "tr")
    for name in section.header:
        add_element(row, "th", name)
    for cells in section.rows:
        row = add_element(table, "tr")
        for cell in cells:
            add_element(row, "td", _cut(cell), _CSS.get(cell, ""))

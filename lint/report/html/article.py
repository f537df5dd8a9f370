"""One article of the page: a finding, or what else a user must not miss."""

from __future__ import annotations

from typing import NamedTuple
from xml.etree.ElementTree import Element

from lint.report.html.elements import add
from reports.entries import Entry
from reports.findings import LocatedFinding
from sources.sources import STANDARD_INPUT
from terminal import printable


class Article(NamedTuple):
    """An entry of the report, with its finding if a rule made it.

    `nameless` is what the page calls what is in no file.
    """

    entry: Entry
    located: LocatedFinding | None = None
    nameless: str = STANDARD_INPUT

    @property
    def file(self) -> str:
        """The name under which the page lists it."""
        return self.entry.file or self.nameless


def add_article(section: Element, article: Article) -> None:
    """Add what is wrong, where, why, and what to do about it."""
    entry, located = article.entry, article.located
    data = {"data_level": entry.level, "data_rule": entry.code}
    element = add(section, "article", css=entry.level, **data)
    head = add(element, "h3")
    add(head, "span", entry.level, "level")
    link = {"href": entry.page, "rel": "noopener noreferrer"}
    add(head, "a", entry.code, **link) if entry.page else add(head, "span", entry.code)
    add(element, "p", entry.message, "message")
    position = f"{entry.line}:{entry.column}" if entry.line and entry.file else ""
    places = [position, entry.object]
    if located:
        is_exact = entry.file and not located.rendered_by
        pointer = "" if is_exact else located.pointer_in_object
        places += [located.finding.container, pointer]
    add(element, "p", " · ".join(filter(None, places)), "where")
    if located:
        element.set("id", entry.fingerprint[:12])
        _add_excerpt(element, located)
    if entry.help:
        add(add(element, "p", css="help"), "b", "Help: ").tail = entry.help
    if located:
        _add_fix_and_reason(element, located)


def _add_fix_and_reason(element: Element, located: LocatedFinding) -> None:
    finding = located.finding
    if finding.fixable and finding.fix:
        add(element, "p", f"gpuward fix: {finding.fix}", "fix")
    why = located.rule.documentation.get("Why it matters", "").split("\n\n")[0]
    details = add(element, "details")
    add(details, "summary", "Why it matters")
    add(details, "p", " ".join(why.split()))


def _add_excerpt(element: Element, located: LocatedFinding) -> None:
    line, around = located.span.line, located.excerpt
    text, start, stop = around.text, around.start, around.start + around.width
    pre = add(element, "pre", tabindex="0")
    for number, before in enumerate(around.before, line - len(around.before)):
        _add_line(pre, number, before)
    row = _add_line(pre, line, text[:start])
    add(row, "mark", _visible(text[start:stop])).tail = _visible(text[stop:])
    for number, after in enumerate(around.after, line + 1):
        _add_line(pre, number, after)
    if located.rendered_by:
        rendered = f"Rendered: line {located.rendered_line} of {located.rendered_by}"
        add(element, "p", rendered, "where")


def _add_line(pre: Element, number: int, text: str) -> Element:
    row = add(pre, "span", _visible(text), data_line=str(number or ""))
    row.tail = "\n"
    return row


def _visible(text: str) -> str:
    return printable(text.replace("\t", "    "))

"""One HTML page for people. It loads nothing and needs no script; with one, it can be filtered."""

import base64
import hashlib
import os
from collections.abc import Iterable
from typing import NamedTuple, TextIO
from xml.etree.ElementTree import Element, SubElement, tostring

from reports.entries import (
    ReportEntry,
    entries_beside_findings,
    entry_of_finding,
    fingerprints,
    level_counts_text,
)
from reports.findings import LEVEL_BY_ACTION, LocatedFinding
from reports.formats import ReportStyle, fixed_files, many
from reports.results import Results
from sources import STANDARD_INPUT
from terminal import printable


def add_element(
    parent: Element, tag: str, text: str = "", css: str = "", **attributes: str
) -> Element:
    """A new element of the class `css` at the end of `parent`."""
    attributes = {name.replace("_", "-"): value for name, value in attributes.items()}
    made = SubElement(parent, tag, {"class": css} if css else {}, **attributes)
    made.text = printable(text)
    return made


class Article(NamedTuple):
    """An entry of the report, with its finding if a rule made it.

    `nameless` is what the page calls what is in no file.
    """

    entry: ReportEntry
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
    element = add_element(section, "article", css=entry.level, **data)
    head = add_element(element, "h3")
    add_element(head, "span", entry.level, "level")
    link = {"href": entry.page, "rel": "noopener noreferrer"}
    add_element(head, "a", entry.code, **link) if entry.page else add_element(
        head, "span", entry.code
    )
    add_element(element, "p", entry.message, "message")
    position = f"{entry.line}:{entry.column}" if entry.line and entry.file else ""
    places = [position, entry.object]
    if located:
        is_exact = entry.file and not located.rendered_by
        pointer = "" if is_exact else located.pointer_in_object
        places += [located.finding.container, pointer]
    add_element(element, "p", " · ".join(filter(None, places)), "where")
    if located:
        element.set("id", entry.fingerprint[:12])
        _add_excerpt(element, located)
    if entry.help:
        add_element(add_element(element, "p", css="help"), "b", "Help: ").tail = entry.help
    if located:
        _add_fix_and_reason(element, located)


def _add_fix_and_reason(element: Element, located: LocatedFinding) -> None:
    finding = located.finding
    if finding.fixable and finding.fix:
        add_element(element, "p", f"gpuward fix: {finding.fix}", "fix")
    why = located.rule.documentation.get("Why it matters", "").split("\n\n")[0]
    details = add_element(element, "details")
    add_element(details, "summary", "Why it matters")
    add_element(details, "p", " ".join(why.split()))


def _add_excerpt(element: Element, located: LocatedFinding) -> None:
    line, around = located.span.line, located.excerpt
    text, start, stop = around.text, around.start, around.start + around.width
    pre = add_element(element, "pre", tabindex="0")
    for number, before in enumerate(around.before, line - len(around.before)):
        _add_line(pre, number, before)
    row = _add_line(pre, line, text[:start])
    add_element(
        row, "mark", _printable_with_spaces(text[start:stop])
    ).tail = _printable_with_spaces(text[stop:])
    for number, after in enumerate(around.after, line + 1):
        _add_line(pre, number, after)
    if located.rendered_by:
        rendered = f"Rendered: line {located.rendered_line} of {located.rendered_by}"
        add_element(element, "p", rendered, "where")


def _add_line(pre: Element, number: int, text: str) -> Element:
    row = add_element(pre, "span", _printable_with_spaces(text), data_line=str(number or ""))
    row.tail = "\n"
    return row


def _printable_with_spaces(text: str) -> str:
    return printable(text.replace("\t", "    "))


# Browsers get slow with more.
_MAX_ARTICLES = 5_000


def write(out: TextIO, results: Results, style: ReportStyle) -> None:
    """Write the page, with notes only if the style asks for them."""
    articles = [*_articles(results, style)]
    page = Element("html", lang="en")
    _add_head(page, level_counts_text(article.entry for article in articles))
    body = add_element(page, "body")
    _add_header(body, results, articles)
    main = add_element(body, "main")
    shown = articles[:_MAX_ARTICLES]
    _add_filters(main, shown)
    _add_files(main, shown)
    if not articles:
        add_element(main, "p", results.reason_nothing_evaluated or "Nothing found.", "nothing")
    if missing := len(articles) - len(shown):
        add_element(main, "p", f"{missing} more do not fit on this page. The format json has all.")
    _add_suppressed(main, results)
    _add_list(main, "Fixed", (f"{file}: {rules}" for file, rules in fixed_files(results)))
    _add_list(main, "Skipped", (f"{skipped.name}: {skipped.why}" for skipped in results.skipped))
    add_element(body, "script").text = _read_asset("html.js")
    out.write(f"<!DOCTYPE html>\n{tostring(page, 'unicode', method='html')}\n")


def _articles(results: Results, style: ReportStyle) -> Iterable[Article]:
    """Yield the articles of the report.

    Input that was not evaluated comes first: without it the rest may say too little.
    """
    nameless = STANDARD_INPUT if results.is_of_files else "the cluster"
    for entry in entries_beside_findings(results, style):
        yield Article(entry, nameless=nameless)
    for located, mark in zip(results.findings, fingerprints(results.findings), strict=True):
        if located.level != "note" or style.notes:
            yield Article(entry_of_finding(located, mark), located, nameless)


def _add_head(page: Element, heading: str) -> None:
    head, styles, script = (
        add_element(page, "head"),
        _read_asset("html.css"),
        _read_asset("html.js"),
    )
    policy = (
        f"default-src 'none'; style-src {_csp_hash(styles)}; script-src {_csp_hash(script)}; "
        "base-uri 'none'; form-action 'none'"
    )
    add_element(head, "meta", charset="utf-8")
    add_element(head, "meta", http_equiv="Content-Security-Policy", content=policy)
    add_element(head, "meta", name="viewport", content="width=device-width, initial-scale=1")
    add_element(head, "meta", name="referrer", content="no-referrer")
    add_element(head, "title", f"gpuward: {heading}")
    add_element(head, "style").text = styles


def _add_header(body: Element, results: Results, articles: list[Article]) -> None:
    header = add_element(body, "header")
    add_element(header, "h1", "gpuward")
    counts = add_element(header, "ul", css="counts")
    for level in LEVEL_BY_ACTION.values():
        shown = sum(article.entry.level == level for article in articles)
        number = max(shown, results.count(level))
        item = add_element(counts, "li", css=level if number else f"{level} none")
        add_element(item, "strong", str(number))
        advice = " (--notes shows them)" if number > shown else ""
        add_element(item, "span", f"{level}{'s'[number == 1 :]}{advice}")
    facts = [many(results.file_count, "file")] if results.is_of_files else []
    facts += [many(results.objects, "object")]
    facts += [many(results.pods, "pod"), f"{results.suppressed} suppressed"]
    facts += [f"{results.excepted} excepted"] if results.excepted else []
    facts += [f"{results.baselined} in the baseline"] if results.baselined else []
    facts += [f"policy {results.policy}"] if results.policy else []
    add_element(header, "p", " · ".join(facts))


def _add_filters(main: Element, articles: list[Article]) -> None:
    """The filters, which stay hidden without a script."""
    form = add_element(main, "form", hidden="", aria_label="Filters")
    choices = {
        "level": [*LEVEL_BY_ACTION.values()],
        "rule": sorted({article.entry.code for article in articles}),
        "file": sorted({article.file for article in articles}),
    }
    for name, values in choices.items():
        label = add_element(form, "label", f"{name.title()} ")
        select = add_element(label, "select", name=name)
        add_element(select, "option", "all", value="")
        for value in values:
            add_element(select, "option", value, value=value)
    add_element(add_element(form, "label", "Text "), "input", type="search", name="text")
    add_element(form, "output", aria_live="polite")


def _add_files(main: Element, articles: list[Article]) -> None:
    files: dict[str, list[Article]] = {}
    for article in articles:
        files.setdefault(article.file, []).append(article)
    for name, of_file in files.items():
        section = add_element(main, "section", data_file=name)
        add_element(section, "h2", name)
        for article in of_file:
            add_article(section, article)


def _add_suppressed(main: Element, results: Results) -> None:
    lines = (
        f"{located.file}:{located.span.line}: {located.finding.rule}: {entry.reason}"
        for entry in results.suppressed_findings
        for located in [entry.located]
    )
    _add_list(main, "Suppressed", lines)


def _add_list(main: Element, heading: str, lines: Iterable[str]) -> None:
    texts = list(lines)
    if texts:
        details = add_element(main, "details", css="list")
        add_element(details, "summary", f"{heading} ({len(texts)})")
        items = add_element(details, "ul")
        for text in texts[:_MAX_ARTICLES]:
            add_element(items, "li", text)


def _read_asset(name: str) -> str:
    with open(os.path.join(os.path.dirname(__file__), name), encoding="utf-8") as file:
        return file.read()


def _csp_hash(text: str) -> str:
    """The source of a content security policy that allows exactly this inline text."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"

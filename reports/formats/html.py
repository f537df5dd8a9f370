"""The page: head, sums, filters, the findings of each file, and what else there is to tell."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterable
from typing import TextIO
from xml.etree.ElementTree import Element, tostring

from lint.report import Style, many
from lint.report.fingerprints import fingerprints
from lint.report.fixes import fixed_files
from lint.report.html.article import Article, add_article
from lint.report.html.elements import add
from reports.entries import finding_entry, other_entries, title
from reports.findings import LEVELS
from reports.results import Results
from sources.sources import STANDARD_INPUT

# Browsers get slow with more.
_MAX_ARTICLES = 5_000


def write(out: TextIO, results: Results, style: Style) -> None:
    """Write the page, with notes only if the style asks for them."""
    articles = [*_articles(results, style)]
    page = Element("html", lang="en")
    _add_head(page, title(article.entry for article in articles))
    body = add(page, "body")
    _add_header(body, results, articles)
    main = add(body, "main")
    shown = articles[:_MAX_ARTICLES]
    _add_filters(main, shown)
    _add_files(main, shown)
    if not articles:
        add(main, "p", results.nothing_to_evaluate or "Nothing found.", "nothing")
    if missing := len(articles) - len(shown):
        add(main, "p", f"{missing} more do not fit on this page. The format json has all.")
    _add_suppressed(main, results)
    _add_list(main, "Fixed", (f"{file}: {rules}" for file, rules in fixed_files(results)))
    _add_list(main, "Skipped", (f"{skipped.file}: {skipped.why}" for skipped in results.skipped))
    add(body, "script").text = _asset("page.js")
    out.write(f"<!DOCTYPE html>\n{tostring(page, 'unicode', method='html')}\n")


def _articles(results: Results, style: Style) -> Iterable[Article]:
    """What was not evaluated comes first: without it the rest may say too little."""
    nameless = STANDARD_INPUT if results.files or not results.objects else "the cluster"
    for entry in other_entries(results, style):
        yield Article(entry, nameless=nameless)
    for located, mark in zip(results.findings, fingerprints(results.findings), strict=True):
        if located.level != "note" or style.notes:
            yield Article(finding_entry(located, mark), located, nameless)


def _add_head(page: Element, heading: str) -> None:
    head, styles, script = add(page, "head"), _asset("page.css"), _asset("page.js")
    policy = (
        f"default-src 'none'; style-src {_hash(styles)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'"
    )
    add(head, "meta", charset="utf-8")
    add(head, "meta", http_equiv="Content-Security-Policy", content=policy)
    add(head, "meta", name="viewport", content="width=device-width, initial-scale=1")
    add(head, "meta", name="referrer", content="no-referrer")
    add(head, "title", f"gpuward: {heading}")
    add(head, "style").text = styles


def _add_header(body: Element, results: Results, articles: list[Article]) -> None:
    header = add(body, "header")
    add(header, "h1", "gpuward")
    counts = add(header, "ul", css="counts")
    for level in LEVELS.values():
        number = sum(article.entry.level == level for article in articles)
        item = add(counts, "li", css=level if number else f"{level} none")
        add(item, "strong", str(number))
        add(item, "span", f"{level}{'s'[number == 1 :]}")
    facts = [many(results.files, "file")] if results.files or not results.objects else []
    facts += [many(results.objects, "object")]
    facts += [many(results.pods, "pod"), f"{results.suppressed} suppressed"]
    facts += [f"{results.excepted} excepted"] if results.excepted else []
    facts += [f"{results.baselined} in the baseline"] if results.baselined else []
    facts += [f"policy {results.policy}"] if results.policy else []
    add(header, "p", " · ".join(facts))


def _add_filters(main: Element, articles: list[Article]) -> None:
    """The filters, which stay hidden without a script."""
    form = add(main, "form", hidden="", aria_label="Filters")
    choices = {
        "level": [*LEVELS.values()],
        "rule": sorted({article.entry.code for article in articles}),
        "file": sorted({article.file for article in articles}),
    }
    for name, values in choices.items():
        label = add(form, "label", f"{name.title()} ")
        select = add(label, "select", name=name)
        add(select, "option", "all", value="")
        for value in values:
            add(select, "option", value, value=value)
    add(add(form, "label", "Text "), "input", type="search", name="text")
    add(form, "output", aria_live="polite")


def _add_files(main: Element, articles: list[Article]) -> None:
    files: dict[str, list[Article]] = {}
    for article in articles:
        files.setdefault(article.file, []).append(article)
    for name, of_file in files.items():
        section = add(main, "section", data_file=name)
        add(section, "h2", name)
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
        details = add(main, "details", css="list")
        add(details, "summary", f"{heading} ({len(texts)})")
        items = add(details, "ul")
        for text in texts[:_MAX_ARTICLES]:
            add(items, "li", text)


def _asset(name: str) -> str:
    with open(os.path.join(os.path.dirname(__file__), name), encoding="utf-8") as file:
        return file.read()


def _hash(text: str) -> str:
    """The source of a content security policy that allows exactly this inline text."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"

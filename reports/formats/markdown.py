"""Markdown for the comment on a pull request or a merge request."""

from __future__ import annotations

import re
from typing import TextIO

from reports.entries import Entry, entries, title
from reports.formats import Style
from reports.results import Results
from sources.sources import STANDARD_INPUT

# By this line, a script finds the comment that it wrote before, and replaces it.
_MARKER = "<!-- gpuward -->"
# GitHub refuses a comment of more than 65 536 characters.
_MAX_LENGTH = 60_000
_MEANINGFUL = re.compile(r"[\\`*_\[\]<>&|~$!#]")
# What GitHub or GitLab links or tells a user of, even if it is escaped.
_LINKED = re.compile(r"@|#|://|www\.", re.IGNORECASE)
_ICONS = {"error": "❌", "warning": "⚠️", "note": "ℹ️"}  # noqa: RUF001  # an emoji


def write(out: TextIO, results: Results, style: Style) -> None:
    """Write one table of all entries, as many as fit into a comment."""
    found = list(entries(results, style))
    out.write(f"{_MARKER}\n### gpuward: {title(found)}\n")
    if found:
        out.write("\n| | Where | Rule | What |\n|---|---|---|---|\n")
    length = 0
    for number, entry in enumerate(found):
        row = _row(entry)
        length += len(row)
        if length > _MAX_LENGTH:
            out.write(f"\n{len(found) - number} more do not fit into a comment.\n")
            break
        out.write(row)
    counts = f"Files: {results.files}, pods: {results.pods}, suppressed: {results.suppressed}"
    if results.baselined:
        counts += f", in the baseline: {results.baselined}"
    out.write(f"\n{counts}\n")


def _row(entry: Entry) -> str:
    file = entry.file or STANDARD_INPUT
    where = _escaped(f"{file}:{entry.line}" if entry.line else file)
    if entry.object:
        where += f"<br>{_escaped(entry.object)}"
    rule = f"[{entry.code}]({entry.page})" if entry.page else entry.code
    what = _escaped(entry.message)
    if entry.help:
        what += f"<br>**Help:** {_escaped(entry.help)}"
    return f"| {_ICONS[entry.level]} {entry.level} | {where} | {rule} | {what} |\n"


def _escaped(text: str) -> str:
    """`text` without any meaning in Markdown or HTML, and without links and mentions."""
    # A space of no width after the first character.
    unlinked = _LINKED.sub(lambda match: f"{match[0][0]}\u200b{match[0][1:]}", text)
    return _MEANINGFUL.sub(lambda match: f"\\{match[0]}", unlinked)

"""Markdown for the comment on a pull request or a merge request."""

from __future__ import annotations

import re
from typing import TextIO

from reports.entries import ReportEntry, entries, level_counts_text
from reports.formats import ReportStyle
from reports.results import Results
from sources import STANDARD_INPUT

# By this line, a script finds the comment that it wrote before, and replaces it.
_COMMENT_MARKER = "<!-- gpuward -->"
# GitHub refuses a comment of more than 65 536 characters.
_MAX_CHARACTERS = 60_000
_MARKUP_PATTERN = re.compile(r"[\\`*_\[\]<>&|~$!#]")
# What GitHub or GitLab links or tells a user of, even if it is escaped.
_LINKED_PATTERN = re.compile(r"@|#|://|www\.", re.IGNORECASE)
_ICON_BY_LEVEL = {"error": "❌", "warning": "⚠️", "note": "ℹ️"}  # noqa: RUF001  # an emoji


def write(out: TextIO, results: Results, style: ReportStyle) -> None:
    """Write one table of all entries, as many as fit into a comment."""
    found = list(entries(results, style))
    out.write(f"{_COMMENT_MARKER}\n### gpuward: {level_counts_text(found)}\n")
    if found:
        out.write("\n| | Where | Rule | What |\n|---|---|---|---|\n")
    length = 0
    for number, entry in enumerate(found):
        row = _row(entry)
        length += len(row)
        if length > _MAX_CHARACTERS:
            out.write(f"\n{len(found) - number} more do not fit into a comment.\n")
            break
        out.write(row)
    counts = f"Files: {results.file_count}, pods: {results.pods}, suppressed: {results.suppressed}"
    if results.baselined:
        counts += f", in the baseline: {results.baselined}"
    out.write(f"\n{counts}\n")


def _row(entry: ReportEntry) -> str:
    file = entry.file or STANDARD_INPUT
    where = _escaped(f"{file}:{entry.line}" if entry.line else file)
    if entry.object:
        where += f"<br>{_escaped(entry.object)}"
    rule = f"[{entry.code}]({entry.page})" if entry.page else entry.code
    what = _escaped(entry.message)
    if entry.help:
        what += f"<br>**Help:** {_escaped(entry.help)}"
    return f"| {_ICON_BY_LEVEL[entry.level]} {entry.level} | {where} | {rule} | {what} |\n"


def _escaped(text: str) -> str:
    """`text` without any meaning in Markdown or HTML, and without links and mentions."""
    # A space of no width after the first character.
    unlinked = _LINKED_PATTERN.sub(lambda match: f"{match[0][0]}\u200b{match[0][1:]}", text)
    return _MARKUP_PATTERN.sub(lambda match: f"\\{match[0]}", unlinked)

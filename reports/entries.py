"""The content of all reports: findings, their fingerprints, and all else a user must not miss."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from reports.findings import LEVEL_BY_ACTION, LocatedFinding
from reports.formats import ReportStyle, affected_objects_text, rule_page_url, why_not_fixed
from reports.results import Results
from sources import STANDARD_INPUT
from terminal import printable

# Fingerprints, by which other programs recognise a finding that they have seen before.


def fingerprints(findings: Iterable[LocatedFinding]) -> list[str]:
    """The fingerprint of each finding, in their order.

    It comes from the finding's identity, so it stays the same when lines move. Findings of the
    same identity, such as those about two versions of one object, are counted: GitLab shows only
    one finding of a fingerprint.
    """
    seen: Counter[str] = Counter()
    found = []
    for located in findings:
        identity = located.finding.identity
        seen[identity] += 1
        number = f"|{seen[identity]}" if seen[identity] > 1 else ""
        found.append(fingerprint(f"{identity}{number}"))
    return found


def fingerprint(identity: str) -> str:
    """The SHA-256 of `identity`, in hexadecimal."""
    return hashlib.sha256(identity.encode(errors="surrogatepass")).hexdigest()


NOT_EVALUATED_CODE = "not-evaluated"
NOT_FIXED_CODE = "not-fixed"
NOT_WRITTEN_CODE = "not-written"
REMARK_CODE = "remark"
_CODES_WITHOUT_RULE = (NOT_EVALUATED_CODE, NOT_FIXED_CODE, NOT_WRITTEN_CODE, REMARK_CODE)


class ReportEntry(NamedTuple):
    """One thing to report, with every control character of its texts escaped.

    - `level`: error, warning or note.
    - `code`: the rule; for what no rule reports, one of the words above.
    - `file`: relative to the working folder if it is in there, with slashes; empty for standard
      input, of which the user does not have the lines.
    - `line`, `column`, `end_line`, `end_column`: from 1; the end is the first character after the
      field. All are 0 if the entry is about a whole file.
    - `object`: the Kubernetes object, empty if there is none.
    - `help`: what to do about it; may be empty.
    - `fingerprint`: the same in every format, as long as the fault is the same.
    """

    level: str
    code: str
    file: str
    line: int
    column: int
    end_line: int
    end_column: int
    object: str
    message: str
    help: str
    fingerprint: str

    @property
    def description(self) -> str:
        """Message and help as one text."""
        return f"{self.message}. Help: {self.help}" if self.help else self.message

    @property
    def page(self) -> str:
        """The address of the rule's page; empty if there is no rule."""
        return "" if self.code in _CODES_WITHOUT_RULE else rule_page_url(self.code)


def entries(results: Results, style: ReportStyle) -> Iterator[ReportEntry]:
    """Findings first, notes only if the style asks for them, then all that no rule reports."""
    for located, mark in zip(results.findings, fingerprints(results.findings), strict=True):
        if located.level != "note" or style.notes:
            yield entry_of_finding(located, mark)
    yield from entries_beside_findings(results, style)


def entries_beside_findings(results: Results, style: ReportStyle) -> Iterator[ReportEntry]:
    """Remarks, and what could not be evaluated, fixed or written, each with its own fingerprint."""
    seen: Counter[str] = Counter()
    for entry in _entries_beside_findings(results, style):
        seen[entry.fingerprint] += 1
        number = seen[entry.fingerprint]
        again = fingerprint(f"{entry.fingerprint}|{number}") if number > 1 else entry.fingerprint
        yield entry._replace(fingerprint=again)


def _entries_beside_findings(results: Results, style: ReportStyle) -> Iterator[ReportEntry]:
    for remark in results.remarks:
        if remark.is_visible(notes=style.notes):
            yield _make_entry(remark.level, REMARK_CODE, remark[1:4], remark.message)
    for failed in results.not_evaluated:
        yield _make_entry(
            "error", NOT_EVALUATED_CODE, failed[:3], f"not evaluated: {failed.message}"
        )
    for left in results.not_fixed:
        message = f"not fixed: {why_not_fixed(left)}"
        yield _make_entry(
            "warning", NOT_FIXED_CODE, left[:3], message, "; ".join(left.edits_by_hand)
        )
    for failed in results.not_written:
        yield _make_entry("error", NOT_WRITTEN_CODE, failed[:3], f"not written: {failed.message}")


def level_counts_text(found: Iterable[ReportEntry]) -> str:
    """Return how many entries there are of each level, in words."""
    levels = [entry.level for entry in found]
    counts = ((levels.count(level), level) for level in LEVEL_BY_ACTION.values())
    parts = [f"{count} {level}{'s'[count == 1 :]}" for count, level in counts if count]
    return ", ".join(parts) or "no findings"


def entry_of_finding(located: LocatedFinding, mark: str) -> ReportEntry:
    """The entry of one finding with its fingerprint."""
    finding, span, excerpt = located.finding, located.span, located.excerpt
    return ReportEntry(
        level=located.level,
        code=finding.rule,
        file=relative_path(located.file),
        line=span.line,
        column=span.column,
        end_line=excerpt.end_line,
        end_column=excerpt.end_column,
        object=printable(affected_objects_text(located)),
        message=printable(finding.message),
        help=printable(finding.help),
        fingerprint=mark,
    )


def _make_entry(
    level: str, code: str, where: tuple[str, int, int], message: str, advice: str = ""
) -> ReportEntry:
    file, line, column = where
    path = relative_path(file)
    return ReportEntry(
        level=level,
        code=code,
        file=path,
        line=line,
        column=column,
        end_line=line,
        end_column=column,
        object="",
        message=printable(message),
        help=printable(advice),
        fingerprint=fingerprint(f"{code}|{path}|{message}"),
    )


def relative_path(name: str) -> str:
    """The file called `name`, as repositories call it; empty for standard input."""
    if name in {STANDARD_INPUT, ""}:
        return ""
    path = os.path.normpath(name)
    here = os.path.join(os.path.abspath(""), "")
    if os.path.isabs(path) and path.startswith(here):
        path = path[len(here) :]
    return printable(path.replace(os.sep, "/"))

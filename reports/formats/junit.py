"""JUnit XML, which Jenkins, GitLab and most CI systems read."""

from __future__ import annotations

import re
from html import escape
from typing import TextIO

from reports.entries import NOT_EVALUATED, NOT_WRITTEN, Entry, entries
from reports.findings import ACTIONS
from reports.formats import Style
from reports.results import Results
from sources.sources import STANDARD_INPUT

# XML has no way to write these. Entries have no control characters.
_ILLEGAL = re.compile("[\ufffe\uffff]")


def write(out: TextIO, results: Results, style: Style) -> None:
    """Write a test case for each entry; it fails if the entry's level reaches `style.fail_on`.

    Input that could not be evaluated or written is an error. Without an entry there is one case
    that passes: some readers take a report without cases for a broken one.
    """
    found = list(entries(results, style))
    cases = [_case(entry, style) for entry in found]
    if not cases:
        cases = ['<testcase classname="gpuward" name="no findings"/>']
    errors = sum(case.count("<error ") for case in cases)
    failures = sum(case.count("<failure ") for case in cases)
    counts = f'tests="{len(cases)}" failures="{failures}" errors="{errors}"'
    out.write('<?xml version="1.0" encoding="UTF-8"?>\n')
    out.write(f'<testsuites name="gpuward" {counts}>\n  <testsuite name="gpuward" {counts}>\n')
    out.writelines(f"    {case}\n" for case in cases)
    out.write("  </testsuite>\n</testsuites>\n")


def _case(entry: Entry, style: Style) -> str:
    file = entry.file or STANDARD_INPUT
    # GitLab ignores all but the first of the cases with one name.
    name = " ".join(filter(None, (entry.code, entry.object, f"[{entry.fingerprint[:12]}]")))
    attributes = f'classname="{_xml(file)}" name="{_xml(name)}" file="{_xml(file)}"'
    if entry.line:
        attributes += f' line="{entry.line}"'
    where = f"{file}:{entry.line}:{entry.column}" if entry.line else file
    text = _xml(f"{where}: {entry.level}: {entry.description}")
    message = f'message="{_xml(entry.message)}" type="{entry.level}"'
    if entry.code in {NOT_EVALUATED, NOT_WRITTEN}:
        inside = f"<error {message}>{text}</error>"
    elif ACTIONS[entry.level] >= ACTIONS[style.fail_on]:
        inside = f"<failure {message}>{text}</failure>"
    else:
        inside = f"<system-out>{text}</system-out>"
    return f"<testcase {attributes}>{inside}</testcase>"


def _xml(text: str) -> str:
    """`text` in ASCII, for an element or an attribute."""
    legal = _ILLEGAL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
    return escape(legal).encode("ascii", "xmlcharrefreplace").decode()

"""JUnit XML, which Jenkins, GitLab and most CI systems read.

It fits both schemas that validators use, that of Ant and that of Jenkins' xUnit plugin. Only what
both of them allow is in it: no attributes for file and line, and no output of a single test case.
"""

from __future__ import annotations

import re
from html import escape
from typing import NamedTuple, TextIO

from reports.entries import NOT_EVALUATED_CODE, NOT_WRITTEN_CODE, ReportEntry, entries
from reports.findings import ACTION_BY_LEVEL
from reports.formats import ReportStyle
from reports.results import Results
from sources import STANDARD_INPUT

# XML has no way to write these. Entries have no control characters.
_ILLEGAL_PATTERN = re.compile("[\ufffe\uffff]")


class _TestCase(NamedTuple):
    """A test case: its element, what is in it, and what its output is if it passes."""

    text: str
    verdict: str
    output: str = ""


def write(out: TextIO, results: Results, style: ReportStyle) -> None:
    """Write a test case for each entry; it fails if the entry's level reaches `style.fail_on`.

    Input that could not be evaluated or written is an error. What the cases that pass have found is
    the output of the whole. Without an entry there is one case that passes: some readers take a
    report without cases for a broken one.
    """
    cases = [_test_case(entry, style) for entry in entries(results, style)]
    if not cases:
        cases = [_TestCase('<testcase classname="gpuward" name="no findings" time="0"/>', "")]
    verdicts = [case.verdict for case in cases]
    counts = (
        f'tests="{len(cases)}" failures="{verdicts.count("failure")}" '
        f'errors="{verdicts.count("error")}"'
    )
    started = results.started.strftime("%Y-%m-%dT%H:%M:%S")
    about = f'id="0" timestamp="{started}" hostname="localhost" time="{results.seconds:.3f}"'
    out.write('<?xml version="1.0" encoding="UTF-8"?>\n<testsuites>\n')
    out.write(f'  <testsuite name="gpuward" package="gpuward" {counts} {about}>\n')
    out.write("    <properties/>\n")
    out.writelines(f"    {case.text}\n" for case in cases)
    output = "\n".join(case.output for case in cases if case.output)
    out.write(f"    <system-out>{output}</system-out>\n    <system-err/>\n")
    out.write("  </testsuite>\n</testsuites>\n")


def _test_case(entry: ReportEntry, style: ReportStyle) -> _TestCase:
    file = entry.file or STANDARD_INPUT
    # GitLab ignores all but the first of the cases with one name.
    name = " ".join(filter(None, (entry.code, entry.object, f"[{entry.fingerprint[:12]}]")))
    attributes = f'classname="{_xml(file)}" name="{_xml(name)}" time="0"'
    where = f"{file}:{entry.line}:{entry.column}" if entry.line else file
    text = _xml(f"{where}: {entry.level}: {entry.description}")
    verdict = _failure_element(entry, style)
    if not verdict:
        return _TestCase(f"<testcase {attributes}/>", "", text)
    message = f'message="{_xml(entry.message)}" type="{entry.level}"'
    inside = f"<{verdict} {message}>{text}</{verdict}>"
    return _TestCase(f"<testcase {attributes}>{inside}</testcase>", verdict)


def _failure_element(entry: ReportEntry, style: ReportStyle) -> str:
    """The element that says why the case of the entry does not pass; empty if it passes."""
    if entry.code in {NOT_EVALUATED_CODE, NOT_WRITTEN_CODE}:
        return "error"
    return "failure" if ACTION_BY_LEVEL[entry.level] >= ACTION_BY_LEVEL[style.fail_on] else ""


def _xml(text: str) -> str:
    """`text` in ASCII, for an element or an attribute."""
    legal = _ILLEGAL_PATTERN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
    return escape(legal).encode("ascii", "xmlcharrefreplace").decode()

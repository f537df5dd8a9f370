"""SARIF 2.1.0, which GitHub's code scanning and other dashboards read."""

from __future__ import annotations

import json
import re
from typing import Any, TextIO
from urllib.parse import quote

from reports.entries import ReportEntry, entries_beside_findings, entry_of_finding, fingerprints
from reports.explain import explanation
from reports.findings import LEVEL_BY_ACTION, LocatedFinding
from reports.formats import ReportStyle, rule_page_url
from reports.results import Results
from rules.finding import Action
from rules.rule import Rule
from terminal import HOME_PAGE_URL, installed_version

_SCHEMA_URL = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
# The name has the version of how fingerprints are made.
_FINGERPRINT_KEY = "gpuwardIdentity/v1"
# GitHub rejects a report in which a result has no file or no line: rules GH1001 and GH1003 of
# microsoft/sarif-sdk. These names stand for what is in no file.
_STANDARD_INPUT, _CLUSTER = "stdin", "cluster"
_PLACEHOLDER_PATTERN = re.compile(r"\{(\d+)\}")
_SECURITY_FAMILIES = {"bypass", "security"}
# On GitHub's scale from 0 to 10: high, medium and low.
_SEVERITY_BY_LEVEL = {Action.DENY: "8.0", Action.WARN: "5.0"}
_LOWEST_SEVERITY = "2.0"
_Json = dict[str, Any]


def write(out: TextIO, results: Results, style: ReportStyle) -> None:
    """Write one run.

    It has all findings, also those that comments or a baseline suppress; notes only if the style
    asks for them. What no rule reports is a notification of the tool.
    """
    shown = list(_findings_with_suppressions(results, style))
    names = sorted({located.finding.rule for located, _, _ in shown})
    rules = {located.finding.rule: located.rule for located, _, _ in shown}
    nameless = _STANDARD_INPUT if results.is_of_files else _CLUSTER
    index = {name: number for number, name in enumerate(names)}
    log = {
        "$schema": _SCHEMA_URL,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": _driver([rules[name] for name in names])},
                "invocations": [_invocation(results, style)],
                "columnKind": "unicodeCodePoints",
                "results": [
                    _result(located, mark, index[located.finding.rule], suppressions, nameless)
                    for located, mark, suppressions in shown
                ],
            }
        ],
    }
    json.dump(log, out, indent=2)
    out.write("\n")


def _findings_with_suppressions(
    results: Results, style: ReportStyle
) -> list[tuple[LocatedFinding, str, list[_Json]]]:
    """Each finding with its fingerprint and what suppresses it."""
    suppressed = results.suppressed_findings
    found = [*results.findings, *(entry.located for entry in suppressed)]
    suppressions: list[list[_Json]] = [[] for _ in results.findings]
    suppressions += [[{"kind": entry.kind, "justification": entry.reason}] for entry in suppressed]
    marked = zip(found, fingerprints(found), suppressions, strict=True)
    return [item for item in marked if item[0].level != "note" or style.notes]


def _driver(rules: list[Rule[Any]]) -> dict[str, Any]:
    driver: dict[str, Any] = {"name": "gpuward", "informationUri": HOME_PAGE_URL}
    if version := installed_version():
        driver["semanticVersion"] = version
    driver["rules"] = [_rule(rule) for rule in rules]
    return driver


def _rule(rule: Rule[Any]) -> dict[str, Any]:
    summary = f"{rule.summary[:1].upper()}{rule.summary[1:]}."
    reason = rule.documentation.get("Why it matters", "").split("\n\n")[0]
    parts = [f"## {head}\n\n{text}" for head, text in rule.documentation.items() if head and text]
    enabled = rule.action is not Action.OFF
    return {
        "id": rule.name,
        "name": rule.name.title().replace("-", ""),
        "shortDescription": {"text": summary},
        # Code scanning requires it, and shows it beside each alert.
        "fullDescription": {"text": " ".join(f"{summary} {reason}".split())},
        "help": {"text": explanation(rule), "markdown": "\n\n".join(parts)},
        "helpUri": rule_page_url(rule.name),
        "defaultConfiguration": {
            "enabled": enabled,
            "level": LEVEL_BY_ACTION[rule.action] if enabled else "none",
        },
        "properties": _properties(rule),
    }


def _properties(rule: Rule[Any]) -> dict[str, Any]:
    tags = [rule.family, "kubernetes", "gpu"]
    if rule.family not in _SECURITY_FAMILIES:
        return {"tags": tags}
    # GitHub shows a rule with both as one about security, and sorts alerts by the number.
    severity = _SEVERITY_BY_LEVEL.get(rule.action, _LOWEST_SEVERITY)
    return {"tags": list(dict.fromkeys([*tags, "security"])), "security-severity": severity}


def _result(
    located: LocatedFinding, mark: str, rule_index: int, suppressions: list[_Json], nameless: str
) -> dict[str, Any]:
    """The result; `nameless` stands for the file of what is in none."""
    entry = entry_of_finding(located, mark)
    result = {
        "ruleId": entry.code,
        "ruleIndex": rule_index,
        "level": entry.level,
        "message": _message(entry.description),
        "locations": [_location(entry, entry.file or nameless)],
        "partialFingerprints": {_FINGERPRINT_KEY: mark},
        "suppressions": suppressions,
    }
    if located.edits and entry.file:
        result["fixes"] = [_fix(located, entry.file)]
    return result


def _fix(located: LocatedFinding, file: str) -> dict[str, Any]:
    """The edits that fix the finding, all in its file."""
    replacements = [
        {
            "deletedRegion": {
                "startLine": edit.line,
                "startColumn": edit.column,
                "endLine": edit.end_line,
                "endColumn": edit.end_column,
            },
            "insertedContent": {"text": edit.text},
        }
        for edit in located.edits
    ]
    change = {"artifactLocation": _artifact(file), "replacements": replacements}
    return {"description": _message(located.finding.fix), "artifactChanges": [change]}


def _invocation(results: Results, style: ReportStyle) -> dict[str, Any]:
    return {
        "executionSuccessful": not (results.not_evaluated or results.not_written),
        "toolExecutionNotifications": [
            {
                "level": entry.level,
                "message": _message(entry.description),
                "locations": [_location(entry, entry.file)] if entry.file else [],
                "descriptor": {"id": entry.code},
            }
            for entry in entries_beside_findings(results, style)
        ],
    }


def _message(text: str) -> dict[str, str]:
    """A plain message, in which nothing is a link or a placeholder.

    The standard wants all braces doubled, but viewers such as GitHub's show both of them. Without a
    number in it, no viewer takes a brace for a placeholder.
    """
    return {"text": _PLACEHOLDER_PATTERN.sub(r"{{\1}}", text).replace("](", "] (")}


def _location(entry: ReportEntry, file: str) -> dict[str, Any]:
    """Return the entry's place in `file`, whose first line stands for it if no line is known."""
    region = {"startLine": 1}
    if entry.line:
        region = {
            "startLine": entry.line,
            "startColumn": entry.column,
            "endLine": entry.end_line,
            "endColumn": entry.end_column,
        }
    location: dict[str, Any] = {
        "physicalLocation": {"artifactLocation": _artifact(file), "region": region}
    }
    if entry.object:
        location["logicalLocations"] = [{"fullyQualifiedName": entry.object, "kind": "object"}]
    return location


def _artifact(file: str) -> dict[str, str]:
    """The place of a file: a URI reference, relative to the root of the source if it can be."""
    uri = quote(file)
    if file.startswith("/"):
        return {"uri": f"file://{uri}"}
    return {"uri": f"./{uri}" if ":" in file.partition("/")[0] else uri, "uriBaseId": "%SRCROOT%"}

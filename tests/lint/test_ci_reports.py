"""Tests of the reports that other programs read, and of `--report`."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree as ET

import pytest
from jsonschema import Draft4Validator

from tests.testkit.fix_texts import REQUEST
from tests.testkit.lint_command import LintCommand
from tests.testkit.paths import ROOT

POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: taker
  namespace: ml
spec:
  containers:
    - name: main
      image: example.com/app:1
      env:
        - name: NVIDIA_VISIBLE_DEVICES
          value: all
"""
CLEAN_POD = POD.replace("value: all", "value: void")
SCHEMA = ROOT / "tests/data/schemas/sarif-2.1.0-rtm.5.json"
SUPPRESSED_POD = POD.replace("value: all", "value: all  # gpuward: ignore[{}] a test node")
SUPPRESSED_POD = SUPPRESSED_POD.format("visible-devices-env")
# What ends a command, an attribute, a CDATA section, a code span or a cell of a table.
HOSTILE_NAME = "x\n::error::y]]>%0A{0}<script>[a](http://b)|`\x1b[2J\r"
HOSTILE_POD = json.dumps(
    {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": HOSTILE_NAME},
        "spec": {
            "containers": [
                {
                    "name": HOSTILE_NAME,
                    "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": HOSTILE_NAME}],
                }
            ]
        },
    }
)
HOSTILE_FILE = "a:b,c%\n::error::|`]]>.json"


def sarif(command: LintCommand, *arguments: str) -> dict[str, Any]:
    """The only run of the SARIF report, which fits the schema."""
    log = json.loads(command("--output", "sarif", *arguments).out)
    Draft4Validator(json.loads(SCHEMA.read_text())).validate(log)
    (run,) = log["runs"]
    assert isinstance(run, dict)
    return run


def parse_xml(text: str) -> ET.Element:
    """The root of an XML file, which must be well-formed."""
    return ET.fromstring(text)  # noqa: S314  # our own report


def fingerprints(command: LintCommand, *arguments: str) -> set[str]:
    """The fingerprints in the SARIF report, which are those in GitLab's and in the JSON report."""
    run = sarif(command, *arguments)
    marks = {mark for r in run["results"] for mark in r["partialFingerprints"].values()}
    issues = json.loads(command("--output", "gitlab", *arguments).out)
    assert {issue["fingerprint"] for issue in issues} == marks
    findings = command.json(*arguments).report["findings"]
    assert {f["fingerprint"] for f in findings if f["level"] != "note"} == marks
    assert len(issues) == len(run["results"]) == len(marks)
    return marks


def test_sarif_names_the_rule_and_the_region(command: LintCommand) -> None:
    command.write("deploy/my pod.yaml", POD)
    run = sarif(command, "./deploy")
    (result,) = run["results"]
    rule = run["tool"]["driver"]["rules"][result["ruleIndex"]]
    assert result["ruleId"] == rule["id"] == "visible-devices-env"
    assert result["level"] == "error"
    assert "## Why it matters" in rule["help"]["markdown"]
    assert "The container gets GPUs" in rule["fullDescription"]["text"]
    page = rule["helpUri"].partition("/blob/main/")[2]
    assert (ROOT / page).is_file()
    assert result["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "deploy/my%20pod.yaml", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 12, "startColumn": 18, "endLine": 12, "endColumn": 21},
    }
    assert run["columnKind"] == "unicodeCodePoints"


def test_a_region_over_lines_ends_behind_its_last_character(command: LintCommand) -> None:
    command.write("pod.yaml", POD.replace("value: all", 'value: "all\n\n            "'))
    (result,) = sarif(command, "pod.yaml")["results"]
    region = result["locations"][0]["physicalLocation"]["region"]
    assert region == {"startLine": 12, "startColumn": 18, "endLine": 14, "endColumn": 14}


def test_sarif_has_suppressed_findings_with_their_reasons(command: LintCommand) -> None:
    command.write("pod.yaml", SUPPRESSED_POD)
    (result,) = sarif(command, "pod.yaml")["results"]
    assert result["suppressions"] == [{"kind": "inSource", "justification": "a test node"}]
    command.write("pod.yaml", POD)
    (other,) = sarif(command, "pod.yaml")["results"]
    assert other["suppressions"] == []
    assert other["partialFingerprints"] == result["partialFingerprints"]


def test_a_suppressed_finding_is_reported_once_after_a_fix(command: LintCommand) -> None:
    request = "      resources: {requests: {nvidia.com/gpu: 1}}\n"
    command.write("pod.yaml", SUPPRESSED_POD + request)
    run = sarif(command, "--fix", "--unsafe-fixes", "pod.yaml")
    assert [r["ruleId"] for r in run["results"] if r["suppressions"]] == ["visible-devices-env"]


def replaced(text: str, replacements: list[dict[str, Any]]) -> str:
    """The text after the replacements of a SARIF fix."""
    lines = text.splitlines(keepends=True)
    starts = [0, *itertools.accumulate(map(len, lines))]
    for replacement in reversed(replacements):
        region = replacement["deletedRegion"]
        start = starts[region["startLine"] - 1] + region["startColumn"] - 1
        end = starts[region["endLine"] - 1] + region["endColumn"] - 1
        text = text[:start] + replacement["insertedContent"]["text"] + text[end:]
    return text


@pytest.mark.parametrize("line_break", ["\n", "\r\n"])
def test_sarif_has_the_edits_that_fix_makes(command: LintCommand, line_break: str) -> None:
    text = f"# 😀\n---\n{REQUEST}---\n{REQUEST}".replace("\n", line_break)
    file = command.folder / "pod.yaml"
    file.write_bytes(text.encode())
    results = sarif(command, "pod.yaml")["results"]
    fixes = [fix for result in results for fix in result["fixes"]]
    assert len(fixes) == 2
    changes = [change for fix in fixes for change in fix["artifactChanges"]]
    assert {change["artifactLocation"]["uri"] for change in changes} == {"pod.yaml"}
    after = replaced(text, [r for change in changes for r in change["replacements"]])
    assert command.run("fix", "pod.yaml").status == 0
    assert file.read_bytes().decode() == after != text


def test_sarif_has_a_fix_for_each_finding_alone(command: LintCommand) -> None:
    """As many as the bound allows; what is suppressed or cannot be fixed has none."""
    containers = [
        {"name": f"c{n}", "image": "i", "resources": {"requests": {"nvidia.com/gpu": 1}}}
        for n in range(60)
    ]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    text = json.dumps({**pod, "spec": {"containers": containers}}, indent=1)
    command.write("pod.json", text)
    results = sarif(command, "pod.json")["results"]
    fixes = [r["fixes"][0]["artifactChanges"][0]["replacements"] for r in results if "fixes" in r]
    assert len(fixes) == 50
    for number, replacements in enumerate(fixes):
        fixed = json.loads(replaced(text, replacements))["spec"]["containers"]
        limited = [n for n, c in enumerate(fixed) if "limits" in c["resources"]]
        assert limited == [number]
    anchored = REQUEST.replace("resources:", "resources: &r")
    suppressed = REQUEST.replace(" # one", "  # gpuward: ignore[request-only] why not")
    command.write("others.yaml", f"{anchored}---\n{suppressed}---\n{POD}")
    assert [r for r in sarif(command, "others.yaml")["results"] if "fixes" in r] == []


def test_sarif_has_the_fixes_of_notes_if_it_has_notes(command: LintCommand) -> None:
    pod = (
        POD.replace("value: all", "value: void")
        + "      resources: {limits: {nvidia.com/gpu: 1}}\n"
    )
    command.write("pod.yaml", pod)
    notes = [r for r in sarif(command, "--notes", "pod.yaml")["results"] if r["level"] == "note"]
    assert notes
    assert all(note["fixes"] for note in notes)


def test_fingerprints_stay_when_lines_move(command: LintCommand) -> None:
    command.write("pod.yaml", POD)
    before = fingerprints(command, "pod.yaml")
    command.write("pod.yaml", "# a comment\n\n" + POD)
    assert fingerprints(command, "pod.yaml") == before
    command.write("pod.yaml", POD.replace("name: main", "name: other"))
    assert not fingerprints(command, "pod.yaml") & before


def test_two_versions_of_one_object_have_two_fingerprints(command: LintCommand) -> None:
    command.write("production/pod.yaml", POD)
    command.write("staging/pod.yaml", POD)
    assert len(fingerprints(command, ".")) == 2


def test_equal_remarks_have_fingerprints_of_their_own(command: LintCommand) -> None:
    twice = "  labels: {a: b}\n  labels: {a: b}\n"
    pod = CLEAN_POD.replace("metadata:\n", "metadata:\n" + twice)
    assert twice in pod
    command.write("pod.yaml", f"{pod}---\n{pod}")
    issues = json.loads(command("--output", "gitlab", "pod.yaml").out)
    remarks = [issue for issue in issues if issue["check_name"] == "remark"]
    assert len({issue["description"] for issue in remarks}) == 1
    assert len({issue["fingerprint"] for issue in remarks}) == len(remarks) == 2


def test_braces_stay_as_they_are_in_sarif(command: LintCommand) -> None:
    command.write("pod.yaml", POD.replace("name: taker", "name: '{0} {a: b}'"))
    texts = [result["message"]["text"] for result in sarif(command, "pod.yaml")["results"]]
    assert texts
    assert not any("{{a" in text for text in texts)


def test_sarif_has_a_severity_of_rules_about_security(command: LintCommand) -> None:
    command.write("pod.yaml", POD + "      resources: {requests: {nvidia.com/gpu: 1}}\n")
    rules = sarif(command, "pod.yaml")["tool"]["driver"]["rules"]
    found = {rule["id"]: rule["properties"] for rule in rules}
    assert found["visible-devices-env"]["security-severity"] == "8.0"
    assert "security" in found["visible-devices-env"]["tags"]
    assert "security-severity" not in found["request-only"]


def test_github_is_told_how_many_annotations_it_shows(command: LintCommand) -> None:
    for n in range(12):
        command.write(f"{n}.yaml", POD)
    *commands, line = command("--output", "github", ".").out.splitlines()
    assert len(commands) == 12
    assert line.startswith("gpuward: 12 errors: GitHub shows 10 of them")


def test_github_gets_one_command_for_each_finding(command: LintCommand) -> None:
    command.write("pod.yaml", POD)
    outcome = command("--output", "github", "pod.yaml")
    (line,) = outcome.out.splitlines()
    assert line.startswith(
        "::error title=gpuward%3A visible-devices-env,file=pod.yaml,line=12,col=18::Pod ml/taker: "
    )
    assert ". Help: " in line
    assert outcome.status == 1


def test_gitlab_gets_its_required_keys(command: LintCommand) -> None:
    file = command.write("pod.yaml", POD)
    (issue,) = json.loads(command("--output", "gitlab", str(file)).out)
    assert issue["check_name"] == "visible-devices-env"
    assert issue["severity"] == "critical"
    assert issue["location"] == {"path": "pod.yaml", "lines": {"begin": 12}}
    assert issue["description"]


@pytest.mark.parametrize("form", ["github", "gitlab"])
def test_notes_are_reported_if_asked_for(command: LintCommand, form: str) -> None:
    command.write("pod.yaml", CLEAN_POD + "      resources: {limits: {nvidia.com/gpu: 1}}\n")
    words = ("::notice ", '"info"')
    assert not any(word in command("--output", form, "pod.yaml").out for word in words)
    assert any(word in command("--output", form, "--notes", "pod.yaml").out for word in words)


def test_input_that_is_not_evaluated_is_in_every_report(command: LintCommand) -> None:
    command.write("torn.yaml", "apiVersion: v1\nkind: [\n")
    run = sarif(command, "torn.yaml")
    assert run["invocations"][0]["executionSuccessful"] is False
    (notification,) = run["invocations"][0]["toolExecutionNotifications"]
    assert notification["level"] == "error"
    assert notification["message"]["text"].startswith("not evaluated: ")
    github = command("--output", "github", "torn.yaml")
    assert github.out.startswith("::error title=gpuward%3A not-evaluated,file=torn.yaml,line=")
    assert github.status == 3
    (issue,) = json.loads(command("--output", "gitlab", "torn.yaml").out)
    assert issue["check_name"] == "not-evaluated"


def test_standard_input_has_a_name_where_github_requires_one(command: LintCommand) -> None:
    log = json.loads(command("--output", "sarif", "-", stdin=POD).out)
    (location,) = log["runs"][0]["results"][0]["locations"]
    place = location["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "stdin", "uriBaseId": "%SRCROOT%"}
    assert place["region"]["startLine"] == 12
    assert location["logicalLocations"][0]["fullyQualifiedName"] == "Pod ml/taker"
    assert "file=" not in command("--output", "github", "-", stdin=POD).out


def test_hostile_names_cannot_leave_their_place(command: LintCommand) -> None:
    command.write(HOSTILE_FILE, HOSTILE_POD)
    commands = command("--output", "github", HOSTILE_FILE).out.splitlines()
    expected = command.json(HOSTILE_FILE).report["findings"]
    shown = [finding for finding in expected if finding["level"] != "note"]
    assert len(commands) == len(shown)
    for line in commands:
        properties = line.removeprefix("::error ").removeprefix("::warning ").partition("::")[0]
        keys = [field.partition("=")[0] for field in properties.split(",")]
        assert keys == ["title", "file", "line", "col"]
    for result in sarif(command, HOSTILE_FILE)["results"]:
        (location,) = result["locations"]
        uri = location["physicalLocation"]["artifactLocation"]["uri"]
        assert uri.startswith("./")  # else a:b would be a URI of the scheme a
        assert unquote(uri) == "./a:b,c%\\u000a::error::|`]]>.json"
        text = result["message"]["text"]
        assert "](" not in text
        assert not re.search(r"(?<!\{)\{\d+\}", text)
    for issue in json.loads(command("--output", "gitlab", HOSTILE_FILE).out):
        assert "\x1b" not in issue["description"]


def counts(root: ET.Element) -> dict[str, str]:
    """The counts of the only suite in a JUnit report."""
    (suite,) = root
    return {name: suite.attrib[name] for name in ("tests", "failures", "errors")}


# What the schemas of Ant and of Jenkins' xUnit plugin both allow, and what one of them requires.
JUNIT_ATTRIBUTES = {
    "testsuites": set[str](),
    "testsuite": {
        *("name", "package", "id", "timestamp", "hostname", "time"),
        *("tests", "failures", "errors"),
    },
    "testcase": {"name", "classname", "time"},
    "failure": {"message", "type"},
    "error": {"message", "type"},
}


def test_junit_fits_both_schemas_in_use(command: LintCommand) -> None:
    command.write("pod.yaml", POD + "      resources: {limits: {nvidia.com/gpu: 1}}\n")
    command.write("torn.yaml", "apiVersion: v1\nkind: [\n")
    root = parse_xml(command("--output", "junit", "--notes", ".").out)
    for element in root.iter():
        assert set(element.attrib) == JUNIT_ATTRIBUTES.get(element.tag, set()), element.tag
    (suite,) = root
    tags = [child.tag for child in suite]
    assert tags == ["properties", *["testcase"] * 4, "system-out", "system-err"]
    assert all(len(case) <= 1 for case in root.iter("testcase"))
    assert re.fullmatch(r"\d{4}(-\d\d){2}T\d\d(:\d\d){2}", suite.attrib["timestamp"])
    assert re.fullmatch(r"\d+\.\d{3}", suite.attrib["time"])


def test_junit_fails_the_cases_that_fail_the_run(command: LintCommand) -> None:
    command.write("pod.yaml", POD + "      resources: {limits: {nvidia.com/gpu: 1}}\n")
    root = parse_xml(command("--output", "junit", "--notes", "pod.yaml").out)
    assert counts(root) == {"tests": "3", "failures": "1", "errors": "0"}
    failed, *noted = root.iter("testcase")
    assert failed.attrib["classname"] == "pod.yaml"
    assert failed.attrib["name"].startswith("visible-devices-env Pod ml/taker [")
    (failure,) = failed
    assert failure.tag == "failure"
    assert failure.attrib["type"] == "error"
    assert [list(case) for case in noted] == [[], []]
    assert (root.findtext("testsuite/system-out") or "").count("pod.yaml:") == 2
    strict = command("--output", "junit", "--fail-on", "note", "pod.yaml")
    assert counts(parse_xml(strict.out))["failures"] == "3"
    assert strict.status == 1


def test_junit_says_what_was_not_evaluated_and_that_nothing_was_found(
    command: LintCommand,
) -> None:
    command.write("torn.yaml", "apiVersion: v1\nkind: [\n")
    torn = parse_xml(command("--output", "junit", "torn.yaml").out)
    assert counts(torn)["errors"] == "1"
    assert next(torn.iter("error")).attrib["message"].startswith("not evaluated: ")
    command.write("pod.yaml", CLEAN_POD)
    clean = parse_xml(command("--output", "junit", "pod.yaml").out)
    assert [len(case) for case in clean.iter("testcase")] == [0]


def test_hostile_names_stay_text_in_junit(command: LintCommand) -> None:
    text = HOSTILE_POD.replace("<script>", "<script>\\uffff")
    command.write(HOSTILE_FILE, text)
    root = parse_xml(command("--output", "junit", HOSTILE_FILE).out)
    assert {element.tag for element in root.iter()} <= {
        *("testsuites", "testsuite", "properties", "testcase", "failure", "error"),
        *("system-out", "system-err"),
    }
    assert "<script>" in next(root.iter("failure")).attrib["message"]


def test_rdjson_suggests_the_edit_that_fix_makes(command: LintCommand) -> None:
    """Its columns count bytes, and the end of a range is behind its last character."""
    containers = "    - {name: é😀, image: i, resources: {requests: {nvidia.com/gpu: 1}}}\n"
    text = POD[: POD.index("  containers:\n")] + "  containers:\n" + containers
    file = command.write("pod.yaml", text)
    report = json.loads(command("--output", "rdjson", "pod.yaml").out)
    ((suggestion,),) = [d["suggestions"] for d in report["diagnostics"] if "suggestions" in d]
    lines = text.encode().splitlines(keepends=True)
    starts = [0, *itertools.accumulate(map(len, lines))]
    ends = suggestion["range"]["start"], suggestion["range"]["end"]
    start, end = (starts[place["line"] - 1] + place["column"] - 1 for place in ends)
    after = text.encode()[:start] + suggestion["text"].encode() + text.encode()[end:]
    assert command.run("fix", "--rule", "request-only", "pod.yaml").status == 0
    assert file.read_bytes() == after != text.encode()


def test_rdjson_counts_bytes(command: LintCommand) -> None:
    before = "        - {name: NVIDIA_VISIBLE_DEVICES, é: 😀, value: "
    command.write("pod.yaml", POD[: POD.index("        - name: NVIDIA")] + before + "all}\n")
    report = json.loads(command("--output", "rdjson", "pod.yaml").out)
    assert report["source"]["name"] == "gpuward"
    (diagnostic,) = report["diagnostics"]
    assert diagnostic["severity"] == "ERROR"
    assert diagnostic["code"]["value"] == "visible-devices-env"
    assert diagnostic["code"]["url"].endswith("/docs/rules/visible-devices-env.md")
    column = len(before.encode()) + 1
    assert diagnostic["location"] == {
        "path": "pod.yaml",
        "range": {
            "start": {"line": 11, "column": column},
            "end": {"line": 11, "column": column + 3},
        },
    }


def test_markdown_is_a_table_with_links_to_the_rules(command: LintCommand) -> None:
    command.write("pod.yaml", POD)
    out = command("--output", "markdown", "pod.yaml").out
    assert out.startswith("<!-- gpuward -->\n### gpuward: 1 error\n")
    (row,) = [line for line in out.splitlines() if "visible-devices-env" in line]
    assert row.startswith(
        "| ❌ error | pod.yaml:12<br>Pod ml/taker | [visible-devices-env](https://"
    )
    command.write("pod.yaml", CLEAN_POD)
    assert "### gpuward: no findings\n" in command("--output", "markdown", "pod.yaml").out


def test_hostile_names_have_no_meaning_in_markdown(command: LintCommand) -> None:
    command.write(HOSTILE_FILE, HOSTILE_POD.replace("<script>", "<script>@all #1 www.b.example"))
    out = command("--output", "markdown", HOSTILE_FILE).out
    rows = [line for line in out.splitlines() if line.startswith("| ❌")]
    assert rows
    for row in rows:
        assert len(re.findall(r"(?<!\\)\|", row)) == 5
        assert len(re.findall(r"(?<!\\)<(?!br>)", row)) == 0
        assert len(re.findall(r"(?<!\\)\[", row)) == 1  # the link to the rule
        assert "@all" not in row
        assert "www.b" not in row
        assert row.count("://") == 1


def test_a_long_comment_ends_before_github_refuses_it(command: LintCommand) -> None:
    pods = "---\n".join(POD.replace("taker", f"taker-{n}") for n in range(300))
    command.write("pods.yaml", pods)
    out = command("--output", "markdown", "pods.yaml").out
    assert len(out) < 65_536
    shown = out.count("| ❌ error |")
    assert f"\n{300 - shown} more do not fit into a comment.\n" in out


@pytest.mark.parametrize(
    "form", ["sarif", "github", "gitlab", "junit", "markdown", "rdjson", "html"]
)
def test_names_of_files_that_are_no_text_are_escaped(command: LintCommand, form: str) -> None:
    name = os.fsdecode(b"\xff.yaml")
    command.write(name, POD)
    outcome = command("--output", form, "--report", f"{form}=report", ".")
    assert outcome.status == 1
    assert "udcff.yaml" in outcome.out
    assert (command.folder / "report").read_text(encoding="utf-8") == outcome.out


def test_several_reports_of_one_run(command: LintCommand) -> None:
    command.write("pod.yaml", POD)
    outcome = command("--report", "sarif=lint.sarif", "--report", "gitlab=quality.json", "pod.yaml")
    assert outcome.status == 1
    assert outcome.out.startswith("error[visible-devices-env]")
    alone = command("--output", "sarif", "pod.yaml").out
    assert (command.folder / "lint.sarif").read_text() == alone
    assert (command.folder / "quality.json").read_text().startswith("[")


def test_standard_output_can_have_the_report_of_an_output(command: LintCommand) -> None:
    command.write("pod.yaml", POD)
    outcome = command("--report", "github=-", "--report", "json=report.json", "pod.yaml")
    assert outcome.out == command("--output", "github", "pod.yaml").out
    assert json.loads((command.folder / "report.json").read_text())["version"] == 1


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--report", "sarif"], "write it as FORMAT=FILE"),
        (["--report", "sarif="], "write it as FORMAT=FILE"),
        (["--report", "nonsense=file"], "the formats are text, json,"),
        (["--report", "sarif=a", "--report", "json=./a"], "./a has another report"),
        (["--report", "sarif=-", "--report", "json=-"], "- has another report"),
        (["--report", "sarif=pod.yaml"], "pod.yaml is a file to lint"),
        (["--report", "sarif=-", "--output", "json"], "standard output is taken"),
        (["--report", "sarif=-", "--diff"], "standard output is taken"),
    ],
)
def test_wrong_outputs_are_refused(command: LintCommand, arguments: list[str], why: str) -> None:
    command.write("pod.yaml", POD)
    outcome = command(*arguments, "pod.yaml")
    assert outcome.status == 2
    assert why in outcome.errors
    assert outcome.out == ""
    assert {file.name for file in command.folder.iterdir()} == {".git", "pod.yaml"}
    assert (command.folder / "pod.yaml").read_text() == POD


@pytest.mark.parametrize("form", ["json", "sarif", "gitlab"])
def test_a_report_in_a_folder_of_manifests_replaces_no_manifest(
    command: LintCommand, form: str
) -> None:
    command.write("deploy/pod.yaml", POD)
    command.write("deploy/torn.yml", "kind: [")
    os.link(command.folder / "deploy/pod.yaml", command.folder / "deploy/hard-link.yaml")
    (command.folder / "deploy/link.json").symlink_to("pod.yaml")
    for name in ("pod.yaml", "torn.yml", "hard-link.yaml", "link.json"):
        outcome = command("--report", f"{form}=deploy/{name}", "deploy")
        assert outcome.status == 2
        assert f"deploy/{name} holds a manifest; name another file" in outcome.errors
    assert (command.folder / "deploy/pod.yaml").read_text() == POD
    # The report of an earlier run is no manifest.
    for _ in range(2):
        outcome = command("--report", f"{form}=deploy/report.json", "deploy/pod.yaml")
        assert (outcome.status, outcome.errors) == (1, "")


def test_a_report_that_cannot_be_written_loses_no_other(command: LintCommand) -> None:
    command.write("pod.yaml", POD)
    outcome = command(
        "--report", "sarif=missing/lint.sarif", "--report", "json=report.json", "pod.yaml"
    )
    assert outcome.status == 2
    assert (
        outcome.errors == "gpuward: --report sarif=missing/lint.sarif: not written: "
        "no such file or directory\n"
    )
    assert outcome.out.startswith("error[visible-devices-env]")
    assert (command.folder / "report.json").is_file()


def test_formats_are_loaded_only_if_they_are_asked_for(command: LintCommand) -> None:
    command.write("pod.yaml", POD)
    program = (
        "import sys; from gpuward.__main__ import main; main(['lint', 'pod.yaml']); "
        "print(*sys.modules, sep='\\n', file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=command.folder,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=True,
        text=True,
    )
    loaded = set(done.stderr.splitlines())
    assert "reports.formats.text" in loaded
    unwanted = {"reports.outputs", "reports.entries", "reports.formats.sarif", "importlib.metadata"}
    assert not loaded & unwanted


def test_a_reader_who_closes_standard_output_early_loses_no_report_file(tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text(POD, encoding="utf-8")
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as closed:
        subprocess.run(
            [sys.executable, "-m", "gpuward", "lint", "--report", "sarif=out.sarif", "pod.yaml"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=closed,
            stderr=subprocess.DEVNULL,
            check=False,
        )
    report = json.loads((tmp_path / "out.sarif").read_text(encoding="utf-8"))
    assert report["runs"][0]["results"]


def test_a_report_counts_and_lists_the_notes_that_the_text_shows(command: LintCommand) -> None:
    values = "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nspec:\n  values:\n"
    command.write("release.yaml", values + "    runtimeClassName: nvidia\n")
    shown = "is where gpuward finds no pod"
    for form in ("text", "github", "gitlab", "sarif", "rdjson", "html"):
        assert shown in command("-o", form, "release.yaml").out

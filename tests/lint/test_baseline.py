"""Tests of baselines: only new findings fail, and entries end when their findings do."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.testkit.lint_command import LintCommand

POD = """\
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: ml}}
spec:
  containers:
    - {{name: main, image: x, env: [{{name: NVIDIA_VISIBLE_DEVICES, value: all}}]}}
"""
RULE = "visible-devices-env"
POLICY = "apiVersion: gpuward.io/v1\nkind: Policy\n"
FILE = "gpuward-baseline.yaml"
KNOWN = ("--baseline", FILE)


@pytest.fixture
def known(command: LintCommand) -> LintCommand:
    """A repository with two findings, which its baseline accepts."""
    command.write("deploy/a.yaml", POD.format(name="a"))
    command.write("deploy/b.yaml", POD.format(name="b"))
    assert command.run("baseline", "create", "--reason", "older than the rule", ".").status == 0
    return command


def entries(command: LintCommand) -> list[dict[str, str]]:
    found: list[dict[str, str]] = yaml.safe_load((command.folder / FILE).read_text())["findings"]
    return found


def edit(command: LintCommand, old: str, new: str) -> None:
    file = command.folder / FILE
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_only_new_findings_fail(known: LintCommand) -> None:
    outcome = known.json(*KNOWN, "--fail-on", "warning", ".")
    assert (outcome.status, outcome.found) == (0, {})
    assert outcome.report["summary"]["baselined"] == 2
    known.write("deploy/c.yaml", POD.format(name="c"))
    outcome = known.json(*KNOWN, ".")
    assert outcome.status == 1
    assert [finding["name"] for finding in outcome.report["findings"]] == ["c"]
    assert "2 in the baseline" in known(*KNOWN, ".").out


def test_an_entry_says_what_it_is_about(known: LintCommand) -> None:
    first = known.json(".").report["findings"][0]
    assert entries(known)[0] == {
        "rule": RULE,
        "level": "error",
        "file": "deploy/a.yaml",
        "object": "Pod ml/a",
        "container": "main",
        "fingerprint": first["fingerprint"],
        "reason": "older than the rule",
    }


def test_a_finding_stays_known_when_lines_or_files_move(known: LintCommand) -> None:
    edit(known, "reason: older than the rule\n", "reason: ticket 5\n  expires: 2999-12-31\n")
    (known.folder / "deploy/a.yaml").unlink()
    known.write("apps/a.yaml", "# moved\n\n" + POD.format(name="a"))
    assert known(*KNOWN, "--fail-on", "warning", ".").status == 0
    moved = f"{RULE} in deploy/a.yaml, Pod ml/a is in apps/a.yaml now"
    assert f"note: {FILE}:5:1: {moved}: " in known(*KNOWN, "--notes", ".").out
    checked = known.run("baseline", "check", ".")
    assert (checked.status, checked.out.count("\n")) == (1, 1)
    assert checked.out.startswith(f"{FILE}:5: {moved}: run gpuward baseline update, which keeps")
    updated = known.run("baseline", "update", ".")
    assert updated == (0, f"{FILE}: 0 findings added, 0 entries removed, 1 entry moved\n", "")
    assert [(entry["file"], entry["reason"]) for entry in entries(known)] == [
        ("apps/a.yaml", "ticket 5"),
        ("deploy/b.yaml", "ticket 5"),
    ]
    assert {entry["expires"] for entry in entries(known)} == {"2999-12-31"}
    assert known.run("baseline", "check", ".").status == 0


def test_an_entry_accepts_one_finding(known: LintCommand) -> None:
    known.write("deploy/copy.yaml", POD.format(name="a"))
    for paths in ((".",), ("deploy/copy.yaml",)):
        outcome = known.json(*KNOWN, *paths)
        assert [finding["file"] for finding in outcome.report["findings"]] == ["deploy/copy.yaml"]


def test_the_names_of_files_are_those_seen_from_the_baseline(known: LintCommand) -> None:
    (known.folder / "deploy/gone.yaml").touch()
    inside = LintCommand(known.folder / "deploy")
    assert inside("--baseline", f"../{FILE}", "--fail-on", "warning", ".").status == 0


def test_an_entry_is_stale_only_if_its_file_was_evaluated(known: LintCommand) -> None:
    known.write("deploy/a.yaml", POD.format(name="a").replace("all", "void"))
    assert known(*KNOWN, "deploy/b.yaml").out.count("warning:") == 0
    outcome = known(*KNOWN, ".")
    assert outcome.status == 0
    assert f"warning: {FILE}:5:1: {RULE} in deploy/a.yaml, Pod ml/a finds nothing" in outcome.out
    known.write("deploy/a.yaml", "apiVersion: v1\nkind: [\n")
    assert known(*KNOWN, ".").out.count("warning:") == 0


def test_update_removes_what_is_gone_and_adds_only_for_a_reason(known: LintCommand) -> None:
    edit(known, "reason: older than the rule\n", "reason: 'ticket: 5'\n  expires: 2999-12-31\n")
    (known.folder / "deploy/a.yaml").unlink()
    known.write("deploy/c.yaml", POD.format(name="c"))
    outcome = known.run("baseline", "update", ".")
    assert outcome.status == 1
    assert "deploy/c.yaml:6:74: not in the baseline: visible-devices-env: " in outcome.out
    assert [entry["object"] for entry in entries(known)] == ["Pod ml/b"]
    assert known.run("baseline", "update", "--reason", "new team", ".").status == 0
    assert [(e["object"], e["reason"], e.get("expires")) for e in entries(known)] == [
        ("Pod ml/b", "ticket: 5", "2999-12-31"),
        ("Pod ml/c", "new team", None),
    ]


def test_update_without_changes_leaves_every_byte(known: LintCommand) -> None:
    before = (known.folder / FILE).read_bytes()
    assert known.run("baseline", "update", "--reason", "x", "deploy").status == 0
    assert known.run("baseline", "update", "deploy/b.yaml").status == 0
    assert (known.folder / FILE).read_bytes() == before


def test_check_says_what_update_would_change(known: LintCommand) -> None:
    assert known.run("baseline", "check", ".") == (0, "", "")
    before = (known.folder / FILE).read_bytes()
    (known.folder / "deploy/a.yaml").unlink()
    known.write("deploy/c.yaml", POD.format(name="c"))
    outcome = known.run("baseline", "check", ".")
    assert outcome.status == 1
    stale, new = outcome.out.splitlines()
    assert stale.startswith(f"{FILE}:5: {RULE} in deploy/a.yaml, Pod ml/a finds nothing any more")
    assert new.startswith("deploy/c.yaml:6:74: not in the baseline: ")
    assert (known.folder / FILE).read_bytes() == before


def test_a_finding_fails_again_when_its_entry_expires(known: LintCommand) -> None:
    edit(known, "reason: older than the rule\n", "reason: until March\n  expires: 2020-03-31\n")
    outcome = known(*KNOWN, ".")
    assert outcome.status == 1
    assert f"{RULE} in deploy/b.yaml, Pod ml/b (until March) expired on 2020-03-31" in outcome.out
    assert known.run("baseline", "check", ".").status == 1
    assert known.run("baseline", "update", ".").status == 1
    assert len(entries(known)) == 2


def test_a_finding_that_got_worse_counts_until_somebody_gives_a_reason(
    known: LintCommand,
) -> None:
    edit(known, "level: error", "level: warning")
    edit(known, "reason: older than the rule\n", "reason: harmless\n  expires: '2999-12-31'\n")
    outcome = known(*KNOWN, ".")
    assert outcome.status == 1
    worse = "(harmless) got worse: its level is error now, and the entry accepts warning"
    assert f"{FILE}:5:1: {RULE} in deploy/a.yaml, Pod ml/a {worse}" in outcome.out
    assert known.json(*KNOWN, ".").report["summary"]["baselined"] == 0
    assert known.run("baseline", "check", ".").status == 1
    before = (known.folder / FILE).read_bytes()
    outcome = known.run("baseline", "update", ".")
    assert outcome.status == 1
    assert outcome.out.count("worse than the warning that the baseline accepts: ") == 2
    assert (known.folder / FILE).read_bytes() == before
    outcome = known.run("baseline", "update", "--reason", "reviewed", ".")
    assert (outcome.status, "2 levels raised" in outcome.out) == (0, True)
    assert [(entry["level"], entry["reason"], entry["expires"]) for entry in entries(known)] == [
        ("error", "reviewed", "2999-12-31")
    ] * 2


def test_an_entry_accepts_no_more_than_its_finding_needs(known: LintCommand) -> None:
    policy = f"{POLICY}rules: {{{RULE}: {{action: %s}}}}\n"
    known.write("gpuward.yaml", policy % "warn")
    outcome = known(*KNOWN, ".")
    assert (outcome.status, outcome.out.count("got better: its level is warning now")) == (0, 2)
    assert known.run("baseline", "check", ".").status == 1
    assert known.run("baseline", "update", ".").status == 0
    assert [entry["level"] for entry in entries(known)] == ["warning"] * 2
    assert known(*KNOWN, "--fail-on", "warning", ".").status == 0
    known.write("gpuward.yaml", policy % "deny")
    assert known(*KNOWN, ".").status == 1


def test_the_worst_finding_gets_the_entry_that_accepts_most(known: LintCommand) -> None:
    pod = "metadata: {name: p}\nspec:\n  volumes: [{name: v, hostPath: {path: /dev/nvidia0}}]\n"
    pod += "  containers: [{name: c, image: x, volumeMounts: [{name: v, mountPath: /x}]"
    harmless, harmful = "}]\n", ", securityContext: {capabilities: {add: [SYS_ADMIN]}}}]\n"
    for ends in ((harmless, harmful), (harmful, harmless)):
        documents = (f"apiVersion: v1\nkind: Pod\n{pod}{end}" for end in ends)
        known.write("two.yaml", "---\n".join(documents))
        (known.folder / "two").unlink(missing_ok=True)
        create = ("baseline", "create", "--baseline", "two", "--reason", "x", "two.yaml")
        assert known.run(*create).status == 0
        text = (known.folder / "two").read_text()
        assert (text.count("level: error"), text.count("level: warning")) == (1, 1)
        head, first, second = text.partition("- rule")[0], *text.split("- rule")[1:]
        (known.folder / "two").write_text(f"{head}- rule{second}- rule{first}")
        assert known("--baseline", "two", "--fail-on", "warning", "two.yaml").status == 0


def test_rules_that_nobody_may_suppress_cannot_be_in_a_baseline(known: LintCommand) -> None:
    known.write("gpuward.yaml", f"{POLICY}rules: {{{RULE}: {{suppressible: false}}}}\n")
    outcome = known(*KNOWN, ".")
    assert outcome.status == 1
    assert f"the policy does not allow a baseline to suppress {RULE}" in outcome.out
    assert known.run("baseline", "check", ".").status == 1
    created = known.run("baseline", "create", "--baseline", "n.yaml", "--reason", "x", "deploy")
    assert created.status == 1
    assert created.out.count("the policy lets nobody suppress it") == 2
    assert known.run("baseline", "update", ".").status == 1
    assert entries(known) == []


def test_notes_are_in_a_baseline_only_if_asked_for(command: LintCommand) -> None:
    pod = "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: x,"
    command.write("p.yaml", f"{pod} resources: {{limits: {{nvidia.com/gpu: 1}}}}}}]}}}}\n")
    create = ("baseline", "create", "--reason", "x")
    assert "0 findings added" in command.run(*create, "p.yaml").out
    assert " 0 findings" not in command.run(*create, "--baseline", "n", "--notes", "p.yaml").out
    assert command("--baseline", "n", "--fail-on", "note", "p.yaml").status == 0


def test_sarif_lists_known_findings_as_suppressed(known: LintCommand) -> None:
    log = json.loads(known(*KNOWN, "--output", "sarif", "deploy").out)
    suppressions = [result["suppressions"] for result in log["runs"][0]["results"]]
    assert suppressions == [[{"kind": "external", "justification": "older than the rule"}]] * 2


def test_what_could_not_be_evaluated_is_status_3(known: LintCommand) -> None:
    known.write("deploy/torn.yaml", "apiVersion: v1\nkind: [\n")
    for verb in ("update", "check"):
        outcome = known.run("baseline", verb, ".")
        assert (outcome.status, "torn.yaml:3:1: not evaluated" in outcome.out) == (3, True)


MISTAKES = {
    "no entries": ("findings:", "finding:", ":3:1: a baseline has a list `findings`"),
    "another version": ("version: 1", "version: 2", ":3:1: a baseline is a mapping with `version"),
    "no YAML": ("version: 1", "version: [", "FILE:"),
    "no reason": ("  reason: older than the rule\n", "", ":5:3: the entry has no reason"),
    "no level": ("  level: error\n", "", ":5:3: the entry has no level, the worst that it accepts"),
    "no known level": ("level: error", "level: deny", ":6:3: level must be error, warning or note"),
    "an empty reason": ("older than the rule", "''", ":11:3: reason must not be empty"),
    "no text": ("older than the rule", "5", ":11:3: reason must be a text"),
    "an unknown key": ("reason:", "because:", ":11:3: there is no key 'because'"),
    "a key twice": ("reason:", "rule:", ":11:3: the key 'rule' is here twice"),
    "no fingerprint": ("fingerprint: ", "fingerprint: x", ":10:3: a fingerprint has 64"),
    "no day": ("reason: older", "expires: soon\n  reason: older", ":11:3: expires must be a day"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_in_a_baseline_are_named_with_their_place(known: LintCommand, case: str) -> None:
    old, new, message = MISTAKES[case]
    edit(known, old, new)
    pod = (known.folder / "deploy/a.yaml").read_bytes()
    outcome = known(*KNOWN, "--fix", "--unsafe-fixes", ".")
    assert outcome.status == 2
    assert message.replace("FILE", FILE) in outcome.errors
    assert (known.folder / "deploy/a.yaml").read_bytes() == pod


def test_wrong_usage_loses_nothing(known: LintCommand) -> None:
    before = (known.folder / FILE).read_bytes()
    outcome = known.run("baseline", "create", "--reason", "x", ".")
    assert (outcome.status, "exists already" in outcome.errors) == (2, True)
    outcome = known.run("baseline", "update", "--baseline", "no.yaml", ".")
    assert (outcome.status, "create it with" in outcome.errors) == (2, True)
    (known.folder / FILE).chmod(0o444)
    assert known.run("baseline", "update", "--reason", " ", ".").status == 2
    assert (known.folder / FILE).read_bytes() == before


def test_hostile_names_survive(command: LintCommand) -> None:
    name = "x\n- rule: y\t\x1b[2J\u2028\U0001f600"
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}
    env = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    pod["spec"] = {"containers": [{"name": name, "env": env}]}
    command.write("a: 'b' #.json", json.dumps(pod))
    assert command.run("baseline", "create", "--reason", "it is: 'so' # \n", ".").status == 0
    assert command.run("baseline", "check", ".").status == 0
    assert command(*KNOWN, "--fail-on", "warning", ".").status == 0

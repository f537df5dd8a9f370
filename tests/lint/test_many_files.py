"""Tests of runs over many files: several processes report what one does, and progress is shown."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from gpuward.__main__ import main
from lint import processes
from lint.linter import Linter
from policies.loading import default_policy
from reports.results import Results
from rules.profile.context import Context
from sources.paths import inputs
from sources.policy_file import OnePolicy
from sources.sources import Input, Source
from tests.testkit.cases import TODAY
from tests.testkit.lint_command import LintCommand

POD = """\
apiVersion: v1
kind: Pod
metadata: {{name: pod-{n}, namespace: ml, ownerReferences: [{owner}]}}
spec:
  containers:
    - {{name: main, image: x, env: [{{name: NVIDIA_VISIBLE_DEVICES, value: {value}}}]}}
"""
OWNER = "{controller: true, apiVersion: apps/v1, kind: ReplicaSet, name: web}"
REPLICA_SET = """\
apiVersion: apps/v1
kind: ReplicaSet
metadata:
  {name: web, namespace: ml,
   ownerReferences: [{controller: true, apiVersion: apps/v1, kind: Deployment, name: top}]}
"""
POLICY = """\
apiVersion: gpuward.io/v1
kind: Policy
exceptions:
  - {rules: [visible-devices-env], reason: used, match: {namespace: ml, name: pod-290}}
  - {rules: [visible-devices-env], reason: not used, match: {namespace: ml, name: nobody}}
"""


@pytest.fixture
def command(as_program: LintCommand) -> LintCommand:
    """The program: it starts others."""
    return as_program


@pytest.fixture
def many(command: LintCommand) -> LintCommand:
    """More files than one process reads by itself, with all kinds of results in them."""
    for n in range(300):
        value = "all" if n % 3 else "void"
        pod = POD.format(n=n, value=value, owner=OWNER if n % 2 else "")
        command.write(f"pods/{n:03}.yaml", f"{pod}---\n{pod}" if n % 7 == 0 else pod)
    for n in range(0, 300, 60):
        command.write(f"pods/{n:03}-torn.yaml", "apiVersion: [\n")
        command.write(
            f"pods/{n:03}-comment.yaml",
            "# gpuward: ignore\n" + POD.format(n=f"c{n}", value="all", owner=""),
        )
    command.write("pods/299-owner.yaml", REPLICA_SET)  # read last, by another process
    command.write("chart/Chart.yaml", "name: c\n")
    for n in range(3):
        command.write(f"chart/templates/{n}.yaml", "{{ if }}\napiVersion: v1\n---\n{{ if }}\n")
    command.write("gpuward.yaml", POLICY)
    return command


def without_seconds(report: dict[str, Any]) -> dict[str, Any]:
    report["summary"].pop("seconds")
    return report


def test_several_processes_report_what_one_does(many: LintCommand) -> None:
    one, *others = (many.json("--jobs", jobs, ".") for jobs in ("1", "2", "5"))
    expected = without_seconds(one.report)
    assert expected["summary"]["pods"] > 300
    assert "top" in {finding["owner"]["name"] for finding in expected["findings"]}
    for other in others:
        assert (other.status, other.errors) == (one.status, one.errors)
        assert without_seconds(other.report) == expected


@pytest.mark.parametrize("jobs", ["0", "-1", "many"])
def test_a_number_of_processes_is_positive(command: LintCommand, jobs: str) -> None:
    outcome = command("--jobs", jobs, ".")
    assert (outcome.status, "argument --jobs/-j" in outcome.errors) == (2, True)


def test_files_of_a_process_that_ends_are_not_evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(300):
        (tmp_path / f"{n:03}.yaml").write_text(POD.format(n=n, value="all", owner=""))
    first, evaluate = os.getpid(), Linter.evaluate

    def fatal(linter: Linter, given: Iterable[Input]) -> None:
        items = [*given]
        if os.getpid() != first and any(item.name.endswith("270.yaml") for item in items):
            os._exit(9)
        evaluate(linter, items)

    monkeypatch.setattr(Linter, "evaluate", fatal)
    linter = Linter(OnePolicy(default_policy()), Context(TODAY))
    processes.evaluate_many(linter, [*inputs([str(tmp_path)])], 2)
    results = linter.results
    lost = {os.path.basename(failed.file) for failed in results.not_evaluated}
    found = {os.path.basename(located.file) for located in results.findings}
    assert "270.yaml" in lost
    assert lost | found == {f"{n:03}.yaml" for n in range(300)}
    assert not lost & found
    assert results.exit_status("error") == 3


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_run_with_too_many_findings_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    monkeypatch.setattr("reports.results.MAX_FINDINGS", 200)
    for n in range(300):
        (tmp_path / f"{n:03}.yaml").write_text(POD.format(n=n, value="all", owner=""))
    linter = Linter(OnePolicy(default_policy()), Context(TODAY))
    processes.evaluate_many(linter, [*inputs([str(tmp_path)])], jobs)
    (missing,) = linter.results.not_evaluated
    assert os.path.basename(missing.file) == "200.yaml"
    assert "more findings than 200 in this run" in missing.message
    assert len(linter.results.findings) == 200
    assert linter.results.exit_status("error") == 3


def test_findings_keep_no_manifest_in_memory() -> None:
    linter = Linter(OnePolicy(default_policy()), Context(TODAY))
    text = POD.format(n=1, value="all", owner="") + "# " + "x" * 10_000
    linter.evaluate([Source("pod.yaml", text)])
    (located,) = linter.results.findings
    assert len(repr(located)) < 5_000


def test_ctrl_c_ends_a_run_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("lint.cli.main", interrupt)
    monkeypatch.setattr("sys.path", [*sys.path])
    assert main(["lint", "."]) == 130


class Terminal(io.StringIO):
    """A terminal that remembers what was written."""

    def isatty(self) -> bool:
        """Yes."""
        return True


def test_progress_is_shown_after_a_second_and_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, now = Terminal(), 0.0
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("lint.processes.time.monotonic", lambda: now)
    with processes.Progress(4000) as bar:
        files = bar.counted(range(4000))
        for _ in islice(files, 2001):
            bar.show()
        assert terminal.getvalue() == ""
        now = 2.0
        bar.show()
        shown = terminal.getvalue()
        assert shown.endswith("[###############...............] 2,000 of 4,000 files")
        next(files)
        bar.show()
        assert terminal.getvalue() == shown
    assert terminal.getvalue() == f"{shown}\r\x1b[K"


@pytest.mark.parametrize(("stream", "term"), [(io.StringIO(), "xterm"), (Terminal(), "dumb")])
def test_progress_is_for_terminals(
    monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, term: str
) -> None:
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(processes, "_DELAY_SECONDS", -1.0)
    with processes.Progress(2) as bar:
        bar.show()
    assert stream.getvalue() == ""


def test_every_list_and_count_of_another_process_is_added() -> None:
    whole, later = Results(), Results()
    added = [name for name, value in vars(later).items() if isinstance(value, list | int)]
    for name in added:
        start = getattr(later, name)
        setattr(later, name, [object()] if isinstance(start, list) else type(start)(1))
    whole.add(later)
    for name in added:
        assert getattr(whole, name) == getattr(later, name), name

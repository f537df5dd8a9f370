"""Before the sums, `gpuward lint` writes the command that shows the fixes, and their number."""

from __future__ import annotations

import re
import shlex
import shutil

import pytest

from tests.testkit.fix_texts import FIXED, REQUEST
from tests.testkit.lint_command import LintCommand
from tests.testkit.paths import ROOT

NEXT = re.compile(
    r"^next: `gpuward (?P<command>.+)` shows up to (?P<safe>\d+) fix(?:es)?"
    r"(?:, and (?P<more>\d+) more with --unsafe-fixes)?$",
    re.MULTILINE,
)


@pytest.mark.parametrize("options", [[], ["--notes"]])
def test_as_many_fixes_are_shown_and_written_as_it_says(
    command: LintCommand, options: list[str]
) -> None:
    folder = command.folder / "my manifests"
    shutil.copytree(ROOT / "examples", folder)
    found = NEXT.search(command("my manifests", *options).out)
    assert found
    shows = shlex.split(found["command"])
    assert command.run(*shows).out.startswith("--- ")
    writes = [argument for argument in shows if argument != "--diff"]
    assert f", {found['safe']} fixed, " in command.run(*writes).out
    assert f", {found['more']} fixed, " in command.run(*writes, "--unsafe-fixes").out


@pytest.mark.parametrize(
    "arguments",
    [
        ["clean.yaml"],
        ["pod.yaml", "--quiet"],
        ["pod.yaml", "-o", "text"],
        ["pod.yaml", "-o", "concise"],
        ["pod.yaml", "--fix"],
        ["pod.yaml", "--report", "json=report.json"],
        ["-"],
    ],
)
def test_it_is_left_out_where_no_command_follows(
    command: LintCommand, arguments: list[str]
) -> None:
    command.write("clean.yaml", FIXED)
    command.write("pod.yaml", REQUEST)
    assert "next:" not in command(*arguments, stdin=REQUEST).out


def test_a_command_that_is_too_long_is_not_repeated(command: LintCommand) -> None:
    names = [f"a-pod-with-a-long-name-{number}.yaml" for number in range(9)]
    for name in names:
        command.write(name, REQUEST)
    line = command(*names).out.splitlines()[-2]
    assert line == "next: gpuward fix --diff, with the same arguments, shows up to 9 fixes"


@pytest.mark.parametrize("name", ["a`id`b.yaml", "a\nb.yaml"])
def test_a_name_that_cannot_be_copied_is_not_repeated(command: LintCommand, name: str) -> None:
    command.write(name, REQUEST)
    line = command(name).out.splitlines()[-2]
    assert line == "next: gpuward fix --diff, with the same arguments, shows up to 1 fix"

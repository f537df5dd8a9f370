"""Tests of shell completion and of the manual page, which are made from the parsers."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from gpuward import parsers
from gpuward.__main__ import COMMANDS
from tests.testkit.lint_command import LintCommand
from tests.testkit.missing_packages import run_without


def completed(script: str, *words: str) -> set[str]:
    """What bash proposes for the last of `words`."""
    line = " ".join(f"'{word}'" for word in ("gpuward", *words))
    ask = f"{script}\nCOMP_WORDS=({line}); COMP_CWORD={len(words)}\n"
    ask += '_shtab_gpuward gpuward "${COMP_WORDS[-1]}"; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(("bash", "-c", ask), capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_bash_completes_commands_options_and_values(command: LintCommand) -> None:
    script = command.run("completion", "bash").out
    assert completed(script, "") == {*COMMANDS}
    assert completed(script, "ba") == {"baseline"}
    assert "--changed-since" in completed(script, "lint", "--c")
    assert completed(script, "baseline", "") >= {"create", "update", "check"}
    assert completed(script, "lint", "--fail-on", "") == {"error", "warning", "note"}


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_every_command(command: LintCommand, shell: str) -> None:
    outcome = command.run("completion", shell)
    assert outcome.status == 0
    assert [name for name in COMMANDS if name not in outcome.out] == []
    assert "changed-since" in outcome.out
    if program := shutil.which(shell):
        done = subprocess.run((program, "-n"), input=outcome.out, text=True, check=False)
        assert done.returncode == 0


def test_the_manual_page_has_the_help_of_every_command(command: LintCommand) -> None:
    page = command.run("manual").out
    assert page.startswith(".TH GPUWARD 1 ")
    assert page.isascii()
    for name in COMMANDS:
        assert f".SH GPUWARD {name.upper()}\n.nf\n" in page
    assert '.SS "gpuward baseline create"\n' in page
    assert "\\-\\-changed\\-since REV" in page
    if groff := shutil.which("groff"):
        shown = subprocess.run(
            (groff, "-man", "-ww", "-Tutf8"), input=page, capture_output=True, text=True, check=True
        )
        assert shown.stderr == ""


def test_every_command_has_a_parser() -> None:
    for name in COMMANDS:
        parser = parsers.command_parser(name)
        assert parser is not None
        assert parser.prog == f"gpuward {name}"


def test_completion_says_which_extra_it_needs() -> None:
    done = run_without("shtab", "completion", "bash")
    assert (done.returncode, "'.[completion]'" in done.stderr) == (2, True)
    assert run_without("shtab", "manual").returncode == 0
    assert run_without("prometheus_client", "completion", "bash").returncode == 0

"""Tests of shell completion and of the manual page, which are made from the parsers."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gpuward import parsers
from gpuward.commands import COMMANDS
from tests.testkit.lint_command import LintCommand
from tests.testkit.missing_packages import run_without
from tests.testkit.paths import ROOT
from tests.testkit.skipping import skip_missing


@pytest.fixture
def command(as_program: LintCommand) -> LintCommand:
    """The program, whose output shells read."""
    return as_program


def completed(script: str, *words: str) -> set[str]:
    """Return what bash proposes for the last of `words`."""
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


def program(shell: str) -> str:
    """The path of a shell; without it the test is skipped."""
    return shutil.which(shell) or skip_missing(f"{shell} is not installed")


def test_zsh_completes_commands_options_values_and_files(
    command: LintCommand, tmp_path: Path
) -> None:
    """A key press in a terminal completes the line, which is then run."""
    zsh, ran = program("zsh"), tmp_path / "ran"
    (tmp_path / "script").write_text(command.run("completion", "zsh").out)
    (tmp_path / "pods.yaml").touch()
    (tmp_path / ".zshrc").write_text(
        "autoload -Uz compinit; compinit -u -D\n"
        f'eval "$(cat script)"\ngpuward() {{ print -r -- $* >> {shlex.quote(str(ran))} }}\n'
    )
    typed = ("ba", "lint --changed", "lint --fail-on w", "baseline up", "lint pod", "--vers")
    leader, follower = os.openpty()
    home = {"HOME": str(tmp_path), "ZDOTDIR": str(tmp_path), "TERM": "xterm"}
    ends: dict[str, Any] = {"stdin": follower, "stdout": follower, "stderr": follower}
    environment = {**home, "PATH": os.environ["PATH"]}
    with subprocess.Popen(
        (zsh, "-i"), cwd=tmp_path, env=environment, start_new_session=True, **ends
    ):
        os.close(follower)
        lines = [f"gpuward {words}\t\n" for words in typed]
        os.write(leader, "".join([*lines, "exit\n"]).encode())
        with suppress(OSError):  # the terminal has ended
            while os.read(leader, 4096):
                pass
    os.close(leader)
    assert [line.rstrip() for line in ran.read_text().splitlines()] == [
        *("baseline", "lint --changed-since", "lint --fail-on warning", "baseline update"),
        *("lint pods.yaml", "--version"),
    ]


def test_fish_completes_commands_options_values_and_files(
    command: LintCommand, tmp_path: Path
) -> None:
    fish = program("fish")
    script = command.run("completion", "fish").out
    (tmp_path / "pods.yaml").touch()

    def proposed(line: str) -> set[str]:
        ask = f"{script}\ncomplete -C {shlex.quote(line)}\n"
        environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
        done = subprocess.run(
            (fish, "--no-config", "-c", ask),
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return {choice.partition("\t")[0] for choice in done.stdout.splitlines()}

    assert proposed("gpuward ba") == {"baseline"}
    assert proposed("gpuward lint --ch") == {"--changed-since"}
    assert proposed("gpuward baseline ") >= {"create", "update", "check"}
    assert proposed("gpuward lint --fail-on ") == {"error", "warning", "note"}
    assert "pods.yaml" in proposed("gpuward lint pod")


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


@pytest.mark.parametrize(
    "name", ["baseline", "certs", "exceptions", "hook", "inventory", "policy", "webhooks"]
)
def test_a_command_that_has_commands_of_its_own_asks_for_one(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = parsers.command_parser(name)
    assert parser is not None
    with pytest.raises(SystemExit) as stopped:
        parser.parse_args([])
    assert stopped.value.code == 2
    assert "required: COMMAND" in capsys.readouterr().err


# Some of these take a tenth of a second to load.
SERVERS_LIBRARIES = {
    *("aiohttp", "anyio", "cryptography", "jinja2", "jsonschema", "kubernetes", "lsprotocol"),
    *("mcp", "multidict", "prometheus_client", "structlog"),
}


def test_the_parsers_are_made_without_the_libraries_of_servers() -> None:
    """Shells ask for the script whenever they start, and help and completion need no library."""
    program = "import sys; from gpuward import parsers; parsers.make_parser(); print(*sys.modules)"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = {*done.stdout.split()}
    assert {"webhook.cli", "console.cli", "cluster.controllers.exceptions_command"} <= loaded
    assert not SERVERS_LIBRARIES & loaded


def test_completion_says_which_extra_it_needs() -> None:
    done = run_without("shtab", "completion", "bash")
    assert (done.returncode, "'gpuward[completion]'" in done.stderr) == (2, True)
    assert run_without("shtab", "manual").returncode == 0
    assert run_without("prometheus_client", "completion", "bash").returncode == 0

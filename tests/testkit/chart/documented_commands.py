"""Find the commands in a text for users, and check that the programs know their options."""

from __future__ import annotations

import functools
import re
import subprocess
import sys

from tests.testkit.chart.rendering import HELMS, program

COMMAND = re.compile(r"(?:^|\|)[$ ]*((?:helm|kubectl|gpuward) [a-z].*?)(?= \| |$)", re.MULTILINE)
OPTION = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")


def commands(text: str) -> list[list[str]]:
    """The words of every command in the text, on a line of its own or after a pipe."""
    return [command.split() for command in COMMAND.findall(text)]


def unknown_options(words: list[str]) -> list[str]:
    """The options of a command that its program does not know."""
    name, verb, *rest = words
    programs = [[program("kubectl")]] if name == "kubectl" else [[program(h)] for h in HELMS]
    if name == "gpuward":
        programs = [[sys.executable, "-m", "gpuward"]]
    if name == "gpuward" and verb in {"webhooks", "certs"}:
        verb, rest = f"{verb} {rest[0]}", rest[1:]
    options = OPTION.findall(" ".join(rest))
    return [
        f"{option} of {name} {verb}"
        for command in programs
        for option in options
        if not re.search(rf"(?<![\w-]){option}(?![\w-])", _help((*command, *verb.split())))
    ]


@functools.cache
def _help(command: tuple[str, ...]) -> str:
    """The help of a program about a verb, and about the options of every verb."""
    done = _run(*command, "--help")
    # For an unknown verb, kubectl prints its general help.
    assert done.returncode == 0, done.stderr
    assert " ".join(command[1:]).removeprefix("-m ") in done.stdout, done.stdout
    return done.stdout + (_run(command[0], "options").stdout if "kubectl" in command[0] else "")


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

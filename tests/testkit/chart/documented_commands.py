"""The commands in a text for users, and whether there are such commands and options."""

from __future__ import annotations

import functools
import re
import subprocess
import sys

from tests.testkit.chart.rendering import HELMS, program

COMMAND = re.compile(r"(?:^|\|)[$ ]*((?:helm|kubectl|gpuward) [a-z].*?)(?= \| |$)", re.MULTILINE)
OPTION = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")


def commands(text: str) -> list[list[str]]:
    """The words of every command in the text that stands on a line of its own, or behind a pipe."""
    return [found.split() for found in COMMAND.findall(text)]


def problems(words: list[str]) -> list[str]:
    """What of a command its program does not know."""
    called, verb, *rest = words
    known = [[program("kubectl")]] if called == "kubectl" else [[program(h)] for h in HELMS]
    if called == "gpuward":
        known = [[sys.executable, "-m", "gpuward"]]
    if called == "gpuward" and verb in {"webhooks", "certs"}:
        verb, rest = f"{verb} {rest[0]}", rest[1:]
    options = OPTION.findall(" ".join(rest))
    return [
        f"{word} of {called} {verb}"
        for one in known
        for word in options
        if not re.search(rf"(?<![\w-]){word}(?![\w-])", _help((*one, *verb.split())))
    ]


@functools.cache
def _help(command: tuple[str, ...]) -> str:
    """What a program says of a verb, and of the options that every verb takes."""
    done = _run(*command, "--help")
    # To an unknown verb kubectl tells about itself.
    assert done.returncode == 0, done.stderr
    assert " ".join(command[1:]).removeprefix("-m ") in done.stdout, done.stdout
    return done.stdout + (_run(command[0], "options").stdout if "kubectl" in command[0] else "")


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

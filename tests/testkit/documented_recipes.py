"""The jq recipes of the documentation, to run them as written."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess

from tests.testkit.paths import DOCS
from tests.testkit.skipping import skip_missing

_COMMAND = re.compile(r"^ *(?:\$ )?(.*\bjq -.*)$", re.MULTILINE)


def jq_commands(page: str) -> list[list[str]]:
    """The words of each jq command in a page of docs/, without files to read."""
    text = (DOCS / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^ *```\w+\n(.*?)^ *```$", text, re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in _COMMAND.findall(block)]
    return [words for line in lines for words in _pipeline(line) if words[0] == "jq"]


def jq_command(page: str, part: str) -> list[str]:
    """The only jq command of a page that contains `part`."""
    [found] = [words for words in jq_commands(page) if any(part in word for word in words)]
    return found


def run_jq(words: list[str], text: str) -> str:
    """The output of a jq command that reads `text`; an error of jq fails the test."""
    if shutil.which("jq") is None:
        skip_missing("jq is not installed")
    done = subprocess.run(words, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _pipeline(line: str) -> list[list[str]]:
    """The commands of a line, divided at the pipes outside of quotes."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|")
    lexer.whitespace_split = True
    commands: list[list[str]] = [[]]
    for word in lexer:
        if word == "|":
            commands.append([])
        else:
            commands[-1].append(word)
    return [[w for w in words if not w.endswith(".log")] for words in commands]

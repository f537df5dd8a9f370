"""Tests of what a terminal gets: colours, and links to the pages of rules."""

from __future__ import annotations

import io

import pytest

from lint import cli
from lint.options import parse_lint_settings
from terminal import use_color, use_hyperlinks
from tests.testkit.lint_command import LintCommand

POD = """\
apiVersion: v1
kind: Pod
spec: {containers: [{name: c, image: x, env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}]}]}
"""


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        """Yes."""
        return True


# What --color says, the environment, and whether a terminal and a file get colours and links.
CASES = {
    "a terminal without links": ("auto", {"TERM": "xterm"}, (True, False), (False, False)),
    "a terminal with links": ("auto", {"TERM": "xterm-kitty"}, (True, True), (False, False)),
    "by its program": ("auto", {"TERM_PROGRAM": "vscode"}, (True, True), (False, False)),
    "by its presence": ("auto", {"WT_SESSION": "x"}, (True, True), (False, False)),
    "a new VTE": ("auto", {"VTE_VERSION": "7600"}, (True, True), (False, False)),
    "an old VTE": ("auto", {"VTE_VERSION": "4200"}, (True, False), (False, False)),
    "no number": ("auto", {"VTE_VERSION": "²9999"}, (True, False), (False, False)),
    "a dumb one": ("auto", {"TERM": "dumb", "WT_SESSION": "x"}, (False, False), (False, False)),
    "tmux": ("auto", {"TERM_PROGRAM": "vscode", "TMUX": "x"}, (True, False), (False, False)),
    "never": ("never", {"FORCE_COLOR": "1", "WT_SESSION": "x"}, (False, False), (False, False)),
    "always": ("always", {"WT_SESSION": "x", "NO_COLOR": "1"}, (True, True), (True, False)),
    "NO_COLOR": ("auto", {"NO_COLOR": "1", "WT_SESSION": "x"}, (False, False), (False, False)),
    "NO_COLOR, empty": ("auto", {"NO_COLOR": ""}, (True, False), (False, False)),
    "FORCE_COLOR": ("auto", {"FORCE_COLOR": "1", "WT_SESSION": "x"}, (True, True), (True, False)),
    "forced links": (
        "auto",
        {"FORCE_HYPERLINK": "1", "FORCE_COLOR": "1"},
        (True, True),
        (True, True),
    ),
    "no links": (
        "auto",
        {"FORCE_HYPERLINK": "0", "WT_SESSION": "1"},
        (True, False),
        (False, False),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_who_gets_colours_and_links(case: str) -> None:
    choice, environment, terminal, file = CASES[case]
    for stream, expected in ((Terminal(), terminal), (io.StringIO(), file)):
        color = use_color(choice, stream, environment)
        assert (color, use_hyperlinks(choice, stream, environment)) == expected


def test_the_name_of_a_rule_leads_to_its_page(
    command: LintCommand, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_HYPERLINK", "1")
    pod = str(command.write("pod.yaml", POD))
    cli.main(["--color", "always", pod])
    page = "https://github.com/gpuward/gpuward/blob/main/docs/rules/visible-devices-env.md"
    link = f"\x1b]8;;{page}\x1b\\visible-devices-env\x1b]8;;\x1b\\"
    assert f"error[{link}]" in capsys.readouterr().out
    cli.main(["--color", "never", pod])
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize(("columns", "longest"), [("60", 60), ("20", 40), ("300", 100)])
def test_reasons_and_remedies_fit_into_the_terminal(
    command: LintCommand, monkeypatch: pytest.MonkeyPatch, columns: str, longest: int
) -> None:
    command.write("pod.yaml", POD)
    monkeypatch.chdir(command.folder)
    monkeypatch.setenv("COLUMNS", columns)
    settings = parse_lint_settings(["--isolated", "pod.yaml"])
    for out, limit in ((Terminal(), longest), (io.StringIO(), 100)):
        assert cli._lint(settings, out) == 1  # noqa: SLF001  # a real terminal is no test
        lines = out.getvalue().split(" = why: ")[1].split(" = more: ")[0].splitlines()
        assert limit - 15 < max(map(len, lines[1:])) <= limit

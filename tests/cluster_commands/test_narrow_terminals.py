"""Tables fit into the terminal: what says nothing is left out, and what is too wide is folded."""

from __future__ import annotations

import math
import re
from random import Random

import pytest

from cluster.doctor.rows import Row, State, as_table
from cluster.gpus.tables import Table, render
from gpuward.commands import COMMANDS
from gpuward.parsers import command_parser, subcommands
from terminal import display_width

HEADER = ("NAME", "MODEL", "RESOURCE", "FREE", "STRANDED")
ROWS: list[tuple[str, ...]] = [
    ("gpu-1", "NVIDIA-A100-SXM4-40GB", "nvidia.com/mig-1g.5gb", "3", "0"),
    ("gpu-2", "NVIDIA-A100-SXM4-40GB", "nvidia.com/gpu", "39 (15 on a card)", "0"),
]


def lines(width: float, rows: list[tuple[str, ...]] = ROWS) -> list[str]:
    return render(Table(HEADER, [*rows]), width=width).splitlines()


def test_a_wide_terminal_shows_all() -> None:
    assert lines(120) == lines(math.inf)
    assert [line.split()[0] for line in lines(120)] == ["NAME", "gpu-1", "gpu-2"]


def test_columns_without_a_word_go_first_and_the_model_next() -> None:
    assert lines(75)[0].split() == ["NAME", "MODEL", "RESOURCE", "FREE"]
    assert lines(50)[0].split() == ["NAME", "RESOURCE", "FREE"]
    # A number that is not 0 stays.
    stranded = [ROWS[0], (*ROWS[1][:-1], "4")]
    assert lines(70, stranded)[0].split() == ["NAME", "RESOURCE", "FREE", "STRANDED"]


def test_that_nothing_is_free_is_said() -> None:
    full = [(*row[:3], "0", "0") for row in ROWS]
    assert lines(50, full)[0].split() == ["NAME", "RESOURCE", "FREE"]


def test_names_are_folded_after_their_separators() -> None:
    assert lines(40) == [
        "NAME   RESOURCE         FREE",
        "gpu-1  nvidia.com/mig-  3",
        "       1g.5gb",
        "gpu-2  nvidia.com/gpu   39 (15 on a",
        "                        card)",
    ]


@pytest.mark.parametrize("seed", range(50))
def test_no_line_is_wider_and_no_letter_of_a_shown_column_is_lost(seed: int) -> None:
    random = Random(seed)  # noqa: S311
    words = ["a", "pretrain-0", "nvidia.com/gpu", "Ready,SchedulingDisabled", "x" * 40]
    count = random.randint(1, 4)
    header = tuple(f"C{number}" for number in range(count))
    rows = [tuple(" ".join(random.choices(words, k=2)) for _ in header) for _ in range(3)]
    width = random.randint(20 * count, 120)
    shown = render(Table(header, [*rows]), width=width)
    assert max(map(len, shown.splitlines())) <= width
    for row in rows:
        for letter in "prxv":
            assert shown.count(letter) >= "".join(row).count(letter)


def test_a_row_of_doctor_has_its_colour_once() -> None:
    rows = [Row("GPU nodes", "node-1", State.WRONG, "offers no GPU " * 9, "look at it")]
    shown = as_table(rows, color=True, width=60)
    assert shown.count("\x1b[31mwrong\x1b[0m") == 1
    table, _, _ = shown.replace("\x1b[31m", "").replace("\x1b[0m", "").partition("\n\n")
    assert max(map(display_width, table.splitlines())) <= 60


# What is one word, such as a command to copy, may be wider.
ONE_WORD = re.compile(r"^ *\S*$|^  (?:kubectl|gpuward) |^ +-o jsonpath|^paths, with POST")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_as_wide_as_the_terminal(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    parser = command_parser(name)
    assert parser
    for each in (parser, *(made for _, made in subcommands(parser))):
        lines = each.format_help().partition("\n\n")[2].splitlines()
        assert [line for line in lines if len(line) > 80 and not ONE_WORD.match(line)] == []

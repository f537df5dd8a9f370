"""Ceilings for what fixed workloads cost, in instructions, which no busy machine changes.

`make instruction-counts` records the numbers of today: do so where a change is worth its cost.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.testkit.instruction_counts import FILE, VERSION, count_in_process

RECORDED = json.loads(FILE.read_text(encoding="utf-8"))
# Other releases of Python have other instructions.
MOST, LEAST = (1.03, 0.9) if RECORDED["python"] == VERSION else (1.3, 0.5)
REMEDY = "see why, or record it with `make instruction-counts`"


@pytest.fixture(scope="module")
def counts() -> dict[str, int]:
    return count_in_process()


def test_twice_the_work_is_twice_the_instructions() -> None:
    """In a process of its own, as the coverage of the tests traces this one."""
    program = (
        "from tests.testkit.instruction_counts import count\n"
        "for n in (1000, 2000): print(count(lambda: [str(each) for each in range(n)]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    once, twice = map(int, done.stdout.split())
    assert once > 1000
    assert 1.9 < twice / once < 2.1


@pytest.mark.parametrize("workload", RECORDED["counts"])
def test_a_workload_costs_no_more_than_what_is_recorded(
    workload: str, counts: dict[str, int]
) -> None:
    ratio = counts[workload] / RECORDED["counts"][workload]
    assert ratio <= MOST, f"{workload}: {ratio:.3f} times as many instructions: {REMEDY}"


def test_what_has_become_cheaper_is_recorded(counts: dict[str, int]) -> None:
    """Otherwise it could become dearer again, and nothing would notice."""
    cheaper = [name for name, most in RECORDED["counts"].items() if counts[name] < LEAST * most]
    assert not cheaper, REMEDY

"""Each bypass and each claim of docs/proof.md is executed by NVIDIA's container runtime."""

from __future__ import annotations

from typing import Any

import pytest

from tests.testkit.container_runtime.answers import COLUMNS, MODES, Answers, data, reasons, recorded
from tests.testkit.container_runtime.executed import Execution, executions
from tests.testkit.container_runtime.node import Node
from tests.testkit.container_runtime.programs import TOOLKITS
from tests.testkit.coverage.table import bypasses

ALL = executions()
EACH = pytest.mark.parametrize("execution", ALL, ids=[execution.name for execution in ALL])
OF_BYPASSES = [execution for execution in ALL if execution.bypass]


def counted(execution: Execution) -> str:
    """Return what a container gets that gets only what is counted for it."""
    return ", ".join(sorted(execution.asked.counted)) or "none"


@EACH
def test_the_recorded_answers_are_those_of_the_runtime(execution: Execution, node: Node) -> None:
    """If not, `make proof` writes them anew: read the difference, and what the rules say of it."""
    assert recorded()[execution.name] == execution.answers(node)


@pytest.mark.parametrize("execution", OF_BYPASSES, ids=[e.name for e in OF_BYPASSES])
def test_a_bypass_gives_more_than_is_counted(execution: Execution) -> None:
    """In some version and mode; or the data says why it is in the table nevertheless."""
    harmless = {counted(execution), "none", "driver", "does not start"}
    is_harmless = harmless.issuperset(recorded()[execution.name].before)
    assert is_harmless == (execution.name in data()["harmless"])


@pytest.mark.parametrize("execution", OF_BYPASSES, ids=[e.name for e in OF_BYPASSES])
def test_a_fixed_pod_gets_what_is_counted(execution: Execution) -> None:
    """In every version and mode."""
    fixed = execution.fixed
    assert fixed is None or set(recorded()[execution.name].after) == {counted(execution)}


@pytest.mark.parametrize("claim", data()["claims"], ids=lambda claim: str(claim["name"]))
def test_a_claim_is_true(claim: Any) -> None:
    gets = claim["gets"]
    if isinstance(gets, str):
        gets = dict.fromkeys(MODES, gets)
    expected = [gets.get(f"{mode} {version}", gets[mode]) for version, mode in COLUMNS]
    assert recorded()[claim["name"]] == Answers(tuple(expected))
    assert {key.partition(" ")[0] for key in gets} == set(MODES)
    assert {key.partition(" ")[2] for key in gets} <= {"", *TOOLKITS}


def test_every_bypass_is_executed_or_says_why_not() -> None:
    executed = {*data()["bypasses"], *data()["only_on_a_node"]}
    unexecuted = set(reasons())
    assert executed & unexecuted == set()
    assert executed | unexecuted == {bypass.name for bypass in bypasses()}


def test_nothing_else_is_recorded() -> None:
    assert list(recorded()) == [execution.name for execution in ALL]

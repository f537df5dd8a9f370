"""The tables of docs/proof.md, from what NVIDIA's container runtime has answered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.testkit.container_runtime.answers import (
    COLUMNS,
    data,
    not_on_a_node,
    on_a_node,
    recorded,
)
from tests.testkit.container_runtime.executed import Execution, executions
from tests.testkit.container_runtime.programs import release
from tests.testkit.coverage.table import bypasses
from tests.testkit.paths import DOCS

PAGE = DOCS / "proof.md"
BEGIN, END = "<!-- tables from tests/data/executed_answers.yaml -->", "<!-- end of the tables -->"


def page(file: Path = PAGE) -> str:
    """The page with its tables written anew."""
    before, _, rest = file.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n{''.join(_tables())}\n{END}{after}"


def _tables() -> Iterator[str]:
    versions = [f"{release(version)} {mode}" for version, mode in COLUMNS]
    all_executions = executions()
    yield "\n## Claims\n\n"
    yield from _head("claim", *versions)
    for execution in all_executions:
        if not execution.bypass:
            yield _row(_says(execution), *recorded()[execution.name].before)
    yield "\n## Bypasses\n\n"
    yield from _head("bypass", *versions, "gpuward", "then")
    for execution in all_executions:
        if execution.bypass:
            answers = recorded()[execution.name]
            ours = _gpuward(execution.bypass.cell("pods"), answers.after)
            yield _row(_says(execution), *answers.before, *ours)
    yield "\n## Pods on a node\n\n"
    yield from _head("bypass", "without gpuward", "in mode `deny`")
    for bypass in bypasses():
        if outcome := on_a_node().get(bypass.name):
            yield _row(bypass.entry["description"], *outcome)
    yield "\n## What is not proven\n\n"
    yield from _head("bypasses", "why they are not executed")
    for entry in data()["unexecuted"].values():
        yield _row(str(len(entry["bypasses"].split())), entry["why"])
    for why, count in Counter(not_on_a_node().values()).items():
        yield _row(str(count), f"started by the runtime alone, not as a pod on a node: {why}")


def _says(execution: Execution) -> str:
    settings = execution.entry.get("node")
    return f"{execution.says} (*{settings}*)" if settings else execution.says


def _gpuward(outcome: str, after: tuple[str, ...]) -> tuple[str, str]:
    """Return what gpuward does to the Pod in mode `deny`, and what the container gets then."""
    if after and outcome != "fixed":
        outcome = f"{outcome}; fixed with the strict policy"
    return outcome, ", ".join(dict.fromkeys(after))


def _head(*titles: str) -> Iterator[str]:
    yield _row(*titles)
    yield _row(*(["---"] * len(titles)))


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"

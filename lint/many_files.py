"""Evaluate more than a few inputs: in several processes, with a progress bar on a terminal."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from importlib import import_module

from lint.linter import Linter
from lint.progress import Progress
from lint.sources import Input

_MAX_JOBS = 8  # unless the user asks for more: each takes memory, and CI shares its machines


def evaluate(linter: Linter, inputs: Sequence[Input], jobs: int | None) -> None:
    """Evaluate `inputs` in `jobs` processes, and add the results to `linter` in their order.

    Without `jobs` there is one process for each processor that this one may use.
    """
    jobs = jobs or min(_processors(), _MAX_JOBS)
    processes = import_module("lint.processes") if jobs > 1 else None
    if processes and processes.can_fork():
        steps: Iterator[int] = processes.evaluate(linter, inputs, jobs)
    else:
        steps = _one_by_one(linter, inputs)
    with Progress(len(inputs)) as progress:
        for step in steps:
            progress.advance(step)


def _one_by_one(linter: Linter, inputs: Sequence[Input]) -> Iterator[int]:
    for item in inputs:
        linter.evaluate((item,))
        yield 1


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

"""Evaluate many or large inputs: in parts and processes, with a progress bar on a terminal."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from itertools import chain, islice

from lint.linter import Linter
from lint.progress import Progress
from sources.large_files import in_parts
from sources.sources import Input, Source

_BATCH = 32  # inputs
_MAX_LENGTH = 1 << 20  # characters
_BATCHES_HERE = 4  # take about as long as other processes take to start
_MAX_JOBS = 8  # unless the user asks for more: each takes memory, and CI shares its machines


def evaluate(linter: Linter, inputs: Sequence[Input], jobs: int | None) -> None:
    """Evaluate `inputs` in `jobs` processes, and add the results to `linter` in their order.

    Without `jobs` there is one process for each processor that this one may use. The first inputs
    are evaluated in this process, so that few of them need no other.
    """
    with Progress(len(inputs)) as progress:
        batches = _batches(in_parts(progress.count(inputs)))
        for batch in islice(batches, _BATCHES_HERE):
            linter.evaluate(batch)
            progress.show()
        if (following := next(batches, None)) is None:
            return
        for _ in _evaluations(linter, chain((following,), batches), jobs):
            progress.show()


def _evaluations(
    linter: Linter, batches: Iterable[Sequence[Input]], jobs: int | None
) -> Iterator[None]:
    jobs = jobs or min(_processors(), _MAX_JOBS)
    processes = import_module("lint.processes") if jobs > 1 else None
    if processes and processes.can_fork():
        yield from processes.evaluate(linter, batches, jobs)
        return
    for batch in batches:
        linter.evaluate(batch)
        yield


def _batches(inputs: Iterable[Input]) -> Iterator[list[Input]]:
    """Inputs that one process evaluates at once: few enough that all processes end together."""
    batch: list[Input] = []
    length = 0
    for item in inputs:
        batch.append(item)
        length += len(item.text) if isinstance(item, Source) else 0
        if len(batch) == _BATCH or length > _MAX_LENGTH:
            yield batch
            batch, length = [], 0
    if batch:
        yield batch


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

"""Evaluate many files in several processes: the option `--jobs`.

The results are those of one process, in the same order.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait

from lint.linter import Linter, Partial
from reports.results import InputNotEvaluated
from sources.sources import Input

_WAITING = 3  # batches for each process, whose results may wait for those of an earlier one
_ENDED = "a process of gpuward ended here, perhaps for want of memory; try --jobs 1"

_Work = tuple[Sequence[Input], "Future[Partial]"]
_linter: Linter


def can_fork() -> bool:
    """Whether processes can be made here with all that is loaded already."""
    return "fork" in multiprocessing.get_all_start_methods()


def evaluate(linter: Linter, batches: Iterable[Sequence[Input]], jobs: int) -> Iterator[None]:
    """Evaluate `batches` with `jobs` copies of `linter`, and add the results to it.

    Yields after each batch. If a process ends, the inputs that it may have had are reported as not
    evaluated.
    """
    context = multiprocessing.get_context("fork")
    pool = ProcessPoolExecutor(jobs, context, initializer=_begin, initargs=(linter,))
    waiting: deque[_Work] = deque()
    try:
        for batch in batches:
            waiting.append((batch, _submit(pool, batch)))
            if len(waiting) > jobs * _WAITING:
                _collect(linter, *waiting.popleft())
                yield
        while waiting:
            _collect(linter, *waiting.popleft())
            yield
    finally:
        pool.shutdown(cancel_futures=True)


def _submit(pool: ProcessPoolExecutor, batch: Sequence[Input]) -> Future[Partial]:
    try:
        return pool.submit(_evaluate, batch)
    except BrokenProcessPool as error:
        failed: Future[Partial] = Future()
        failed.set_exception(error)
        return failed


def _collect(linter: Linter, batch: Sequence[Input], future: Future[Partial]) -> None:
    try:
        linter.add(future.result())
    except BrokenProcessPool:
        for item in batch:
            linter.results.not_evaluated.append(InputNotEvaluated(item.name, 0, 0, _ENDED))


def _begin(linter: Linter) -> None:
    """In a new process: take the linter over, and end with the process that has begun this one."""
    global _linter  # noqa: PLW0603  # a process of the pool has no other place for it
    _linter = linter
    linter.take()  # the first process has these results
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the first process
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent:
        wait([parent.sentinel])
        os._exit(1)


def _evaluate(batch: Sequence[Input]) -> Partial:
    _linter.evaluate(batch)
    return _linter.take()

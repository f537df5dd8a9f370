"""Evaluate many or large inputs: in parts and processes, with a progress bar on a terminal."""

from __future__ import annotations

import copyreg
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice
from multiprocessing.connection import wait
from types import MappingProxyType
from typing import Any, Self, TypeVar

from lint.linter import Linter, PartialResults
from reports.results import InputNotEvaluated
from sources.large_files import split_large_inputs
from sources.sources import Input, Source

# Evaluate many files in several processes: the option `--jobs`.
#
# The results are those of one process, in the same order.

_MAX_WAITING_BATCHES = (
    3  # batches for each process, whose results may wait for those of an earlier one
)
_PROCESS_ENDED_REASON = "a process of gpuward ended here, perhaps for want of memory; try --jobs 1"

_SubmittedBatch = tuple[Sequence[Input], "Future[PartialResults]"]
_linter: Linter


def start_method() -> str:
    """Return how to make processes.

    Where it is safe, they are copies of this process, with all that is loaded. On macOS, libraries
    of the system may not survive that. Windows cannot do it.
    """
    return "fork" if os.name == "posix" and sys.platform != "darwin" else "spawn"


def _read_only(mapping: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(mapping)


# A process that is no copy gets the policy pickled.
copyreg.pickle(MappingProxyType, lambda mapping: (_read_only, (dict(mapping),)))


def evaluate_in_processes(
    linter: Linter, batches: Iterable[Sequence[Input]], jobs: int
) -> Iterator[None]:
    """Evaluate `batches` with `jobs` copies of `linter`, and add the results to it.

    Yields after each batch. If a process ends, the inputs that it may have had are reported as not
    evaluated.
    """
    context = multiprocessing.get_context(start_method())
    pool = ProcessPoolExecutor(jobs, context, initializer=_start_worker, initargs=(linter,))
    waiting: deque[_SubmittedBatch] = deque()
    try:
        for batch in batches:
            waiting.append((batch, _submit(pool, batch)))
            if len(waiting) > jobs * _MAX_WAITING_BATCHES:
                _collect(linter, *waiting.popleft())
                yield
        while waiting:
            _collect(linter, *waiting.popleft())
            yield
    finally:
        pool.shutdown(cancel_futures=True)


def _submit(pool: ProcessPoolExecutor, batch: Sequence[Input]) -> Future[PartialResults]:
    try:
        return pool.submit(_evaluate, batch)
    except BrokenProcessPool as error:
        failed: Future[PartialResults] = Future()
        failed.set_exception(error)
        return failed


def _collect(linter: Linter, batch: Sequence[Input], future: Future[PartialResults]) -> None:
    try:
        linter.add_results(future.result())
    except BrokenProcessPool:
        for item in batch:
            linter.results.not_evaluated.append(
                InputNotEvaluated(item.name, 0, 0, _PROCESS_ENDED_REASON)
            )


def _start_worker(linter: Linter) -> None:
    """In a new process: take the linter over, and end with the process that has begun this one."""
    global _linter  # noqa: PLW0603  # a process of the pool has no other place for it
    _linter = linter
    linter.take_results()  # the first process has these results
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the first process
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent:
        wait([parent.sentinel])
        os._exit(1)


def _evaluate(batch: Sequence[Input]) -> PartialResults:
    _linter.evaluate(batch)
    return _linter.take_results()


T = TypeVar("T")

_DELAY_SECONDS = 1.0  # seconds before the bar is shown
_INTERVAL_SECONDS = 0.1
_BAR_WIDTH = 30
_ERASE_LINE = "\r\x1b[K"


class Progress:
    """A bar on standard error, if that is a terminal and the run takes more than a second.

    Without a `total` there is no bar, only how many are done. `what` they are is in the plural.
    """

    def __init__(self, total: int | None, what: str = "files") -> None:
        self._total = total
        self._what = what
        self._done = 0
        self._is_shown = False
        self._next = time.monotonic() + _DELAY_SECONDS
        self._is_on = (
            sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_shown:
            self._write(_ERASE_LINE)

    def counted(self, inputs: Iterable[T]) -> Iterator[T]:
        """`inputs`, each counted as done when the next one is asked for."""
        for item in inputs:
            yield item
            self._done += 1

    def show(self) -> None:
        """Show how many are done, if it is time to."""
        if not self._is_on or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _INTERVAL_SECONDS
        self._is_shown = True
        done = f"{self._done:,}"
        if self._total is not None:
            full = _BAR_WIDTH * self._done // self._total
            bar = "#" * full + "." * (_BAR_WIDTH - full)
            done = f"[{bar}] {done} of {self._total:,}"
        self._write(f"{_ERASE_LINE}gpuward: {done} {self._what}")

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


_BATCH_SIZE = 32  # inputs
_MAX_BATCH_CHARACTERS = 1 << 20  # characters
_BATCHES_IN_THIS_PROCESS = 4  # take about as long as other processes take to start
_MAX_JOBS = 61  # of which Windows can wait for the end
_DEFAULT_MAX_JOBS = (
    8  # unless the user asks for more: each takes memory, and CI shares its machines
)


def evaluate_many(linter: Linter, inputs: Sequence[Input], jobs: int | None) -> None:
    """Evaluate `inputs` in `jobs` processes, and add the results to `linter` in their order.

    Without `jobs` there is one process for each processor that this one may use. The first inputs
    are evaluated in this process, so that few of them need no other.
    """
    with Progress(len(inputs)) as progress:
        batches = _batches(split_large_inputs(progress.counted(inputs)))
        for batch in islice(batches, _BATCHES_IN_THIS_PROCESS):
            linter.evaluate(batch)
            progress.show()
        if (following := next(batches, None)) is None:
            return
        for _ in _evaluate_batches(linter, chain((following,), batches), jobs):
            progress.show()


def _evaluate_batches(
    linter: Linter, batches: Iterable[Sequence[Input]], jobs: int | None
) -> Iterator[None]:
    jobs = min(jobs or min(_processor_count(), _DEFAULT_MAX_JOBS), _MAX_JOBS)
    if jobs > 1:
        yield from evaluate_in_processes(linter, batches, jobs)
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
        if len(batch) == _BATCH_SIZE or length > _MAX_BATCH_CHARACTERS:
            yield batch
            batch, length = [], 0
    if batch:
        yield batch


def _processor_count() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

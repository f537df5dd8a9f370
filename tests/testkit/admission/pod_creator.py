"""Somebody who makes pods without a pause, and minds every one that is refused."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from tests.testkit.admission.enforcement import HOLDER
from tests.testkit.admission.registered_webhook import create
from tests.testkit.control_plane.client import Answer
from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.control_plane.processes import eventually
from tests.testkit.end_to_end.steps import fixed_by


class PodMaker:
    """Until the block is left, makes pods that ask for a GPU, as a dry run.

    Left without an error of its own, the block fails if a pod was refused.
    """

    def __init__(self, plane: Cluster, namespace: str) -> None:
        self._plane = plane
        self._namespace = namespace
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._make, name="pod-maker")
        self._failure: OSError | None = None
        self._refused: list[Answer] = []
        #: How many were let pass, fixed or as they were
        self.fixed = self.not_evaluated = 0

    def goes_on(self, count: int = 25) -> None:
        """Wait until so many more pods were made."""
        wanted = self.made + count
        eventually(lambda: self._failure or self.made >= wanted, what=f"{count} pods are made")

    @property
    def made(self) -> int:
        """How many were asked for and answered."""
        return self.fixed + self.not_evaluated + len(self._refused)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        if error is None:
            assert self._failure is None
            assert self._refused == []

    def _make(self) -> None:
        try:
            while not self._stop.is_set():
                self._note(create(self._plane, self._namespace, HOLDER, dry_run=True))
        except OSError as error:
            self._failure = error

    def _note(self, answer: Answer) -> None:
        if answer.status != 201:
            self._refused.append(answer)
        elif fixed_by(answer.body):
            self.fixed += 1
        else:
            self.not_evaluated += 1

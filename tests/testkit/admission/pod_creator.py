"""Creates pods without a pause and records every refusal."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from tests.testkit.admission.enforcement import GPU_POD
from tests.testkit.admission.registered_webhook import create
from tests.testkit.control_plane.client import Response
from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.control_plane.processes import eventually
from tests.testkit.end_to_end.steps import fixing_rules


class PodCreator:
    """Creates pods that request a GPU, as a dry run, until the end of the block.

    The end of the block raises an AssertionError if a pod was refused, unless the block itself
    raised.
    """

    def __init__(self, plane: Cluster, namespace: str) -> None:
        self._plane = plane
        self._namespace = namespace
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._create_pods, name="pod-creator")
        self._failure: OSError | None = None
        self._refused: list[Response] = []
        #: How many pods were admitted fixed, and how many unchanged
        self.fixed = self.not_evaluated = 0

    def wait_for_pods(self, count: int = 25) -> None:
        """Wait until `count` more pods were created."""
        goal = self.created + count
        eventually(lambda: self._failure or self.created >= goal, what=f"{count} pods are created")

    @property
    def created(self) -> int:
        """How many requests were answered."""
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

    def _create_pods(self) -> None:
        try:
            while not self._stop.is_set():
                self._record(create(self._plane, self._namespace, GPU_POD, dry_run=True))
        except OSError as error:
            self._failure = error

    def _record(self, answer: Response) -> None:
        if answer.status != 201:
            self._refused.append(answer)
        elif fixing_rules(answer.body):
            self.fixed += 1
        else:
            self.not_evaluated += 1

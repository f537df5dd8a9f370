"""Creates pods that gpuward must refuse, and measures for how long one is admitted instead."""

from __future__ import annotations

import time

from tests.testkit.admission.enforcement import BYPASS_POD
from tests.testkit.admission.registered_webhook import REFUSED, create
from tests.testkit.background import BackgroundThread
from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.control_plane.processes import eventually

PAUSE = 0.25


class BadPods(BackgroundThread):
    """Creates a bad pod four times a second, as a dry run, until the end of the block.

    `unguarded_seconds` is for how long they were admitted in all: from the last one that was
    refused before to the first one that is refused after.
    """

    def __init__(self, plane: Cluster, namespace: str) -> None:
        super().__init__("bad-pods")
        self._plane = plane
        self._namespace = namespace
        self._failure: Exception | None = None
        self._refused_at: float | None = None
        self._is_open = False
        self.unguarded_seconds = 0.0
        self.refused = self.admitted = 0

    def wait_for_pods(self, count: int = 3) -> None:
        """Wait until `count` more pods were refused."""
        goal = self.refused + count
        eventually(lambda: self._failure or self.refused >= goal, what=f"{count} pods are refused")
        self.check()

    def check(self) -> None:
        """Fail if a pod could not be sent, or was refused by another webhook or the API server."""
        if self._failure:
            raise AssertionError("a bad pod got no answer") from self._failure

    def run(self) -> None:
        """Create pods, one after the other."""
        try:
            while not self.stopping.wait(PAUSE):
                self._create()
        except (AssertionError, OSError) as failure:
            self._failure = failure

    def _create(self) -> None:
        answer = create(self._plane, self._namespace, BYPASS_POD, dry_run=True)
        now = time.monotonic()
        if answer.status == REFUSED:
            assert "gpuward [visible-devices-env]" in answer.body["message"], answer
            self.refused += 1
            if self._is_open and self._refused_at is not None:
                self.unguarded_seconds += now - self._refused_at
            self._refused_at, self._is_open = now, False
        else:
            assert answer.status == 201, answer
            self.admitted += 1
            self._is_open = True

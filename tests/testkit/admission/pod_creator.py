"""Creates pods without a pause and records every refusal."""

from __future__ import annotations

from tests.testkit.admission.enforcement import GPU_POD
from tests.testkit.admission.registered_webhook import create
from tests.testkit.background import BackgroundThread
from tests.testkit.control_plane.client import Response
from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.control_plane.processes import eventually
from tests.testkit.end_to_end.steps import fixing_rules


class PodCreator(BackgroundThread):
    """Creates pods that request a GPU, as a dry run, until the end of the block.

    The end of the block raises an AssertionError if a pod was refused, unless the block itself
    raised.
    """

    def __init__(self, plane: Cluster, namespace: str) -> None:
        super().__init__("pod-creator")
        self._plane = plane
        self._namespace = namespace
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
        """Return how many requests were answered."""
        return self.fixed + self.not_evaluated + len(self._refused)

    def check(self) -> None:
        """Fail if a pod was refused."""
        assert self._failure is None
        assert self._refused == []

    def run(self) -> None:
        """Create pods without a pause."""
        try:
            while not self.stopping.is_set():
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

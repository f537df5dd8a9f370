"""Load on the API server, and what it counts of the calls that it makes of us."""

from __future__ import annotations

import itertools
import logging
import threading
from collections import Counter
from types import TracebackType
from typing import NamedTuple, Self

from tests.testkit.admission.registered_webhook import REFUSED, create
from tests.testkit.admission.reviews import container, gpus, pod, variable
from tests.testkit.control_plane.client import Answer
from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.control_plane.processes import eventually

CREATED = 201
THREADS = 8
# Each takes one of our webhooks: the first is given a toleration, the second is refused.
MENDED = pod(container(**gpus(limits=1)))
REFUSED_POD = pod(container(**variable("all")))
#: What was seen, for `--log-cli-level=info`
LOG = logging.getLogger("faults")
_OURS = ("pods.deny.gpuward.io", "deny.gpuward.io")


class Counts(NamedTuple):
    """What the API server has counted of its calls of our webhooks."""

    #: Calls, answered or not
    calls: float
    #: Objects refused because a call failed (failurePolicy Fail)
    failed: float
    #: Objects admitted although a call failed (failurePolicy Ignore)
    opened: float

    def since(self, before: Counts) -> Counts:
        """What has been counted since then."""
        return Counts(*(now - then for now, then in zip(self, before, strict=True)))


def counts(plane: Cluster) -> Counts:
    """The API server's own count so far; the parser gives every counter's name one ending."""
    metrics = plane.metrics()

    def total(name: str, *, broken: bool = False) -> float:
        samples = metrics.get(f"apiserver_admission_webhook_{name}_total", [])
        ours = [(labels, value) for labels, value in samples if labels["name"] in _OURS]
        return sum(v for labels, v in ours if not broken or labels["error_type"] != "no_error")

    failed = total("rejection_count", broken=True)
    return Counts(total("request"), failed, total("fail_open_count"))


class Load:
    """Threads that create pods, as a dry run, in `namespaces` in turn until the block is left.

    Every answer is compared with what it must be: half the pods must come back mended, and
    half must be refused by us.
    """

    def __init__(self, plane: Cluster, *namespaces: str, threads: int = THREADS) -> None:
        self._plane = plane
        self.threads = threads
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._asked = itertools.cycle(itertools.product(namespaces, (MENDED, REFUSED_POD)))
        self._threads = [threading.Thread(target=self._run) for _ in range(threads)]
        self._sent = 0
        self._waiting: set[int] = set()
        #: How many answers there were, good or bad
        self.answered = 0
        #: What was refused because we could not be called: namespace and message
        self.failures: Counter[tuple[str, str]] = Counter()
        #: What was admitted unjudged, by namespace
        self.not_evaluated: Counter[str] = Counter()

    def go_on(self, requests: int = 300) -> None:
        """Wait until so many more requests have been sent and answered."""
        with self._lock:
            first = self._sent
            goal = self.answered + requests
        # What is on its way is no answer to what has just happened.
        eventually(
            lambda: min(self._waiting, default=first) >= first and self.answered >= goal,
            seconds=300,
            what=f"{requests} answers",
        )

    @property
    def lost(self) -> tuple[int, int]:
        """How many pods were refused unjudged, and how many admitted."""
        return self.failures.total(), self.not_evaluated.total()

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        LOG.info("%d pods, %s, %s", self.answered, self.failures, self.not_evaluated)

    def _run(self) -> None:
        while not self._stopping.is_set():
            with self._lock:
                namespace, sent = next(self._asked)
                number = self._sent
                self._sent += 1
                self._waiting = {*self._waiting, number}
            try:
                answer = create(self._plane, namespace, sent, dry_run=True)
            except OSError as error:
                answer = Answer(0, f"no answer: {error!r}", [])
            with self._lock:
                self._waiting = self._waiting - {number}
                self._note(namespace, answer, mended=sent is MENDED)

    def _note(self, namespace: str, answer: Answer, *, mended: bool) -> None:
        self.answered += 1
        if answer.status == CREATED:
            if not (mended and is_mended(answer)):
                self.not_evaluated[namespace] += 1
        elif mended or not is_refused(answer):
            self.failures[namespace, _message(answer)] += 1


def _message(answer: Answer) -> str:
    return str(answer.body["message"] if isinstance(answer.body, dict) else answer.body)


def is_mended(answer: Answer) -> bool:
    """Whether the pod that was created carries our mark."""
    return "gpuward.io/fixed" in answer.body["metadata"].get("annotations", {})


def is_refused(answer: Answer) -> bool:
    """Whether it was we who refused the pod."""
    return answer.status == REFUSED and "denied the request: gpuward" in answer.body["message"]


def assert_nothing_lost(load: Load, counted: Counts) -> None:
    """Every pod was judged, and the API server says so too."""
    LOG.info("%s", counted)
    assert load.lost == (0, 0), (load.failures, load.not_evaluated)
    assert counted.calls >= load.answered
    assert counted.failed == 0
    assert counted.opened == 0

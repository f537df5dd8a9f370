"""Load on the API server, and its metrics about its requests to the webhook."""

from __future__ import annotations

import itertools
import logging
import threading
from collections import Counter
from types import TracebackType
from typing import NamedTuple, Self

from tests.testkit.admission.registered_webhook import REFUSED, create
from tests.testkit.admission.reviews import container, gpus, pod, variable
from tests.testkit.control_plane.client import Response
from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.control_plane.processes import eventually

CREATED = 201
THREADS = 8
# The mutating webhook adds a toleration to the first; the validating one refuses the second.
FIXABLE_POD = pod(container(**gpus(limits=1)))
REFUSED_POD = pod(container(**variable("all")))
#: Results, for `--log-cli-level=info`
LOG = logging.getLogger("faults")
_WEBHOOKS = ("pods.deny.gpuward.io", "deny.gpuward.io")


class Counts(NamedTuple):
    """The counts of the API server about its requests to gpuward's webhooks."""

    #: Requests, answered or not
    calls: float
    #: Objects refused because a request failed (failurePolicy Fail)
    failed: float
    #: Objects admitted although a request failed (failurePolicy Ignore)
    failed_open: float

    def since(self, before: Counts) -> Counts:
        """Return what the API server has counted since `before`."""
        return Counts(*(end - start for end, start in zip(self, before, strict=True)))


def counts(plane: Cluster) -> Counts:
    """The API server's counts so far. The parser adds `_total` to the name of each counter."""
    metrics = plane.metrics("apiserver_admission_webhook_")

    def total(name: str, *, broken: bool = False) -> float:
        samples = metrics.get(f"apiserver_admission_webhook_{name}_total", [])
        samples_of_gpuward = [
            (labels, value) for labels, value in samples if labels["name"] in _WEBHOOKS
        ]
        return sum(
            v
            for labels, v in samples_of_gpuward
            if not broken or labels["error_type"] != "no_error"
        )

    failed = total("rejection_count", broken=True)
    return Counts(total("request"), failed, total("fail_open_count"))


class Load:
    """Threads that create pods as a dry run, in `namespaces` in turn, until the block ends.

    Every answer is checked: gpuward must fix half of the pods and refuse the other half.
    """

    def __init__(self, plane: Cluster, *namespaces: str, threads: int = THREADS) -> None:
        self._plane = plane
        self.threads = threads
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._requests = itertools.cycle(itertools.product(namespaces, (FIXABLE_POD, REFUSED_POD)))
        self._threads = [threading.Thread(target=self._run) for _ in range(threads)]
        self._sent = 0
        self._pending: set[int] = set()
        #: How many answers there were, right or wrong
        self.answered = 0
        #: Wrong refusals, by namespace and message: the webhook could not be called
        self.failures: Counter[tuple[str, str]] = Counter()
        #: Pods admitted without being evaluated, by namespace
        self.not_evaluated: Counter[str] = Counter()

    def wait_for_answers(self, requests: int = 300) -> None:
        """Wait until `requests` more requests have been sent and answered."""
        with self._lock:
            first = self._sent
            goal = self.answered + requests
        # Requests sent before now do not count: they say nothing about what has just changed.
        eventually(
            lambda: min(self._pending, default=first) >= first and self.answered >= goal,
            seconds=300,
            what=f"{requests} answers",
        )

    @property
    def lost(self) -> tuple[int, int]:
        """Return how many pods were refused, and how many admitted, without being evaluated."""
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
                namespace, manifest = next(self._requests)
                number = self._sent
                self._sent += 1
                self._pending = {*self._pending, number}
            try:
                answer = create(self._plane, namespace, manifest, dry_run=True)
            except OSError as error:
                answer = Response(0, f"no answer: {error!r}", [])
            with self._lock:
                self._pending = self._pending - {number}
                self._record(namespace, answer, fixable=manifest is FIXABLE_POD)

    def _record(self, namespace: str, answer: Response, *, fixable: bool) -> None:
        self.answered += 1
        if answer.status == CREATED:
            if not (fixable and is_fixed(answer)):
                self.not_evaluated[namespace] += 1
        elif fixable or not is_refused(answer):
            self.failures[namespace, _message(answer)] += 1


def _message(answer: Response) -> str:
    return str(answer.body["message"] if isinstance(answer.body, dict) else answer.body)


def is_fixed(answer: Response) -> bool:
    """Return whether the created pod carries gpuward's annotation."""
    return "gpuward.io/fixed" in answer.body["metadata"].get("annotations", {})


def is_refused(answer: Response) -> bool:
    """Return whether gpuward refused the pod."""
    return answer.status == REFUSED and "denied the request: gpuward" in answer.body["message"]


def assert_nothing_lost(load: Load, counted: Counts) -> None:
    """Every pod was evaluated, and the API server's metrics agree."""
    LOG.info("%s", counted)
    assert load.lost == (0, 0), (load.failures, load.not_evaluated)
    assert counted.calls >= load.answered
    assert counted.failed == 0
    assert counted.failed_open == 0

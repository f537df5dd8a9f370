"""Keep decisions about new pods, for as long as the policy and the day are the same.

A decision is made from nothing but the text under which it is kept, so it is right for every pod
with that text. Everything else is decided without the cache: updates, other kinds, and pods that
do not have the usual types.
"""

from __future__ import annotations

import datetime

from rules.engine.bounds import LARGE_OBJECT_BYTES, StepLimit, TooManyStepsError
from webhook.admission.answer import Answer, ReusableAnswer, reusable_answer
from webhook.admission.decider import Decider
from webhook.admission.decision import Decision
from webhook.admission.review import CODEC
from webhook.decision_cache.deciding_texts import IMAGE_PLACEHOLDER, TOKEN_PLACEHOLDER, BoundedMap
from webhook.decision_cache.review_reader import PodReview, ReviewReader, review_of
from webhook.registration import ROUTES

# Of all texts and answers together. What the reader keeps, to decode less, gets half.
MAX_CACHE_BYTES = 16 << 20
# A text that is cut may end within a placeholder.
_PLACEHOLDER_STARTS = tuple(
    text.partition("?")[0].encode() + b"?" for text in (TOKEN_PLACEHOLDER, IMAGE_PLACEHOLDER)
)
# What the Python objects of an entry take besides its texts.
_ENTRY_BYTES = 2_000


class DecisionCache:
    """Answers reviews of new pods, by kept decisions where it can. For use by one thread.

    It decides only about pods of at most `max_objects` JSON objects, in `max_steps` steps.
    """

    def __init__(self, max_objects: int, max_steps: int, max_bytes: int = MAX_CACHE_BYTES) -> None:
        self._max_objects = max_objects
        self._max_steps = max_steps
        self._max_bytes = max_bytes
        self._decider: Decider | None = None
        self._today = datetime.date.min
        self.hits = self.misses = 0
        """How many reviews were answered by a kept decision, and how many by a new one."""

    @property
    def kept_bytes(self) -> int:
        """How many bytes the decisions take."""
        return self._answers.kept_bytes + self._reader.kept_bytes if self._decider else 0

    def answer(
        self, decider: Decider, today: datetime.date, path: str, body: bytes
    ) -> Answer | None:
        """The answer to the review in `body`, sent to `path`; None if it is for the long way.

        TooManyStepsError; MemoryError.
        """
        if decider is not self._decider or today != self._today:
            self._clear_for(decider, today)
        if len(body) > LARGE_OBJECT_BYTES:
            return None  # the long way compares it with the bounds
        reading = self._reader.read(path, body)
        if reading is None:
            return None
        kept = self._answers.get((reading.head, reading.spec))
        if kept is not None:
            self.hits += 1
            return kept.for_envelope(reading.envelope)
        return self._decide(decider, path, reading)

    def _clear_for(self, decider: Decider, today: datetime.date) -> None:
        half = self._max_bytes // 2
        self._reader = ReviewReader(decider, half)
        self._answers: BoundedMap[tuple[bytes, bytes], ReusableAnswer] = BoundedMap(half)
        self._decider, self._today = decider, today

    def _decide(self, decider: Decider, path: str, reading: PodReview) -> Answer | None:
        head, spec, envelope = reading
        if head.count(b"{") + spec.count(b"{") > self._max_objects:
            return None
        route = ROUTES[path]
        decide = decider.mutate if route.webhook == "mutate" else decider.validate
        steps = StepLimit(self._max_steps)
        try:
            decision = decide(review_of(reading), route.mode, self._today, steps)
        except (TooManyStepsError, MemoryError):
            raise
        except Exception:  # noqa: BLE001  # the long way meets the same bug, and reports it
            return None
        found = reusable_answer(route, decision)
        answer = found.for_envelope(envelope)
        if _names_a_placeholder(decision, answer):
            return None
        self.misses += 1
        if not decision.failures:
            # A refusal keeps its message and causes both encoded and not.
            texts = len(head) + len(spec)
            size = texts + 2 * len(answer.body) + len(found.details) + _ENTRY_BYTES
            self._answers.put((head, spec), found, size)
        return answer


def _names_a_placeholder(decision: Decision, answer: Answer) -> bool:
    """Whether the answer, a patch or the log would name what stands for a name in the pod."""
    patch = CODEC.dumps(list(decision.operations)) if decision.operations else b""
    texts = (patch, answer.body, answer.details.encode())
    return any(placeholder in text for text in texts for placeholder in _PLACEHOLDER_STARTS)

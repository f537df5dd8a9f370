"""The decoder of reviews and the webhook: a body is malformed for a reason, or is answered."""

from __future__ import annotations

import json
import math
from typing import Any

from policies.loading import load_policy
from rules.finding import Action
from tests.fuzzing.mutation import mutate_json
from tests.testkit.cases import TODAY
from webhook.admission.answer import Answer, answer
from webhook.admission.decider import Decider
from webhook.admission.review import (
    CODEC,
    STANDARD_CODEC,
    AdmissionReview,
    MalformedReviewError,
    TooDeepError,
    decode,
    decode_fast,
    decode_head,
)
from webhook.registration import ROUTES
from webhook.replica_cache import ReplicaCache

mutate = mutate_json
_DECIDER = Decider(
    load_policy(
        "apiVersion: gpuward.io/v1\nkind: Policy\nprofiles: [nvidia, dra, amd, volcano]\n", "policy"
    )
)
_PATHS = ("/mutate/deny", "/validate/deny", "/validate/warn")


def check(data: bytes) -> None:
    """Decode `data` in each way, and answer it on each path."""
    review = _decoded(data)
    if review is None:
        return
    assert review.uid
    assert review.api_version
    assert review.size_bytes == len(data)
    _check_codecs(data, review)
    _check_head(data, review)
    for path in _PATHS:
        _check_answer(answer(_DECIDER, ROUTES[path], data, TODAY), review, path)
        _check_cache(path, data)


def _decoded(data: bytes) -> AdmissionReview | None:
    try:
        return decode(data)
    except MalformedReviewError as error:
        assert str(error)
        assert str(error).isascii(), "the message quotes the body"
        try:
            decode_fast(data)
        except (MalformedReviewError, TooDeepError):
            assert decode_head(data) is None or b'"object"' in data
            return None
        raise AssertionError("only the fast decoder reads it") from error


def _check_codecs(data: bytes, review: AdmissionReview) -> None:
    """All decoders give the same review, as long as no number is beyond those of API servers."""
    others = [decode(data, STANDARD_CODEC)]
    try:
        others += [decode_fast(data, CODEC), decode_fast(data, STANDARD_CODEC)]
    except TooDeepError:
        return
    if not _has_odd_number((review.object, review.old)):
        for other in others:
            assert other == review


def _has_odd_number(value: Any) -> bool:
    waiting = [value]
    for node in waiting:
        if isinstance(node, dict):
            waiting += node.values()
        elif isinstance(node, list | tuple):
            waiting += node
        elif isinstance(node, float | int) and (math.isinf(node) or abs(node) >= 2**63):
            return True
    return False


def _check_head(data: bytes, review: AdmissionReview) -> None:
    """A review as API servers write it, the objects last, has the same head without them."""
    try:
        raw = json.loads(data)
    except (ValueError, RecursionError):
        return  # only the slow decoder reads it
    request = raw["request"]
    objects = {key: request.pop(key, None) for key in ("object", "oldObject")}
    raw = {**{key: raw[key] for key in ("kind", "apiVersion")}, "request": {**request, **objects}}
    head = decode_head(json.dumps(raw).encode())
    if head is not None:
        assert head.object is None
        assert head._replace(object=review.object, old=review.old, size_bytes=len(data)) == review


def _check_answer(found: Answer, review: AdmissionReview, path: str) -> None:
    assert found.bug is None, found.bug
    assert not found.failures, found.failures
    sent = json.loads(found.body)
    assert sent["apiVersion"] == review.api_version
    assert sent["kind"] == "AdmissionReview"
    response = sent["response"]
    assert response["uid"] == review.uid
    is_refused = response["allowed"] is False
    assert is_refused == ("status" in response)
    assert not is_refused or ROUTES[path].mode is Action.DENY
    assert not is_refused or response["status"]["message"]
    assert not is_refused or "patch" not in response
    for warning in response.get("warnings", ()):
        assert "\n" not in warning


def _check_cache(path: str, data: bytes) -> None:
    """The cache answers as the decider does, also for the second time."""
    cache = ReplicaCache(max_objects=10_000, max_steps=60_000)
    for _ in range(2):
        found = cache.answer(_DECIDER, TODAY, path, data)
        if found is not None:
            assert found == answer(_DECIDER, ROUTES[path], data, TODAY)

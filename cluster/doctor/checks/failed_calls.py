"""Calls of gpuward's webhook that failed, as an API server counts them."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from cluster.api.errors import ClusterError, ForbiddenError
from cluster.doctor.facts import DoctorFacts, own_configurations, why_missing
from cluster.doctor.rows import Row, not_known, ok, wrong
from cluster.source.objects import VALIDATING
from rules.base.json_values import as_object
from terminal import DOCS_URL, reason_of
from webhook.registration import WEBHOOK_NAME_SUFFIX

_FAILED_CALLS = "failed calls"
# A value that a sample can have: `12`, `1.5e+06`.
_VALUE = r"[0-9]{1,20}(?:\.[0-9]{1,20})?(?:e\+[0-9]{1,2})?"
_SAMPLE = re.compile(rf"^(apiserver_\w+)\{{([^}}\n]*)\}} ({_VALUE})$", re.MULTILINE)
_START = re.compile(rf"^process_start_time_seconds ({_VALUE})$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_RIGHT = "grant `get` on the nonResourceURL /metrics"
_BY_HAND = "see whether this works: kubectl get --raw /metrics"
_FILES = "run it against the cluster"
_SEE = f"see {DOCS_URL}/monitoring.md, and `failed calling webhook` in the log of the API servers"

_OTHER = (
    "of several API servers each counts for itself: run the command again, or give the address of "
    "one in the kubeconfig file"
)
_LATER = (
    "then keep what is counted by now: gpuward doctor -o json > doctor.json, and give it to later "
    "runs, so that only new failures count: --since-report doctor.json"
)


class _Counter(NamedTuple):
    """A metric of API servers: its name, its labels if they matter, and its meaning."""

    subject: str
    metric: str
    meaning: str
    remedy: str
    labels: Mapping[str, frozenset[str]] = MappingProxyType({})


# Source: Kubernetes, staging/src/k8s.io/apiserver/pkg/admission/metrics/metrics.go.
_COUNTERS = (
    _Counter(
        "fail open",
        "apiserver_admission_webhook_fail_open_count",
        "calls failed, and objects were admitted without their answer",
        f"{_SEE}; gpuward audit finds what was admitted",
    ),
    _Counter(
        "fail closed",
        "apiserver_admission_webhook_rejection_count",
        "calls failed, and objects were refused for that reason",
        _SEE,
        {"error_type": frozenset({"calling_webhook_error", "apiserver_internal_error"})},
    ),
    _Counter(
        "match conditions",
        "apiserver_admission_match_condition_evaluation_errors_total",
        "times a match condition failed, and failurePolicy decided in its place",
        f"see the alert GpuwardConditionFails in {DOCS_URL}/monitoring.md",
        {"kind": frozenset({"webhook"})},
    ),
)


class CountedCalls(NamedTuple):
    """The failures of each kind that an API server has counted by the time `read_at`.

    `started` is when it began to count, in seconds since 1970; None if it does not say so.
    """

    read_at: datetime.datetime
    started: float | None
    failures: Mapping[str, int]

    def to_document(self) -> dict[str, Any]:
        """The field `failedCalls` that docs/doctor.md describes."""
        failures = dict(self.failures)
        return {"readAt": self.read_at.isoformat(), "started": self.started, "failures": failures}


def counted_calls(facts: DoctorFacts) -> CountedCalls | None:
    """Return the API server's counts of calls; None if they are not known."""
    if not isinstance(facts.metrics, str):
        return None
    samples = _SAMPLE.findall(facts.metrics)
    if not samples:
        return None
    found = _START.search(facts.metrics)
    failures = {counter.subject: _count(samples, counter) for counter in _COUNTERS}
    now = datetime.datetime.now(datetime.UTC)
    return CountedCalls(now, float(found[1]) if found else None, failures)


_MAX_BYTES = 64 << 20


class ReportError(Exception):
    """A report of an earlier run cannot be used; the message says which and why."""


def read_counted_calls(path: str) -> CountedCalls:
    """Return the API server's counts when `gpuward doctor -o json` wrote the file `path`.

    Raises ReportError.
    """
    try:
        with open(path, "rb") as stream:
            content = stream.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ReportError(f"{path}: {reason_of(error)}") from error
    if len(content) > _MAX_BYTES:
        raise ReportError(f"{path}: larger than {_MAX_BYTES >> 20} MiB")
    try:
        calls = as_object(as_object(json.loads(content)).get("failedCalls"))
        read_at = datetime.datetime.fromisoformat(str(calls.get("readAt")))
        started = float(calls["started"]) if calls.get("started") is not None else None
        failures = {str(kind): int(n) for kind, n in as_object(calls.get("failures")).items()}
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        why = "it says nothing about failed calls; write it with: gpuward doctor -o json"
        raise ReportError(f"{path}: {why}") from error
    if read_at.tzinfo is None:
        read_at = read_at.replace(tzinfo=datetime.UTC)
    return CountedCalls(read_at, started, failures)


def check_failed_calls(facts: DoctorFacts, before: CountedCalls | None = None) -> Iterator[Row]:
    """One row for each kind of failure. None if gpuward is not installed, and so never called.

    What had failed `before` is not counted.
    """
    if facts.request is None:
        yield not_known(_FAILED_CALLS, "API server", "the objects are from files", _FILES)
        return
    if row := why_missing(facts, _FAILED_CALLS, VALIDATING):
        yield row
    elif not own_configurations(facts, VALIDATING):
        return  # the check of the webhook says that there is none
    if isinstance(error := facts.metrics, ClusterError):
        remedy = _RIGHT if isinstance(error, ForbiddenError) else _BY_HAND
        yield not_known(_FAILED_CALLS, "API server", f"its metrics cannot be read: {error}", remedy)
        return
    now = counted_calls(facts)
    if now is None:
        message = "what it has at /metrics are no metrics of an API server"
        yield not_known(_FAILED_CALLS, "API server", message, _BY_HAND)
    else:
        yield from _rows(now, before)


def _rows(now: CountedCalls, before: CountedCalls | None) -> Iterator[Row]:
    since = f"since this API server started{_in_words(now.started)}; each counts for itself"
    known: Mapping[str, int] = {}
    if before is not None:
        when = f"{before.read_at.astimezone(datetime.UTC):%Y-%m-%d %H:%M} UTC"
        if now.started == before.started:
            since, known = f"since {when}", before.failures
        elif now.started is None or now.started < before.read_at.timestamp():
            message = f"it is not the API server{_in_words(before.started)} of the earlier report"
            yield not_known(_FAILED_CALLS, "API server", message, _OTHER)
            return
    for counter in _COUNTERS:
        if (count := now.failures[counter.subject] - known.get(counter.subject, 0)) > 0:
            message = f"{count:,} {counter.meaning}, {since}"
            yield wrong(_FAILED_CALLS, counter.subject, message, f"{counter.remedy}; {_LATER}")
        else:
            yield ok(_FAILED_CALLS, counter.subject, f"none {since}")


_CALLS = "apiserver_admission_webhook_request_total"
_ANSWERED = "200"


def calls_between(before: str, now: str, webhook: str) -> tuple[int, int] | None:
    """Return how many calls of a webhook were answered, and how many failed, between two times.

    `before` and `now` are what an API server counted by then; None if they are of two.
    """
    starts = [_START.search(text) for text in (before, now)]
    if not all(starts) or len({found[1] for found in starts if found}) > 1:
        return None
    first, second = ([*_SAMPLE.findall(text)] for text in (before, now))

    def is_failed(labels: Mapping[str, str]) -> bool:
        return labels.get("name") == webhook

    def is_answered(labels: Mapping[str, str]) -> bool:
        return is_failed(labels) and labels.get("code") == _ANSWERED

    answered = _sum(second, _CALLS, is_answered) - _sum(first, _CALLS, is_answered)
    failed = _COUNTERS[0].metric
    return answered, _sum(second, failed, is_failed) - _sum(first, failed, is_failed)


def _count(samples: list[tuple[str, str, str]], counter: _Counter) -> int:
    """The sum of the samples of gpuward's webhooks."""

    def fits(labels: Mapping[str, str]) -> bool:
        is_own = labels.get("name", "").endswith(WEBHOOK_NAME_SUFFIX)
        return is_own and all(labels.get(key) in of for key, of in counter.labels.items())

    return _sum(samples, counter.metric, fits)


def _sum(
    samples: list[tuple[str, str, str]], metric: str, fits: Callable[[Mapping[str, str]], bool]
) -> int:
    """The sum of the samples of a metric whose labels fit."""
    return int(
        sum(
            float(value)
            for name, labels, value in samples
            if name == metric and fits(dict(_LABEL.findall(labels)))
        )
    )


def _in_words(started: float | None) -> str:
    """Return when an API server started, for a message; empty if its metrics do not say so."""
    try:
        start = datetime.datetime.fromtimestamp(started or 0.0, datetime.UTC)
    except (OverflowError, ValueError):  # no time that there is
        return ""
    return f" ({start:%Y-%m-%d %H:%M} UTC)" if started else ""

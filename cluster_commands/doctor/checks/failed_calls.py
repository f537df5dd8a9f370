"""Calls of gpuward's webhook that failed, as an API server counts them."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from cluster.api.errors import ForbiddenError
from cluster.doctor.checks.gpuward import own_configurations
from cluster.doctor.facts import Facts, why_missing
from cluster.protocols import ClusterError
from cluster_commands.doctor.rows import Row, not_known, ok, wrong
from cluster_commands.source.resources import VALIDATING
from webhook.registration import WEBHOOK_NAME_SUFFIX

_CHECK = "failed calls"
# A value that a sample can have: `12`, `1.5e+06`.
_VALUE = r"[0-9]{1,20}(?:\.[0-9]{1,20})?(?:e\+[0-9]{1,2})?"
_SAMPLE = re.compile(rf"^(apiserver_\w+)\{{([^}}\n]*)\}} ({_VALUE})$", re.MULTILINE)
_START = re.compile(rf"^process_start_time_seconds ({_VALUE})$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_RIGHT = "grant `get` on the nonResourceURL /metrics"
_BY_HAND = "see whether this works: kubectl get --raw /metrics"
_FILES = "run it against the cluster"
_SEE = "see docs/monitoring.md, and `failed calling webhook` in the log of the API servers"


class _Counter(NamedTuple):
    """What API servers count: the metric, its labels if they matter, and what it means."""

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
        "see the alert GpuwardConditionFails in docs/monitoring.md",
        {"kind": frozenset({"webhook"})},
    ),
)


def check_failed_calls(facts: Facts) -> Iterator[Row]:
    """One row for each kind of failure. None if gpuward is not installed: nobody is called then."""
    if facts.request is None:
        yield not_known(_CHECK, "API server", "the objects are from files", _FILES)
        return
    if row := why_missing(facts, _CHECK, VALIDATING):
        yield row
    elif not own_configurations(facts, VALIDATING):
        return  # the check of the webhook says that there is none
    try:
        metrics = facts.request("/metrics")
    except ClusterError as error:
        remedy = _RIGHT if isinstance(error, ForbiddenError) else _BY_HAND
        yield not_known(_CHECK, "API server", f"its metrics cannot be read: {error}", remedy)
        return
    samples = _SAMPLE.findall(metrics)
    if not samples:
        message = "what it has at /metrics are no metrics of an API server"
        yield not_known(_CHECK, "API server", message, _BY_HAND)
        return
    since = f"since this API server started{_start(metrics)}; each counts for itself"
    for counter in _COUNTERS:
        if count := _count(samples, counter):
            message = f"{count:,} {counter.meaning}, {since}"
            yield wrong(_CHECK, counter.subject, message, counter.remedy)
        else:
            yield ok(_CHECK, counter.subject, f"none {since}")


def _count(samples: list[tuple[str, str, str]], counter: _Counter) -> int:
    """The sum of the samples of gpuward's webhooks."""
    total = 0.0
    for metric, text, value in samples:
        if metric == counter.metric:
            labels = dict(_LABEL.findall(text))
            is_own = labels.get("name", "").endswith(WEBHOOK_NAME_SUFFIX)
            if is_own and all(labels.get(key) in of for key, of in counter.labels.items()):
                total += float(value)
    return int(total)


def _start(metrics: str) -> str:
    """When the API server started, for a message; empty if its metrics do not say so."""
    found = _START.search(metrics)
    try:
        start = datetime.datetime.fromtimestamp(float(found[1]), datetime.UTC) if found else None
    except (OverflowError, ValueError):  # no time that there is
        start = None
    return f" ({start:%Y-%m-%d %H:%M} UTC)" if start else ""

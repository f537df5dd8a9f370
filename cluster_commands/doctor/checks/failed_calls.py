"""Calls of gpuward's webhook that failed, as an API server counts them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cluster.protocols import ClusterError
from cluster_commands.doctor.facts import Facts
from cluster_commands.doctor.rows import Row, not_known, ok, wrong
from registration.configurations import WEBHOOK_NAME_SUFFIX

_CHECK = "failed calls"
_OPEN = "apiserver_admission_webhook_fail_open_count"
_REJECTED = "apiserver_admission_webhook_rejection_count"
# A value that a counter can have: `12`, `1.5e+06`.
_VALUE = r"[0-9]{1,20}(?:\.[0-9]{1,20})?(?:e\+[0-9]{1,2})?"
_SAMPLE = re.compile(rf"^(\w+)\{{([^}}\n]*)\}} ({_VALUE})$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_RIGHT = "grant `get` on the nonResourceURL /metrics"
_FILES = "run it against the cluster"


def check_failed_calls(facts: Facts) -> Iterator[Row]:
    """One row for calls after which pods passed without evaluation, and one for refusals."""
    if facts.request is None:
        yield not_known(_CHECK, "API server", "the objects are from files", _FILES)
        return
    try:
        metrics = facts.request("/metrics")
    except ClusterError as error:
        yield not_known(_CHECK, "API server", f"its metrics cannot be read: {error}", _RIGHT)
        return
    since = "since this API server started (each API server counts for itself)"
    opened = _count(metrics, _OPEN)
    if opened:
        message = f"{opened} objects were admitted without evaluation {since}"
        yield wrong(_CHECK, "fail open", message, "see docs/resilience.md, and lint what runs")
    else:
        yield ok(_CHECK, "fail open", f"nothing was admitted without evaluation {since}")
    refused = _count(metrics, _REJECTED, error_type="calling_webhook_error")
    if refused:
        message = f"{refused} objects were refused because a call failed {since}"
        yield wrong(_CHECK, "fail closed", message, "see docs/resilience.md")
    else:
        yield ok(_CHECK, "fail closed", f"nothing was refused because a call failed {since}")


def _count(metrics: str, name: str, **labels: str) -> int:
    """The sum of the samples of gpuward's webhooks."""
    total = 0.0
    for metric, text, value in _SAMPLE.findall(metrics):
        if metric == name:
            found = dict(_LABEL.findall(text))
            is_own = found.get("name", "").endswith(WEBHOOK_NAME_SUFFIX)
            if is_own and all(found.get(key) == wanted for key, wanted in labels.items()):
                total += float(value)
    return int(total)

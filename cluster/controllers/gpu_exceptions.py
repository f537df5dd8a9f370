"""`gpuward exceptions run`: accept GpuExceptions as far as the policy lets their namespaces.

The controller writes the condition of each object, and the file that the webhook reads.
"""

from __future__ import annotations

import datetime
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import structlog
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from cluster.api.client import GpuExceptions
from cluster.api.errors import ClusterError, ConflictError, MissingError, Object
from cluster.control_loop import Controller
from policies.controller_files import (
    EXCEPTIONS_FILE,
    ExceptionsFile,
    deciding_fields,
    format_exceptions,
    parse_exceptions,
)
from policies.gpu_exceptions import Acceptance, AcceptanceReason, acceptances
from policies.loading import PolicyError, load_policy, read_policy_file
from policies.policy import Policy
from rules.base.json_values import as_object, as_objects

ACCEPTED = "Accepted"
"""The type of the condition of a GpuException."""
RENEW_SECONDS = 600.0
"""How often the file is written though nothing has changed; the webhook uses it for an hour."""
MAX_STATUS_WRITES = 200
"""How many conditions one pass writes; the next one writes the others."""
_MAX_CHANGES = 5_000
_WRITING_SECONDS = 60.0
_STALE_SECONDS = 600.0  # a pass takes less
_log = structlog.get_logger("gpuward.exceptions")


class PolicySource:
    """The policy in the file `path`; if it cannot be used, the last one, or else the fallback.

    The webhook does the same, so both go by the same policy.
    """

    def __init__(self, path: str, fallback: str | None = None) -> None:
        self._path = path
        self._fallback = fallback
        self._last: Policy | None = None
        self._error = ""

    def load(self) -> Policy:
        """The policy as it is now. PolicyError if there is none that can be used."""
        try:
            self._last = load_policy(read_policy_file(self._path), self._path)
        except PolicyError as error:
            if str(error) != self._error:
                self._error = str(error)
                _log.error("policy refused", error=self._error)
            if self._last is not None:
                return self._last
            if self._fallback is None:
                raise
            return load_policy(read_policy_file(self._fallback), self._fallback)
        self._error = ""
        return self._last


def with_condition(
    raw: Mapping[str, Any], found: Acceptance, now: datetime.datetime
) -> list[Object] | None:
    """The conditions that the object should have; None if it has them.

    Conditions of other types stay. The time of the last transition changes only with the status.
    """
    present = [dict(each) for _, each in as_objects(as_object(raw.get("status")).get("conditions"))]
    others = [each for each in present if each.get("type") != ACCEPTED]
    before = next((each for each in present if each.get("type") == ACCEPTED), {})
    status = "True" if found.is_accepted else "False"
    since = before.get("lastTransitionTime") if before.get("status") == status else None
    condition = {
        "type": ACCEPTED,
        "status": status,
        "observedGeneration": as_object(raw.get("metadata")).get("generation", 0),
        "lastTransitionTime": since or now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "reason": found.reason.value,
        "message": found.message,
    }
    return None if condition == before else [*others, condition]


class ExceptionsController(Controller):
    """Compares all GpuExceptions with the policy in each pass.

    `load_policy` returns the present policy, or raises PolicyError.
    """

    def __init__(
        self,
        cluster: GpuExceptions,
        load_policy: Callable[[], Policy],
        *,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(
            _log,
            "GpuExceptions not checked",
            expected=(PolicyError,),
            stale_seconds=_STALE_SECONDS,
            monotonic=monotonic,
        )
        self._cluster = cluster
        self._load_policy = load_policy
        self._now = now
        self._counts: Counter[AcceptanceReason] = Counter()
        self._checked_at = 0.0

    def _reconcile(self, _report: object) -> None:
        policy = self._load_policy()
        now = datetime.datetime.fromtimestamp(self._now(), tz=datetime.UTC)
        counts: Counter[AcceptanceReason] = Counter()
        kept: list[dict[str, Any]] = []
        changes: list[tuple[Object, list[Object]]] = []
        for raw, found in acceptances(self._cluster.list_objects(), policy, now.date()):
            counts[found.reason] += 1
            if found.exception is not None:
                kept.append(deciding_fields(raw))
            conditions = with_condition(raw, found, now)
            if conditions is not None and len(changes) < _MAX_CHANGES:
                changes.append((_reference(raw), conditions))
        # First the file: a condition says what is on its way to the webhook.
        self._write_file(ExceptionsFile(now, tuple(kept)))
        self._counts, self._checked_at = counts, now.timestamp()
        self._write_conditions(changes)

    def _write_conditions(self, changes: list[tuple[Object, list[Object]]]) -> None:
        """Write the conditions of some objects. Afterwards ClusterError, if one was refused."""
        # In any order, so that no tenant's objects, which may be too large to be written, keep
        # those of others waiting.
        random.shuffle(changes)
        until, refused = self._monotonic() + _WRITING_SECONDS, None
        for raw, conditions in changes[:MAX_STATUS_WRITES]:
            try:
                self._cluster.write_conditions(raw, conditions)
            except (ConflictError, MissingError):
                continue  # it has changed since it was read: the next pass reads it again
            except ClusterError as error:
                refused = error
            else:
                _log_condition(raw, conditions[-1])
            if self._monotonic() > until:
                break
        if refused is not None:
            raise refused

    def _write_file(self, file: ExceptionsFile) -> None:
        config_map = self._cluster.get_config_map()
        text = (config_map.get("data") or {}).get(EXCEPTIONS_FILE, "")
        if _is_fresh(text, file):
            return
        data = {EXCEPTIONS_FILE: format_exceptions(file)}
        # Other keys have no owner.
        self._cluster.update_config_map({**config_map, "data": data, "binaryData": None})

    def collect(self) -> Iterator[Metric]:
        """The metrics."""
        objects = GaugeMetricFamily(
            "gpuward_gpu_exception_objects",
            "GpuExceptions by the reason of their condition Accepted.",
            labels=("reason",),
        )
        for reason in AcceptanceReason:
            objects.add_metric((reason.value,), self._counts[reason])
        yield objects
        yield GaugeMetricFamily(
            "gpuward_gpu_exceptions_checked_timestamp_seconds",
            "When all GpuExceptions were last compared with the policy.",
            self._checked_at,
        )
        yield CounterMetricFamily(
            "gpuward_gpu_exceptions_failures", "Comparisons that failed.", self.failures
        )


def _log_condition(raw: Object, accepted: Object) -> None:
    _log.info(
        "GpuException checked",
        namespace=raw["metadata"]["namespace"],
        name=raw["metadata"]["name"],
        accepted=accepted["status"],
        reason=accepted["reason"],
    )


def _reference(raw: Mapping[str, Any]) -> Object:
    """Return the fields that identify the object that was read."""
    metadata = raw["metadata"]
    return {"metadata": {key: metadata[key] for key in ("namespace", "name", "resourceVersion")}}


def _is_fresh(text: str, file: ExceptionsFile) -> bool:
    """Return whether `text` has the objects of `file`, and is not old."""
    try:
        found = parse_exceptions(text.encode())
    except ValueError:
        return False
    age = (file.checked_at - found.checked_at).total_seconds()
    same = json.dumps(found.objects) == json.dumps(file.objects)
    return same and 0 <= age < RENEW_SECONDS

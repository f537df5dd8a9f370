"""Accept GpuExceptions as the policy delegates: write their conditions, and the webhook's file."""

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
from prometheus_client.registry import Collector

from cluster.api.errors import MissingError
from cluster.gpu_exceptions import GpuExceptions
from cluster.protocols import ClusterError, ConflictError, Object
from cluster.service import metrics_of
from delegation.conditions import with_condition
from policies.exceptions_file import (
    EXCEPTIONS_FILE,
    ExceptionsFile,
    deciding_fields,
    format_exceptions,
    parse_exceptions,
)
from policies.gpu_exceptions import Reason, acceptances
from policies.loading import PolicyError
from policies.policy import Policy

RENEW_SECONDS = 600.0
"""How often the file is written though nothing has changed; the webhook uses it for an hour."""
MAX_STATUS_WRITES = 200
"""How many conditions one pass writes; the next one writes the others."""
_MAX_CHANGES = 5_000
_WRITING_SECONDS = 60.0
_STALE_SECONDS = 600.0  # a pass takes less
_log = structlog.get_logger("gpuward.exceptions")


class ExceptionsController(Collector):
    """Compares all GpuExceptions with the policy at each `reconcile()`.

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
        self._cluster = cluster
        self._load_policy = load_policy
        self._now = now
        self._monotonic = monotonic
        self._ended_at = monotonic()
        self._counts: Counter[Reason] = Counter()
        self._checked_at = 0.0
        self._failures = 0
        self._error = ""

    def reconcile(self) -> None:
        """One pass. Errors are logged, and counted; the next pass makes up for it."""
        try:
            self._reconcile()
        except (ClusterError, PolicyError) as error:
            self._failures += 1
            if str(error) != self._error:
                self._error = str(error)
                _log.error("GpuExceptions not checked", error=self._error)
        except Exception:  # noqa: BLE001  # the next pass may succeed
            self._failures += 1
            _log.exception("GpuExceptions not checked")
        else:
            self._error = ""
        self._ended_at = self._monotonic()

    def _reconcile(self) -> None:
        policy = self._load_policy()
        now = datetime.datetime.fromtimestamp(self._now(), tz=datetime.UTC)
        counts: Counter[Reason] = Counter()
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

    @property
    def alive(self) -> bool:
        """Whether passes still end, well or badly: a restart would not help a failing one."""
        return self._monotonic() - self._ended_at <= _STALE_SECONDS

    def metrics(self) -> bytes:
        """The metrics in Prometheus' text format."""
        return metrics_of(self)

    def collect(self) -> Iterator[Metric]:
        """The metrics."""
        objects = GaugeMetricFamily(
            "gpuward_gpu_exception_objects",
            "GpuExceptions by the reason of their condition Accepted.",
            labels=("reason",),
        )
        for reason in Reason:
            objects.add_metric((reason.value,), self._counts[reason])
        yield objects
        yield GaugeMetricFamily(
            "gpuward_gpu_exceptions_checked_timestamp_seconds",
            "When all GpuExceptions were last compared with the policy.",
            self._checked_at,
        )
        yield CounterMetricFamily(
            "gpuward_gpu_exceptions_failures", "Comparisons that failed.", self._failures
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
    """What identifies the object that was read."""
    metadata = raw["metadata"]
    return {"metadata": {key: metadata[key] for key in ("namespace", "name", "resourceVersion")}}


def _is_fresh(text: str, file: ExceptionsFile) -> bool:
    """Whether `text` has the objects of `file`, and is not old."""
    try:
        found = parse_exceptions(text.encode())
    except ValueError:
        return False
    age = (file.checked_at - found.checked_at).total_seconds()
    same = json.dumps(found.objects) == json.dumps(file.objects)
    return same and 0 <= age < RENEW_SECONDS

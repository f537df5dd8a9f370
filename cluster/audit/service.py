"""`gpuward audit --interval`: audit a cluster again and again, and count what each audit finds."""

from __future__ import annotations

import argparse
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import structlog
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from cluster.api.connection import Connection
from cluster.api.errors import Object
from cluster.audit.audit import AuditResult, audit
from cluster.audit.policy_reports import KINDS
from cluster.audit.sinks import findings_to_store, store_findings
from cluster.control_loop import Controller, ControlLoop, StoppedError, run_loop
from cluster.service_options import STATUS_PORT
from cluster.source.api_server import ApiServerSource
from cluster.source.objects import SourceError
from policies.loading import PolicyError
from reports.findings import LocatedFinding
from sources.policy_file import PolicyChoice

_Counts = Counter[tuple[str, ...]]  # by the values of labels
_log = structlog.get_logger("gpuward.audit")
_LOGGED = 20  # messages of one audit
_STALE_SECONDS = 7200.0  # an audit of a large cluster, with attempts that fail, takes less
_GAUGES = {
    "audit_objects": "Objects that the last audit evaluated.",
    "audit_not_evaluated": "Objects and lists that the last audit could not evaluate.",
    "audit_unrequested_gpu_pods": "Running pods that can use GPUs that nobody requested.",
    "audit_privileged_pods": "Running pods that reach GPUs as they are privileged, and requested "
    "none.",
    "audit_devices_given_twice": "Devices that several pods or claims have, each for itself.",
    "audit_unhealthy_devices": "Devices of pods that their plugins call unhealthy.",
    "audit_refused_pods": "Pods that the modes of their namespaces would refuse now.",
    "audit_duration_seconds": "How long the last audit took.",
    "audit_success_timestamp_seconds": "When an audit last saw all there is, and kept what it "
    "found; 0 before the first.",
}


class AuditRun(NamedTuple):
    """One audit, and the findings of it that are reported."""

    result: AuditResult
    findings: Sequence[LocatedFinding]


class AuditController(Controller):
    """Audits in each pass.

    `audit` makes one audit and keeps its findings; what it cannot keep is given to its argument. It
    raises ClusterError, PolicyError, SourceError or StoppedError. The findings of
    `counted_namespaces` are also counted apart.
    """

    def __init__(
        self,
        audit: Callable[[Callable[[SourceError], object]], AuditRun],
        counted_namespaces: Sequence[str] = (),
        *,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(
            _log,
            "audit incomplete",
            expected=(PolicyError, SourceError),
            stale_seconds=_STALE_SECONDS,
            idle_seconds=math.inf,  # users choose the time between two audits
            monotonic=monotonic,
        )
        self._audit = audit
        self._counted = frozenset(counted_namespaces)
        self._now = now
        self._findings: _Counts = Counter()
        self._by_namespace: _Counts = Counter()
        self._unlisted: frozenset[str] = frozenset()
        self._gauges = dict.fromkeys(_GAUGES, 0.0)
        self._logged: set[str] = set()

    def _reconcile(self, report: Callable[[Exception | str], None]) -> None:
        began_at = self._monotonic()
        errors: list[SourceError] = []
        found = self._audit(errors.append)
        results = found.result.results
        is_success = found.result.saw_all and not errors
        self._count(found, began_at, is_success=is_success)
        for error in errors:
            report(error)
        self.failures += not (is_success or errors)  # those of the pass are counted anyway
        before, self._logged = self._logged, set()
        for log, event, field, found_now in (
            (_log.error, "audit incomplete", "error", results.not_evaluated),
            (_log.warning, "audit remark", "remark", results.remarks),
        ):
            texts = [item.message for item in found_now]
            for text in [text for text in texts if text not in before][:_LOGGED]:
                log(event, **{field: text})
            self._logged.update(texts)

    def _count(self, found: AuditRun, began_at: float, *, is_success: bool) -> None:
        result, gauges = found.result, self._gauges
        self._findings = Counter((f.finding.rule, f.level) for f in found.findings)
        homes = ((f.owner or f.finding.object, f) for f in found.findings)
        self._by_namespace = Counter(
            (home.namespace, f.finding.rule, f.level)
            for home, f in homes
            if home is not None and home.namespace in self._counted
        )
        self._unlisted = result.unlisted
        gauges["audit_objects"] = result.results.objects
        gauges["audit_not_evaluated"] = len(result.results.not_evaluated)
        gauges["audit_unrequested_gpu_pods"] = result.pods.unrequested
        gauges["audit_privileged_pods"] = result.pods.privileged
        gauges["audit_devices_given_twice"] = result.devices.given_twice
        gauges["audit_unhealthy_devices"] = len(result.devices.sick)
        gauges["audit_refused_pods"] = result.pods.refused
        gauges["audit_duration_seconds"] = seconds = self._monotonic() - began_at
        if is_success:
            gauges["audit_success_timestamp_seconds"] = self._now()
        levels = Counter(located.level for located in found.findings)
        _log.info(
            "audited",
            objects=result.results.objects,
            errors=levels["error"],
            warnings=levels["warning"],
            seconds=round(seconds, 1),
        )

    def collect(self) -> Iterator[Metric]:
        """The metrics of the last audit."""
        yield _labelled("audit_findings", "Findings.", ("rule", "level"), self._findings)
        yield _labelled(
            "audit_namespace_findings",
            "Findings in the counted namespaces.",
            ("object_namespace", "rule", "level"),
            self._by_namespace,
        )
        unlisted: _Counts = Counter((resource,) for resource in self._unlisted)
        text = "Resources that could not be listed, or not to their end."
        yield _labelled("audit_unlisted", text, ("resource",), unlisted)
        for name, text in _GAUGES.items():
            yield GaugeMetricFamily(f"gpuward_{name}", text, self._gauges[name])
        text = "Audits that failed, did not see all there is, or could not keep what they found."
        yield CounterMetricFamily("gpuward_audit_failures", text, self.failures)


def _labelled(name: str, text: str, labels: Sequence[str], counts: _Counts) -> Metric:
    family = GaugeMetricFamily(f"gpuward_{name}", text, labels=labels)
    for values, count in sorted(counts.items()):
        family.add_metric(values, count)
    return family


def run(options: argparse.Namespace) -> int:
    """Audit until SIGTERM or SIGINT; the exit status."""

    def make() -> ControlLoop:
        connection = _StoppableConnection.like_kubectl(options.kubeconfig, options.context)
        controller = AuditController(
            lambda on_error: _audit(options, connection, on_error), options.counted_namespaces
        )

        def stop_requests_with(stop: threading.Event) -> None:
            connection.stop = stop

        return ControlLoop((controller,), options.interval, stop_requests_with)

    port = STATUS_PORT if options.status_port is None else options.status_port
    return run_loop(make, port, "audit", failed=2)


def _audit(
    options: argparse.Namespace,
    connection: _StoppableConnection,
    on_error: Callable[[SourceError], object],
) -> AuditRun:
    """One audit by the policy as it is now."""
    policy = PolicyChoice(options.policy, options.profile, isolated=options.isolated).load().policy
    source = ApiServerSource(connection, connection.wait)
    refused_by = options.refused_by
    result = audit(source, policy, options.namespace, refused_by=refused_by)
    for done in store_findings(
        connection,
        result,
        options.namespace,
        on_error,
        reports=KINDS.get(options.publish),
        events=options.events,
        notes=options.notes,
        wait=connection.wait,
    ):
        _log.info("kept", what=done)
    return AuditRun(result, findings_to_store(result, notes=options.notes))


class _StoppableConnection(Connection):
    """Sends no more requests once `stop` is set, so that an audit ends soon after."""

    def __init__(self, load: Callable[[Any], None]) -> None:
        super().__init__(load)
        self.stop = threading.Event()

    def wait(self, seconds: float) -> None:
        """Wait so many seconds, or until `stop` is set."""
        self.stop.wait(seconds)

    def request(self, *arguments: Any, **named: Any) -> Object:
        """The JSON response to one request. StoppedError if there are to be no more."""
        if self.stop.is_set():
            raise StoppedError
        return super().request(*arguments, **named)

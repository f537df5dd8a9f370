"""`gpuward audit --interval`: the audit as a program that runs in a cluster."""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable
from typing import Any

import structlog

from cluster.api.connection import Connection
from cluster.audit.audit import audit
from cluster.audit.service import AuditController, AuditRun, StoppedError
from cluster.protocols import Object
from cluster.service import Service, repeat, run_or_report
from cluster.service_options import STATUS_PORT
from cluster.source.api_server import ApiServerSource
from cluster.source.objects import SourceError
from cluster_commands.audit.keeping import keep, kept_findings
from cluster_commands.audit.report_kinds import KINDS
from sources.policy_file import PolicyChoice

_log = structlog.get_logger("gpuward.audit")


def run(options: argparse.Namespace) -> int:
    """Audit until SIGTERM or SIGINT; the exit status."""

    def make() -> Service:
        connection = _StoppableConnection.like_kubectl(options.kubeconfig, options.context)
        controller = AuditController(
            lambda on_error: _audit(options, connection, on_error), options.counted_namespaces
        )
        again = repeat(controller.reconcile, options.interval)

        def run_until(stop: threading.Event) -> None:
            connection.stop = stop
            again(stop)

        return Service(run_until, lambda: controller.alive, controller.metrics)

    port = STATUS_PORT if options.status_port is None else options.status_port
    return run_or_report(make, port, "audit", failed=2)


def _audit(
    options: argparse.Namespace,
    connection: _StoppableConnection,
    on_error: Callable[[SourceError], object],
) -> AuditRun:
    """One audit by the policy as it is now."""
    policy, _ = PolicyChoice(options.policy, options.profile, isolated=options.isolated).load()
    source = ApiServerSource(connection, connection.wait)
    only_refused = options.mode == "deny"
    result = audit(source, policy, options.namespace, only_refused=only_refused)
    for done in keep(
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
    return AuditRun(result, kept_findings(result, notes=options.notes))


class _StoppableConnection(Connection):
    """Sends no more requests once `stop` is set, so that an audit ends soon after."""

    def __init__(self, load: Callable[[Any], None]) -> None:
        super().__init__(load)
        self.stop = threading.Event()

    def wait(self, seconds: float) -> None:
        """Wait so many seconds, or until `stop` is set."""
        self.stop.wait(seconds)

    def request(self, *arguments: Any) -> Object:
        """The JSON response to one request. StoppedError if there are to be no more."""
        if self.stop.is_set():
            raise StoppedError
        return super().request(*arguments)

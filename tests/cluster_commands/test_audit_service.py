"""The counts of `gpuward audit --interval`, and its end."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from cluster.api.connection import Connection
from cluster.audit.audit import audit
from cluster.audit.service import AuditController, AuditRun
from cluster.audit.sinks import findings_to_store
from cluster.source.api_server import ApiServerSource
from cluster.source.objects import SourceError
from policies.loading import default_policy
from tests.testkit.cluster_commands.paged_server import Fault, Listed, PagedServer, paged_server
from tests.testkit.control_plane.processes import eventually, free_port


def node(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"capacity": {"nvidia.com/gpu": "8"}}}


def namespace(name: str) -> dict[str, Any]:
    labels = {"gpuward.io/mode": "deny"} if name == "team-0" else {}
    return {"metadata": {"name": name, "labels": labels}}


def pod(number: int) -> dict[str, Any]:
    env = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    metadata = {"name": f"p{number}", "namespace": f"team-{number % 3}"}
    containers = [{"name": "main", "image": "example/x", "env": env}]
    spec = {"containers": containers, "nodeName": "gpus"}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Running"}}


LISTED = {
    "/api/v1/nodes": Listed(1, lambda _: node("gpus"), "Node"),
    "/api/v1/namespaces": Listed(2, lambda number: namespace(f"team-{number}"), "Namespace"),
    "/api/v1/pods": Listed(6, pod),
}
FINDINGS = {("error", "visible-devices-env"): 6.0}


def samples(text: str) -> dict[str, dict[tuple[str, ...], float]]:
    """The samples by the name of their metric and the values of their labels, by their names."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name = sample.name.removeprefix("gpuward_audit_")
            found.setdefault(name, {})[
                tuple(value for _, value in sorted(sample.labels.items()))
            ] = sample.value
    return found


class Audits:
    """Audits of a simulated cluster, at the times of `now`."""

    def __init__(self, served: PagedServer, folder: Path) -> None:
        self.now = 1_000.0
        self.keep: Callable[[Callable[[SourceError], object]], object] = lambda _: None
        self._source = ApiServerSource(
            Connection.like_kubectl(served.kubeconfig(folder)), lambda _: None
        )
        self.controller = AuditController(
            self._audit, ["team-1"], now=lambda: self.now, monotonic=lambda: self.now
        )

    def _audit(self, on_error: Callable[[SourceError], object]) -> AuditRun:
        result = audit(self._source, default_policy(), None)
        self.keep(on_error)
        self.now += 30
        return AuditRun(result, findings_to_store(result, notes=False))

    def again(self) -> dict[str, dict[tuple[str, ...], float]]:
        """The metrics after one more audit."""
        self.controller.reconcile()
        return samples(self.controller.metrics().decode())


def test_what_the_last_audit_found_is_counted(tmp_path: Path) -> None:
    with paged_server(LISTED) as served, capture_logs() as logs:
        found = Audits(served, tmp_path).again()
    assert found["findings"] == FINDINGS
    assert found["namespace_findings"] == {("error", "team-1", "visible-devices-env"): 2.0}
    plain = {name: values[()] for name, values in found.items() if () in values}
    plain.pop("failures_created", None)
    assert plain == {
        "objects": 7.0,
        "not_evaluated": 0.0,
        "unrequested_gpu_pods": 6.0,
        "privileged_pods": 0.0,
        "devices_given_twice": 0.0,
        "unhealthy_devices": 0.0,
        "refused_pods": 2.0,
        "duration_seconds": 30.0,
        "success_timestamp_seconds": 1_030.0,
        "failures_total": 0.0,
    }
    assert "unlisted" not in found
    assert [log["event"] for log in logs] == ["audited", *["audit remark"] * 4]
    assert logs[1]["remark"].startswith("namespace team-0: 2 running pods on node gpus can use")


def test_an_audit_that_did_not_see_all_is_no_success(tmp_path: Path) -> None:
    forbidden = {number: Fault(403, body={"message": "no"}) for number in range(100)}
    with paged_server(LISTED) as served, capture_logs() as logs:
        audits = Audits(served, tmp_path)
        audits.again()
        listing = served.page

        def page(path: str, query: Any) -> bytes | None:
            if path == "/api/v1/pods":
                served.faults = {len(served.requests) - 1: forbidden[0]}
            return listing(path, query)

        served.page = page  # type: ignore[method-assign]  # one resource alone is forbidden
        found = audits.again()
        assert found["unlisted"] == {("pods",): 1.0}
        assert "findings" not in found
        assert found["success_timestamp_seconds"][()] == 1_030.0
        assert (found["failures_total"][()], found["not_evaluated"][()]) == (1.0, 1.0)
        served.page = listing  # type: ignore[method-assign]
        # Nor is one whose reports could not be written.
        audits.keep = lambda on_error: on_error(SourceError("cannot write it"))
        found = audits.again()
        assert (found["findings"], found["failures_total"][()]) == (FINDINGS, 2.0)
        assert found["success_timestamp_seconds"][()] == 1_030.0
    errors = [log["error"] for log in logs if log["event"] == "audit incomplete"]
    assert [error.partition(":")[0] for error in errors] == ["cannot list pods", "cannot write it"]


def test_our_own_bug_ends_no_service(tmp_path: Path) -> None:
    def fail(_: object) -> None:
        raise RuntimeError

    with paged_server(LISTED) as served, capture_logs() as logs:
        audits = Audits(served, tmp_path)
        audits.keep = fail
        assert audits.again()["failures_total"] == {(): 1.0}
        assert audits.controller.alive
        audits.keep = lambda _: None
        assert audits.again()["findings"] == FINDINGS
    assert logs[0]["event"] == "audit incomplete"


def test_a_service_ends_in_the_middle_of_an_audit(tmp_path: Path) -> None:
    port = free_port()
    with paged_server(LISTED) as served:
        options = ["--isolated", "--interval=1", f"--status-port={port}"]
        command = [sys.executable, "-m", "gpuward", "audit", *options]
        command += ["--kubeconfig", served.kubeconfig(tmp_path)]
        with subprocess.Popen(command) as process:
            try:

                def metrics() -> dict[tuple[str, ...], float]:
                    url = f"http://127.0.0.1:{port}/metrics"
                    with suppress(OSError), urllib.request.urlopen(url, timeout=10) as answer:
                        return samples(answer.read().decode()).get("findings", {})
                    return {}

                eventually(lambda: metrics() == FINDINGS, what="the first audit is counted")
                busy = Fault(429, {"Retry-After": "60"})
                served.faults = dict.fromkeys(range(100_000), busy)
                count = len(served.requests)
                eventually(lambda: len(served.requests) > count, what="the next audit waits")
                process.send_signal(signal.SIGTERM)
                assert process.wait(timeout=30) == 0
            finally:
                process.kill()

"""Runs `gpuward serve` as a process and registers it with a real API server."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from registration.configurations import MODE_LABEL, NAME_LABEL, RegistrationOptions, configurations
from rules.finding import Action
from tests.testkit.admission.reviews import container, pod, variable
from tests.testkit.control_plane.client import Response
from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.control_plane.pki import KeyPairFiles
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import Processes, eventually
from tests.testkit.paths import ROOT

HEAD = "apiVersion: gpuward.io/v1\nkind: Policy\n"
REFUSED = 403
ENDINGS = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum")}


class Server:
    """A running `gpuward serve`, on a free port unless `listen` names one.

    `certificate` is the folder with tls.crt and tls.key; `policy` has the keys of a policy file.
    """

    def __init__(
        self,
        processes: Processes,
        folder: Path,
        certificate: Path,
        policy: str = "",
        *,
        name: str = "gpuward",
        listen: str = "127.0.0.1:0",
        arguments: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.policy_file = folder / f"{name}.yaml"
        self.policy_file.write_text(HEAD + policy, encoding="utf-8")
        self._processes = processes
        command = [sys.executable, "-m", "gpuward", "serve", "--listen", listen]
        command += ["--metrics-listen", "127.0.0.1:0", "--certificate", str(certificate)]
        command += ["--policy", str(self.policy_file), *arguments]
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
        processes.start(name, command, environment)
        started = eventually(self._started, what=f"{name} is serving")
        assert started is not None
        self.address: str = started["address"]
        self.metrics_address: str = started["metrics_address"]
        eventually(lambda: self.get("/readyz")[0] == 200, what=f"{name} is ready")

    @property
    def url(self) -> str:
        """The address for requests of the API server."""
        return f"https://{self.address}"

    @property
    def process_id(self) -> int:
        """The id of its process."""
        return self._processes.ids[self.name]

    def log(self) -> list[dict[str, Any]]:
        """The lines of its log."""
        text = self._processes.log(self.name).read_text(encoding="utf-8", errors="replace")
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]

    def get(self, path: str) -> tuple[int, str]:
        """Status and text of `path` on the metrics port: health, readiness or metrics."""
        url = f"http://{self.metrics_address}{path}"
        done = subprocess.run(
            ["curl", "--silent", "--write-out", "\n%{http_code}", url],
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
        text, _, status = done.stdout.rpartition("\n")
        return int(status), text

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the samples of `name` that carry `labels`; fails for an unknown metric."""
        families = list(text_string_to_metric_families(self.get("/metrics")[1]))
        # Counters exist before anything is counted, so an unknown name is a misspelt one.
        known = {
            family.name + end for family in families for end in ENDINGS.get(family.type, ("",))
        }
        assert name in known, f"{name} is none of {sorted(known)}"
        samples = [sample for family in families for sample in family.samples]
        return sum(
            sample.value
            for sample in samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def stop(self) -> None:
        """Send SIGTERM and wait until the process has ended."""
        self._processes.end(self.name, seconds=60)

    def _started(self) -> dict[str, Any] | None:
        self._processes.check(self.name)
        return next((line for line in self.log() if line.get("event") == "serving"), None)


def folder_of(pair: KeyPairFiles, folder: Path) -> Path:
    """Write `pair` into `folder` under the names that a Secret has, and return `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tls.crt").write_bytes(pair.certificate.read_bytes())
    (folder / "tls.key").write_bytes(pair.key.read_bytes())
    return folder


def by_url(url: str, bundle: bytes) -> Callable[[str], dict[str, Any]]:
    """`clientConfig` of a server that the API server reaches by URL."""
    encoded = base64.b64encode(bundle).decode()
    return lambda path: {"url": url + path, "caBundle": encoded}


def by_service(
    service: str, namespace: str, port: int, bundle: bytes
) -> Callable[[str], dict[str, Any]]:
    """`clientConfig` of a server behind a Service."""
    encoded = base64.b64encode(bundle).decode()
    service_ref = {"name": service, "namespace": namespace, "port": port}
    return lambda path: {"service": {**service_ref, "path": path}, "caBundle": encoded}


@contextmanager
def registered(
    plane: Cluster,
    client_config: Callable[[str], dict[str, Any]],
    options: RegistrationOptions | None = None,
    *,
    name: str = "gpuward-test",
    only: str | None = None,
    condition: str = "",
) -> Iterator[None]:
    """Register a server until the end of the block; with `only`, for that namespace alone.

    `condition` is a CEL match condition for pods.
    By default only namespaces with the mode label are enforced, so that tests do not disturb
    each other.
    """
    # Under failurePolicy Ignore a slow response counts as none, so the timeout is long.
    options_used = options or RegistrationOptions(default=Action.OFF, timeout_seconds=30)
    manifests = configurations(name, client_config, options_used)
    paths = [
        f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations"
        for kind in ("mutating", "validating")
    ]
    for path, configuration in zip(paths, manifests, strict=True):
        for entry in configuration["webhooks"]:
            if condition and not entry["name"].startswith("workloads."):
                entry["matchConditions"] = [{"name": "may-concern-a-rule", "expression": condition}]
        if only is not None:
            term = {"key": NAME_LABEL, "operator": "In", "values": [only]}
            for entry in configuration["webhooks"]:
                selector = entry["namespaceSelector"]
                entry["namespaceSelector"] = {
                    "matchExpressions": [*selector["matchExpressions"], term]
                }
        plane.create(path, configuration)
    try:
        yield
    finally:
        for path in paths:
            plane.request("DELETE", f"{path}/{name}")


def is_enforced(plane: Cluster, namespace: str) -> bool:
    """Whether gpuward refuses a pod that sees all GPUs without requesting one in `namespace`."""
    bypass = pod(container(**variable("all")))
    answer = create(plane, namespace, bypass, dry_run=True)
    return answer.status == REFUSED and "gpuward" in str(answer.body)


def create(
    plane: Cluster, namespace: str, manifest: Any, *, dry_run: bool = False, user: str = ""
) -> Response:
    """Create a Pod or an object of a built-in workload kind, as admin or as `user`."""
    kinds = {"Pod": "pods", "Deployment": "deployments", "Job": "jobs", "CronJob": "cronjobs"}
    group = manifest["apiVersion"]
    root = "/api/v1" if group == "v1" else f"/apis/{group}"
    path = f"{root}/namespaces/{namespace}/{kinds[manifest['kind']]}"
    body = {**manifest, "metadata": {**manifest.get("metadata", {}), "namespace": namespace}}
    headers = {"Impersonate-User": user, "Impersonate-Group": "system:masters"} if user else {}
    return plane.request("POST", path + ("?dryRun=All" if dry_run else ""), body, headers)


@pytest.fixture(scope="session")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """The processes of the servers that tests start; they are stopped at the end."""
    running = Processes(tmp_path_factory.mktemp("servers"))
    yield running
    running.stop()


@pytest.fixture(scope="session")
def server(
    plane: ControlPlane, processes: Processes, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A server with the default policy, registered for namespaces with the mode label."""
    folder = tmp_path_factory.mktemp("gpuward")
    pair = plane.authority.issue("gpuward", hosts=["127.0.0.1"])
    certificate = folder_of(pair, folder / "certificate")
    serving = Server(processes, folder, certificate, arguments=("--drain-seconds", "0"))
    with registered(plane, by_url(serving.url, plane.authority.bundle)):
        probe = plane.namespace({MODE_LABEL: "deny"})
        eventually(lambda: is_enforced(plane, probe), what="the webhook is called")
        yield serving

"""What tests do with a running control plane."""

from __future__ import annotations

import itertools
import json
import subprocess
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.testkit.control_plane import objects
from tests.testkit.control_plane.build import Programs
from tests.testkit.control_plane.client import Answer, Client
from tests.testkit.control_plane.pki import Authority
from tests.testkit.control_plane.processes import is_free
from tests.testkit.control_plane.servers import Servers

HTTP_REFUSED = 300


class Cluster:
    """The API server as its users see it: as admin, unless said otherwise."""

    def __init__(self, programs: Programs) -> None:
        self.programs = programs
        self._numbers = itertools.count(1)
        self._addresses = itertools.cycle(range(2, 255))
        self._servers: Servers

    @property
    def url(self) -> str:
        """Where the API server is."""
        return self._servers.settings.url

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig file of a user who may do everything."""
        return self._servers.kubeconfig

    @property
    def authority(self) -> Authority:
        """The control plane's certificate authority, good for a webhook's certificate too."""
        return self._servers.authority

    def kubectl(
        self,
        *arguments: str,
        input: str | None = None,  # noqa: A002  as subprocess calls it
        check: bool = True,
        kubeconfig: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as admin, or with a `kubeconfig`; `input` is what it reads from `-f -`.

        With `check`, a failure is an AssertionError that holds what kubectl wrote.
        """
        done = self.run("kubectl", *arguments, input=input, kubeconfig=kubeconfig)
        if check and done.returncode:
            raise AssertionError(f"kubectl {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done

    def run(
        self,
        program: str,
        *arguments: str,
        input: str | None = None,  # noqa: A002  as subprocess calls it
        kubeconfig: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run `kubectl`, `helm3` or `helm4` against this control plane; no failure is raised."""
        return subprocess.run(
            [str(self.programs[program]), *arguments],
            env=self._servers.environment(kubeconfig or self.kubeconfig),
            input=input if input is not None else "",
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Answer:
        """One request as admin, over a connection that is kept: (status, body, warnings).

        `body` is sent as JSON, or as it is if it is bytes. Any number of threads may ask.
        """
        return self._servers.client.request(method, path, body, headers, content_type)

    def create(self, path: str, manifest: Any) -> Any:
        """POST `manifest` as admin and return the created object; AssertionError if refused."""
        answer = self.request("POST", path, manifest)
        if answer.status >= HTTP_REFUSED:
            raise AssertionError(f"POST {path}: {answer.status} {answer.body}")
        return answer.body

    def client(self, token: str) -> Client:
        """A client with the same `request`, for whoever has that token."""
        return self._servers.client_for(token)

    def token(self, service_account: str, namespace: str) -> str:
        """A fresh token of an existing service account."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{service_account}/token"
        token: str = self.create(path, objects.token_request())["status"]["token"]
        return token

    def kubeconfig_for(self, token: str) -> Path:
        """A kubeconfig file for whoever has that token."""
        return self._servers.write_kubeconfig(f"user-{next(self._numbers)}", {"token": token})

    def namespace(self, labels: dict[str, str] | None = None) -> str:
        """The name of a new namespace in which pods can be made."""
        name = f"test-{next(self._numbers)}"
        self.create("/api/v1/namespaces", objects.namespace(name, labels or {}))
        self._wait_for_account(name)
        return name

    def gpu_node(
        self,
        name: str,
        *,
        gpus: int = 8,
        taint: bool = True,
        labels: dict[str, str] | None = None,
        resource: str = "nvidia.com/gpu",
    ) -> None:
        """Add a node with GPUs that exists only in name; with controllers it is soon ready.

        Its taint, if it gets one, has the resource's name: `nvidia.com/gpu=present:NoSchedule`.
        """
        node = objects.gpu_node(name, resource, gpus, labels or {}, taint=taint)
        self.create("/api/v1/nodes", node)

    def service_address(self, port: int) -> str:
        """A Service address on which one can listen at `port` (above 1023, unless root)."""
        network = self._servers.settings.services
        for number in itertools.islice(self._addresses, 253):
            if is_free(address := f"{network}.{number}", port):
                return address
        raise AssertionError(f"nothing is free at port {port} in {network}.0/24")

    def expose(self, service: str, namespace: str, port: int) -> str:
        """Make a Service and return its address: listen there, at `port`, to be called."""
        path = f"/api/v1/namespaces/{namespace}/services"
        while True:
            address = self.service_address(port)
            answer = self.request("POST", path, objects.service(service, address, port))
            if answer.status < HTTP_REFUSED:
                return address
            if "already allocated" not in str(answer.body):
                raise AssertionError(f"POST {path}: {answer.status} {answer.body}")

    def metrics(self) -> dict[str, list[tuple[dict[str, str], float]]]:
        """The API server's metrics: by name, the labels and the value of each sample.

        Names of counters end in `_total`, whether they do at the API server or not.
        """
        found: dict[str, list[tuple[dict[str, str], float]]] = {}
        for family in text_string_to_metric_families(self.request("GET", "/metrics").body):
            for sample in family.samples:
                found.setdefault(sample.name, []).append((sample.labels, sample.value))
        return found

    def audit_events(self) -> list[dict[str, Any]]:
        """The audit log, oldest event first; an event is there soon after its answer."""
        lines = self._servers.settings.audit_log.read_bytes().split(b"\n")
        # What follows the last end of line is still being written.
        return [json.loads(line) for line in lines[:-1]]

    def _wait_for_account(self, namespace: str) -> None:
        """Wait for the account without which a namespace takes no pods."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        if not self._servers.has_controllers:
            self.create(path, objects.service_account("default"))
        self._servers.wait("GET", f"{path}/default")

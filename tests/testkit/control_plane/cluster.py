"""Methods with which tests use a running control plane."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.testkit.control_plane import objects
from tests.testkit.control_plane.build import Programs
from tests.testkit.control_plane.client import Client, Response
from tests.testkit.control_plane.pki import Authority, KeyPairFiles
from tests.testkit.control_plane.processes import PATIENCE, eventually, is_free
from tests.testkit.control_plane.servers import Servers

HTTP_REFUSED = 300


class Cluster:
    """The API server as its users see it. Requests are sent as admin, unless stated otherwise."""

    def __init__(self, programs: Programs) -> None:
        self.programs = programs
        self._numbers = itertools.count(1)
        self._addresses = itertools.cycle(range(2, 255))
        self._servers: Servers

    @property
    def url(self) -> str:
        """The URL of the API server."""
        return self._servers.settings.url

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig file of a cluster administrator."""
        return self._servers.kubeconfig

    @property
    def authority(self) -> Authority:
        """The control plane's certificate authority, which can also issue webhook certificates."""
        return self._servers.authority

    def kubectl(
        self,
        *arguments: str,
        input: str | None = None,  # noqa: A002  as subprocess calls it
        check: bool = True,
        kubeconfig: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as admin, or with a `kubeconfig`; `input` is what it reads from `-f -`.

        With `check`, a failure raises AssertionError with the output of kubectl.
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
        variables: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run `kubectl`, `helm3` or `helm4` as admin; a failure raises no error.

        `variables` are added to its environment.
        """
        environment = self._servers.environment(kubeconfig or self.kubeconfig)
        return subprocess.run(
            [str(self.programs[program]), *arguments],
            env={**environment, **(variables or {})},
            input=input if input is not None else "",
            capture_output=True,
            text=True,
            check=False,
            # Longer than TIMEOUT, which holds for each hook of helm and then for the rest.
            timeout=400 * PATIENCE,
        )

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Response:
        """Send a request as admin over a persistent connection.

        `body` is sent as JSON, or unchanged if it is bytes. Any number of threads may call this.
        """
        return self._servers.client.request(method, path, body, headers, content_type)

    def create(self, path: str, manifest: Any) -> Any:
        """POST `manifest` as admin and return the created object; AssertionError if refused."""
        answer = self.request("POST", path, manifest)
        if answer.status >= HTTP_REFUSED:
            raise AssertionError(f"POST {path}: {answer.status} {answer.body}")
        return answer.body

    def client(self, token: str) -> Client:
        """A client with the same method `request`, which authenticates with `token`."""
        return self._servers.client_for(token)

    def token(self, service_account: str, namespace: str) -> str:
        """A new token of an existing service account."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{service_account}/token"
        token: str = self.create(path, objects.token_request())["status"]["token"]
        return token

    def kubeconfig_for(self, token: str) -> Path:
        """A kubeconfig file that authenticates with `token`."""
        return self._servers.write_kubeconfig(f"user-{next(self._numbers)}", {"token": token})

    def kubeconfig_with(self, pair: KeyPairFiles) -> Path:
        """A kubeconfig file that authenticates with a certificate."""
        user = {"client-certificate": str(pair.certificate), "client-key": str(pair.key)}
        return self._servers.write_kubeconfig(f"user-{next(self._numbers)}", user)

    def namespace(self, labels: dict[str, str] | None = None) -> str:
        """Create a namespace in which pods can be created, and return its name."""
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
        """Add a simulated node with GPUs; if the controllers run, return when it is ready.

        The key of its taint is the name of the resource: `nvidia.com/gpu=present:NoSchedule`.
        """
        node = objects.gpu_node(name, resource, gpus, labels or {}, taint=taint)
        self.create("/api/v1/nodes", node)
        if self._servers.has_controllers:
            eventually(lambda: self._is_ready(name), what=f"the node {name} is ready")

    def service_address(self, port: int) -> str:
        """A Service address on which `port` is free (above 1023, unless the user is root)."""
        network = self._servers.settings.services
        for number in itertools.islice(self._addresses, 253):
            if is_free(address := f"{network}.{number}", port):
                return address
        raise AssertionError(f"nothing is free at port {port} in {network}.0/24")

    def expose(self, service: str, namespace: str, port: int) -> str:
        """Create a Service and return its address, on which a server must listen at `port`."""
        path = f"/api/v1/namespaces/{namespace}/services"
        while True:
            address = self.service_address(port)
            answer = self.request("POST", path, objects.service(service, address, port))
            if answer.status < HTTP_REFUSED:
                return address
            if "already allocated" not in str(answer.body):
                raise AssertionError(f"POST {path}: {answer.status} {answer.body}")

    def metrics(self, prefix: str) -> dict[str, list[tuple[dict[str, str], float]]]:
        """The API server's metrics with this prefix: the labels and value of each sample, by name.

        Every name of a counter ends in `_total` here, even if it does not at the API server.
        """
        found: dict[str, list[tuple[dict[str, str], float]]] = {}
        # To parse all of them takes a second.
        lines = re.findall(
            rf"^(?:# (?:HELP|TYPE) )?{prefix}.*\n",
            self.request("GET", "/metrics").body,
            re.MULTILINE,
        )
        for family in text_string_to_metric_families("".join(lines)):
            for sample in family.samples:
                found.setdefault(sample.name, []).append((sample.labels, sample.value))
        return found

    def audit_events(self) -> list[dict[str, Any]]:
        """The audit log, oldest event first; an event appears shortly after the response."""
        lines = self._servers.settings.audit_log.read_bytes().split(b"\n")
        # The API server may still be writing the last line.
        return [json.loads(line) for line in lines[:-1]]

    def _is_ready(self, node: str) -> bool:
        """Return whether a node has lost the taint with which every node begins."""
        taints = self.request("GET", f"/api/v1/nodes/{node}").body["spec"].get("taints", ())
        return not any(taint["key"] == "node.kubernetes.io/not-ready" for taint in taints)

    def _wait_for_account(self, namespace: str) -> None:
        """Wait for the service account without which a namespace accepts no pods."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        if not self._servers.has_controllers:
            self.create(path, objects.service_account("default"))
        self._servers.wait("GET", f"{path}/default")

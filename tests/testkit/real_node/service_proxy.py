"""kube-proxy for all Services, whose addresses are those of the loopback interface here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from tests.testkit.admission.forwarder import Forwarder
from tests.testkit.background import BackgroundThread
from tests.testkit.control_plane.cluster import Cluster

POLL_SECONDS = 0.1
_SLICES = "/apis/discovery.k8s.io/v1/endpointslices"
_SERVICE = "kubernetes.io/service-name"
Port = tuple[str, int]
"""The address and the port of a Service."""


class ServiceProxy(BackgroundThread):
    """Forwards connections to the ready endpoints of each Service, until the block ends.

    The Service `kubernetes` leads to the API server.
    """

    def __init__(self, plane: Cluster) -> None:
        super().__init__("service-proxy")
        self._plane = plane
        self._api_server = plane.url.removeprefix("https://")
        self._forwarders: dict[Port, Forwarder] = {}
        self._endpoints: dict[Port, set[str]] = {}
        self._stack = ExitStack()

    def run(self) -> None:
        """Follow the Services and their endpoints."""
        while not self.stopping.wait(POLL_SECONDS):
            services = self._plane.request("GET", "/api/v1/services").body["items"]
            slices = self._plane.request("GET", _SLICES).body["items"]
            for service in services:
                for port, endpoints in self._ports(service, slices):
                    self._forward(port, endpoints)

    def _ports(self, service: Any, slices: list[Any]) -> Iterator[tuple[Port, set[str]]]:
        metadata, spec = service["metadata"], service["spec"]
        if spec.get("clusterIP", "None") == "None":
            return
        for port in spec["ports"]:
            address = spec["clusterIP"], port["port"]
            if metadata["name"] == "kubernetes":
                yield address, {self._api_server}
                continue
            yield (
                address,
                {
                    f"{ip}:{one['port']}"
                    for each in slices
                    if each["metadata"]["namespace"] == metadata["namespace"]
                    and each["metadata"]["labels"].get(_SERVICE) == metadata["name"]
                    for one in each["ports"] or ()
                    if one.get("name", "") == port.get("name", "")
                    for endpoint in each["endpoints"] or ()
                    if endpoint["conditions"].get("ready")
                    for ip in endpoint["addresses"]
                },
            )

    def _forward(self, port: Port, endpoints: set[str]) -> None:
        if port not in self._forwarders:
            self._forwarders[port] = self._stack.enter_context(Forwarder(*port))
        forwarder, present = self._forwarders[port], self._endpoints.get(port, set())
        for endpoint in endpoints - present:
            forwarder.add(endpoint)
        for endpoint in present - endpoints:
            forwarder.remove(endpoint)
        self._endpoints[port] = endpoints

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)
        self._stack.close()

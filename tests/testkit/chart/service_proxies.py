"""kube-proxy for the webhook's Services that a user installs by hand."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType

from tests.testkit.admission.forwarder import Forwarder
from tests.testkit.background import BackgroundThread
from tests.testkit.control_plane.cluster import Cluster

POLL_SECONDS = 0.2
PORT = 443
SERVICES = "/api/v1/services?labelSelector=app.kubernetes.io%2Fpart-of%3Dgpuward"


class ServiceProxies(BackgroundThread):
    """Listens at the address of the chart's Service as long as it exists, until the block ends.

    `forwarders` has the forwarder of each namespace with such a Service, for `Kubelet`.
    """

    def __init__(self, plane: Cluster) -> None:
        super().__init__("service-proxies")
        self.forwarders: dict[str, Forwarder] = {}
        self._plane = plane
        self._addresses: dict[str, str] = {}
        self._open: dict[str, ExitStack] = {}

    def run(self) -> None:
        """Follow the Services."""
        while not self.stopping.wait(POLL_SECONDS):
            found = {
                service["metadata"]["namespace"]: service["spec"]["clusterIP"]
                for service in self._plane.request("GET", SERVICES).body["items"]
                if service["spec"]["clusterIP"] != "None"
            }
            for namespace, address in {**self._addresses}.items():
                if found.get(namespace) != address:
                    self._close(namespace)
            for namespace in found.keys() - self._addresses.keys():
                self._addresses[namespace] = found[namespace]
                self._open[namespace] = ExitStack()
                forwarder = Forwarder(found[namespace], PORT)
                self.forwarders[namespace] = self._open[namespace].enter_context(forwarder)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)
        for namespace in [*self._addresses]:
            self._close(namespace)

    def _close(self, namespace: str) -> None:
        del self._addresses[namespace], self.forwarders[namespace]
        self._open.pop(namespace).close()

"""A node whose pods run as processes of this machine, for the pods of the chart."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.testkit.admission.forwarder import Forwarder
from tests.testkit.background import BackgroundThread
from tests.testkit.chart.container_logs import LogServer
from tests.testkit.chart.node import READY, TAINT, node_object
from tests.testkit.chart.pod_process import PodProcess, PodRuntime
from tests.testkit.chart.simulated_pod import SimulatedPod
from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.control_plane.processes import Processes

NODE = "processes"
POLL_SECONDS = 0.2
# As often as a kubelet looks for containers that have ended
POLL_SECONDS_IN_CLUSTER = 1.0
# Frequent enough that the control plane does not mark the node as not ready.
HEARTBEAT_SECONDS = 10.0


class Kubelet(BackgroundThread):
    """Simulates the kubelet of one node while its context is open; kwok ignores that node.

    The chart's `values` schedule its pods on this node. A pod becomes ready, completes or fails
    as its process does. A pod that is being deleted is removed once its process has ended. Pods
    of others than gpuward run no process.

    This class simulates kube-proxy too: `proxies` maps a namespace to the forwarder that listens
    at the address of its Service. The ready webhook pods get the connections, at their port
    called `https`.

    With `as_in_cluster`, the node has no taint, and processes that end are started again.
    """

    def __init__(
        self,
        plane: Cluster,
        folder: Path,
        *,
        node: str = NODE,
        as_in_cluster: bool = False,
        proxies: dict[str, Forwarder] | None = None,
    ) -> None:
        super().__init__(f"kubelet-{node}")
        self.proxies: dict[str, Forwarder] = {} if proxies is None else proxies
        processes = Processes(folder)
        self._held_volumes = threading.Event()
        self._runtime = PodRuntime(plane, processes, folder, as_in_cluster, self._held_volumes)
        self._poll_seconds = POLL_SECONDS_IN_CLUSTER if as_in_cluster else POLL_SECONDS
        self._node, self._taints = node, [] if as_in_cluster else [TAINT]
        certificate = plane.authority.issue(f"kubelet-{node}", hosts=["127.0.0.1"])
        self._logs = LogServer(self._log_file, certificate.server_context())
        self._pods: dict[str, PodProcess | SimulatedPod] = {}
        self._endpoints: dict[str, tuple[Forwarder, str]] = {}
        self._failure: Exception | None = None
        self._last_heartbeat = 0.0

    @property
    def values(self) -> dict[str, Any]:
        """Chart values that schedule the chart's pods on this node, where no other pods run."""
        toleration = {"key": TAINT["key"], "operator": "Exists", "effect": TAINT["effect"]}
        return {"nodeSelector": {"kubernetes.io/hostname": NODE}, "tolerations": [toleration]}

    def pods(self, namespace: str, component: str) -> list[PodProcess]:
        """The pods of a component whose process runs and is not being terminated."""
        self.check()
        return [
            pod
            for pod in list(self._pods.values())
            if isinstance(pod, PodProcess)
            and (pod.namespace, pod.component) == (namespace, component)
            and pod.is_serving
        ]

    @contextmanager
    def holding_volumes(self) -> Iterator[None]:
        """Keep volumes of running pods as they are, as a kubelet does for up to two minutes."""
        self._held_volumes.set()
        try:
            yield
        finally:
            self._held_volumes.clear()

    def log(self, namespace: str, pod: str) -> str:
        """The output of a pod, also of one that is deleted."""
        file = self._runtime.processes.log(f"{namespace}-{pod}")
        return file.read_text(encoding="utf-8", errors="replace")

    def check(self) -> None:
        """Raise an error if the kubelet's thread has failed."""
        if self._failure:
            raise RuntimeError("the kubelet has failed") from self._failure

    def __enter__(self) -> Self:
        node = node_object(self._node, self._taints, self._logs.port)
        self._runtime.plane.create("/api/v1/nodes", node)
        self._logs.start()
        return super().__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            for pod in self._pods.values():
                pod.kill()
            self._runtime.processes.stop()
            self._logs.stop()
            self._runtime.plane.request("DELETE", f"/api/v1/nodes/{self._node}")

    def run(self) -> None:
        """Sync the pods and send heartbeats."""
        try:
            while not self.stopping.wait(self._poll_seconds):
                self._send_heartbeat()
                self._sync_pods()
        except Exception as error:  # noqa: BLE001  # `check` raises it in the test
            self._failure = error

    def _send_heartbeat(self) -> None:
        if time.monotonic() < self._last_heartbeat + HEARTBEAT_SECONDS:
            return
        self._last_heartbeat = time.monotonic()
        path = f"/api/v1/nodes/{self._node}/status"
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        body = {"status": {"conditions": [{**READY, "lastHeartbeatTime": now}]}}
        content_type = "application/merge-patch+json"
        answer = self._runtime.plane.request("PATCH", path, body, content_type=content_type)
        assert answer.status == 200, answer

    def _sync_pods(self) -> None:
        path = f"/api/v1/pods?fieldSelector=spec.nodeName%3D{self._node}"
        found = {
            pod["metadata"]["uid"]: pod
            for pod in self._runtime.plane.request("GET", path).body["items"]
        }
        for uid in self._pods.keys() - found.keys():
            self._pods.pop(uid).kill()
            self._set_endpoint(uid, None)
        self._write_replicas()
        for uid, manifest in found.items():
            if uid not in self._pods:
                self._pods[uid] = self._new_pod(manifest)
            pod = self._pods[uid]
            pod.sync(manifest)
            if isinstance(pod, PodProcess):
                is_ready = pod.ready and pod.component == "webhook"
                self._set_endpoint(uid, pod if is_ready else None)

    def _write_replicas(self) -> None:
        """Write the addresses behind the headless Services, also of pods that are not ready."""
        addresses: dict[str, list[str]] = {namespace: [] for namespace in self.proxies}
        for pod in self._pods.values():
            if isinstance(pod, PodProcess) and pod.component == "webhook" and pod.is_running:
                host = pod.endpoint("https").rpartition(":")[0]
                addresses.setdefault(pod.namespace, []).append(host)
        for namespace, found in addresses.items():
            file = self._runtime.replicas_file(namespace)
            new = file.with_suffix(".new")
            new.write_text("\n".join(found), encoding="utf-8")
            new.replace(file)

    def _new_pod(self, manifest: Any) -> PodProcess | SimulatedPod:
        if manifest["metadata"].get("labels", {}).get("app.kubernetes.io/part-of") == "gpuward":
            return PodProcess(self._runtime, manifest)
        return SimulatedPod(self._runtime.plane, manifest)

    def _log_file(self, namespace: str, name: str, previous: bool) -> Path | None:  # noqa: FBT001
        for pod in list(self._pods.values()):
            metadata = pod.manifest["metadata"]
            if (metadata["namespace"], metadata["name"]) == (namespace, name):
                return pod.log_file(previous=previous)
        return None

    def _set_endpoint(self, uid: str, pod: PodProcess | None) -> None:
        """Add a pod to the Service's endpoints; None removes the pod with this uid.

        A Service that is created again has another forwarder.
        """
        wanted = self.proxies.get(pod.namespace) if pod else None
        if uid in self._endpoints and self._endpoints[uid][0] is not wanted:
            proxy, endpoint = self._endpoints.pop(uid)
            proxy.remove(endpoint)
        if pod and wanted and uid not in self._endpoints:
            endpoint = pod.endpoint("https")
            wanted.add(endpoint)
            self._endpoints[uid] = wanted, endpoint

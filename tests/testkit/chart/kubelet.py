"""A node whose pods run as processes of this machine; for the pods of the chart."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.testkit.admission.forwarder import Forwarder
from tests.testkit.chart.pod_process import PodProcess, World
from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.control_plane.processes import Processes

NODE = "processes"
TAINT = {"key": "gpuward-tests", "value": "processes", "effect": "NoSchedule"}
PAUSE = 0.2
# Often enough for a node not to be taken for dead.
BEAT = 10.0


class Kubelet:
    """Plays the kubelet of a node of its own until the block is left; kwok leaves that node alone.

    Pods come here by `values`, and become ready, complete, fail and go as their processes do, so
    whoever waits for them waits for the processes. A pod that is asked to go is gone once
    its process has ended.

    It plays kube-proxy too: `proxies` has by namespace who listens at the Service there. Ready
    pods with a port called `https` get its connections.
    """

    def __init__(self, plane: Cluster, folder: Path) -> None:
        self.proxies: dict[str, Forwarder] = {}
        self._world = World(plane, Processes(folder), folder)
        self._pods: dict[str, PodProcess] = {}
        self._led: dict[str, tuple[Forwarder, str]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kubelet")
        self._failure: Exception | None = None
        self._beaten = 0.0

    @property
    def values(self) -> dict[str, Any]:
        """Values of the chart by which its pods come to this node, and no others do."""
        tolerated = {"key": TAINT["key"], "operator": "Exists", "effect": TAINT["effect"]}
        return {"nodeSelector": {"kubernetes.io/hostname": NODE}, "tolerations": [tolerated]}

    def pods(self, namespace: str, component: str) -> list[PodProcess]:
        """The pods of that component whose process runs and is not asked to end."""
        self.check()
        return [
            pod
            for pod in list(self._pods.values())
            if (pod.namespace, pod.component) == (namespace, component) and pod.serves
        ]

    def log(self, namespace: str, pod: str) -> str:
        """What a pod has written, also one that is gone."""
        file = self._world.processes.log(f"{namespace}-{pod}")
        return file.read_text(encoding="utf-8", errors="replace")

    def check(self) -> None:
        """Raise what has gone wrong."""
        if self._failure:
            raise RuntimeError("the kubelet has failed") from self._failure

    def __enter__(self) -> Self:
        self._world.plane.create("/api/v1/nodes", _node())
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        for pod in self._pods.values():
            pod.kill()
        self._world.processes.stop()
        self._world.plane.request("DELETE", f"/api/v1/nodes/{NODE}")

    def _run(self) -> None:
        try:
            while not self._stop.wait(PAUSE):
                self._beat()
                self._round()
        except Exception as error:  # noqa: BLE001  # whoever asks next is told
            self._failure = error

    def _beat(self) -> None:
        if time.monotonic() < self._beaten + BEAT:
            return
        self._beaten = time.monotonic()
        path = f"/api/v1/nodes/{NODE}/status"
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        told = {"status": {"conditions": [{**READY, "lastHeartbeatTime": now}]}}
        content_type = "application/merge-patch+json"
        answer = self._world.plane.request("PATCH", path, told, content_type=content_type)
        assert answer.status == 200, answer

    def _round(self) -> None:
        here = f"/api/v1/pods?fieldSelector=spec.nodeName%3D{NODE}"
        found = {
            pod["metadata"]["uid"]: pod
            for pod in self._world.plane.request("GET", here).body["items"]
        }
        for uid in self._pods.keys() - found.keys():
            self._pods.pop(uid).kill()
            self._lead(uid, None)
        for uid, manifest in found.items():
            if uid not in self._pods:
                self._pods[uid] = PodProcess(self._world, manifest)
            pod = self._pods[uid]
            pod.look(manifest)
            self._lead(uid, pod if pod.ready and pod.component == "webhook" else None)

    def _lead(self, uid: str, pod: PodProcess | None) -> None:
        """Have the Service lead to a pod, or not any more."""
        if pod is None:
            if uid in self._led:
                proxy, endpoint = self._led.pop(uid)
                proxy.remove(endpoint)
        elif uid not in self._led and (found := self.proxies.get(pod.namespace)):
            endpoint = pod.endpoint("https")
            found.add(endpoint)
            self._led[uid] = found, endpoint


READY = {"type": "Ready", "status": "True", "reason": "Played", "message": ""}


def _node() -> dict[str, Any]:
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    labels = {"kubernetes.io/hostname": NODE, "kubernetes.io/os": "linux"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": NODE, "labels": labels},
        "spec": {"taints": [TAINT]},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [READY]},
    }

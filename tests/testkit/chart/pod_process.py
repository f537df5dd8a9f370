"""Run a pod of the chart as a process of this machine, and report its status as a kubelet does."""

from __future__ import annotations

import http.client
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.testkit.chart.mounted_volumes import pod_volumes
from tests.testkit.chart.pod_arguments import PodArguments
from tests.testkit.chart.pod_status import pod_status, write_status
from tests.testkit.chart.pod_variables import pod_variables
from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.control_plane.processes import Processes
from tests.testkit.paths import ROOT

CLUSTER_DNS = ROOT / "tests" / "testkit" / "chart" / "cluster_dns"
# As kubelets do it: the first restart at once, the second after ten seconds, then twice as long.
BACK_OFF_SECONDS = 10.0
MAX_BACK_OFF_SECONDS = 300.0


class PodRuntime(NamedTuple):
    """The needs of the pods of a node: the control plane, the processes and a folder.

    Without `restarts`, a process that ends is not started again, as during a kubelet's back-off.
    While `held_volumes` is set, pods that run see no new content of their volumes.
    """

    plane: Cluster
    processes: Processes
    folder: Path
    restarts: bool
    held_volumes: threading.Event

    def replicas_file(self, namespace: str) -> Path:
        """Return the file with the addresses behind the headless Service of a namespace."""
        return self.folder / f"replicas-{namespace}"


class PodProcess:
    """The process of one pod: `gpuward` with the arguments of the pod's container.

    `PodArguments` says how they differ, because the process has no network and no file system of
    its own.
    """

    def __init__(self, runtime: PodRuntime, manifest: Any) -> None:
        self.manifest = manifest
        self.ready = self._finished = False
        #: The process ID; 0 until the process is started
        self.process_id = 0
        self._runtime = runtime
        self._is_started = self._is_terminating = False
        self._restarts = 0
        self._restart_at: float | None = None
        home = runtime.folder / manifest["metadata"]["uid"]
        self._volumes = pod_volumes(runtime.plane, manifest, home)
        address = runtime.plane.service_address(10250)
        self._arguments = PodArguments(runtime.plane, manifest, address, self._volumes)
        self.endpoint = self._arguments.endpoint

    @property
    def name(self) -> str:
        """The name of its process, which is another one after each restart."""
        return self._process_name(self._restarts)

    def _process_name(self, restarts: int) -> str:
        name = f"{self.namespace}-{self.manifest['metadata']['name']}"
        return f"{name}-{restarts}" if restarts else name

    def log_file(self, *, previous: bool) -> Path | None:
        """The output of the process, or of the `previous` one before the last restart."""
        number = self._restarts - previous
        return self._runtime.processes.log(self._process_name(number)) if number >= 0 else None

    @property
    def namespace(self) -> str:
        """The pod's namespace."""
        return str(self.manifest["metadata"]["namespace"])

    @property
    def component(self) -> str:
        """The component of gpuward, by the pod's label."""
        return str(self.manifest["metadata"]["labels"]["app.kubernetes.io/component"])

    def sync(self, manifest: Any) -> None:
        """Take the next step that a kubelet would take for the pod's current manifest."""
        self.manifest = manifest
        if "deletionTimestamp" in manifest["metadata"]:
            self._terminate()
        elif self._finished:
            return
        elif not self._is_started:
            # A pod starts only when all of its volumes can be mounted, also that of its token.
            if self._mount():
                self._start()
        else:
            if not self._runtime.held_volumes.is_set():
                self._mount()
            self._update_status()

    @property
    def is_running(self) -> bool:
        """Return whether the process runs, also while it is being terminated."""
        return self._is_running

    @property
    def is_serving(self) -> bool:
        """Return whether the process runs and is not being terminated."""
        return self._is_running and not self._is_terminating

    def kill(self) -> None:
        """Kill the process (SIGKILL)."""
        if self._is_running:
            os.kill(self.process_id, signal.SIGKILL)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let the process do nothing meanwhile: SIGSTOP, and SIGCONT afterwards."""
        os.kill(self.process_id, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.process_id, signal.SIGCONT)

    @property
    def _container(self) -> Any:
        (only,) = self.manifest["spec"]["containers"]
        return only

    @property
    def _is_running(self) -> bool:
        return self._is_started and self._runtime.processes.exit_status(self.name) is None

    def _mount(self) -> bool:
        """Update the content of the volumes; returns whether all could be updated."""
        results = [volume.sync() for volume in self._volumes.values()]
        return all(results)

    def _start(self) -> bool:
        """Start the process, and return whether that could be done."""
        arguments = self._arguments.build()
        if arguments is None:
            return False
        variables = pod_variables(self.manifest, self._container)
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{CLUSTER_DNS}:{ROOT}",
            "HOME": "/nonexistent",
            "REPLICAS_FILE": str(self._runtime.replicas_file(self.namespace)),
        }
        command = [sys.executable, "-m", "gpuward", *arguments]
        self._runtime.processes.start(self.name, command, {**environment, **variables})
        self.process_id = self._runtime.processes.ids[self.name]
        self._is_started = True
        self._report("Running")
        return True

    def _update_status(self) -> None:
        status = self._runtime.processes.exit_status(self.name)
        if status is None:
            ready = self._is_ready()
            if ready != self.ready:
                self.ready = ready
                self._report("Running")
        elif self.manifest["spec"]["restartPolicy"] == "Never":
            self._finished, self.ready = True, False
            self._report("Failed" if status else "Succeeded", status)
        elif self._restart_at is None:
            self.ready = False
            back_off = BACK_OFF_SECONDS * 2 ** (self._restarts - 1) if self._restarts else 0
            self._restart_at = time.monotonic() + min(back_off, MAX_BACK_OFF_SECONDS)
            self._report("Running", status)
        elif self._runtime.restarts and time.monotonic() >= self._restart_at:
            self._restarts += 1
            if self._start():
                self._restart_at = None
            else:
                self._restarts -= 1

    def _is_ready(self) -> bool:
        probe = self._container.get("readinessProbe", {}).get("httpGet")
        if probe is None:
            return True
        host, _, port = self.endpoint(probe["port"]).rpartition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=5)
        try:
            connection.request("GET", probe["path"])
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def _terminate(self) -> None:
        self.ready = False
        if self._is_running:
            if not self._is_terminating:
                os.kill(self.process_id, signal.SIGTERM)
            self._is_terminating = True
            return
        uid = self.manifest["metadata"]["uid"]
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        self._runtime.plane.request("DELETE", self._path, options)

    def _report(self, phase: str, exit_status: int | None = None) -> None:
        status = pod_status(
            phase,
            self._container,
            ready=self.ready,
            exit_status=exit_status,
            process_id=self.process_id,
            restarts=self._restarts,
        )
        write_status(self._runtime.plane, self._path, status)

    @property
    def _path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.manifest['metadata']['name']}"

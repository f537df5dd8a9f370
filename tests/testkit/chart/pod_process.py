"""Run a pod of the chart as a process of this machine, and report its status as a kubelet does."""

from __future__ import annotations

import http.client
import os
import signal
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tests.testkit.chart.mounted_volumes import pod_volumes
from tests.testkit.chart.pod_status import pod_status
from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.control_plane.processes import Processes, free_port
from tests.testkit.paths import ROOT

LISTEN_OPTIONS = ("--listen=", "--metrics-listen=")


class PodRuntime(NamedTuple):
    """What the pods of a node need to run: the control plane, the processes and a folder."""

    plane: Cluster
    processes: Processes
    folder: Path


class PodProcess:
    """The process of one pod: `gpuward` with the arguments of the pod's container.

    The process shares this machine's network and file system. Some arguments are different,
    therefore:

    * `--listen=:PORT` and `--metrics-listen=:PORT` get a loopback address of the pod's own,
      and `--status-port` gets a free port;
    * the mount path of a volume becomes the folder with the volume's content;
    * where the pod mounts a token, `--kubeconfig` has a token of the same account;
    * `webhooks check` gets the address of the Service.
    """

    def __init__(self, runtime: PodRuntime, manifest: Any) -> None:
        self.manifest = manifest
        self.name = f"{self.namespace}-{manifest['metadata']['name']}"
        self.ready = self._finished = False
        #: The process ID; 0 until the process is started
        self.process_id = 0
        self._runtime = runtime
        self._address = runtime.plane.service_address(10250)
        self._ports: dict[int, str] = {}
        self._is_started = self._is_terminating = False
        home = runtime.folder / manifest["metadata"]["uid"]
        self._volumes = pod_volumes(runtime.plane, manifest, home)

    @property
    def namespace(self) -> str:
        """The pod's namespace."""
        return str(self.manifest["metadata"]["namespace"])

    @property
    def component(self) -> str:
        """The component of gpuward, by the pod's label."""
        return str(self.manifest["metadata"]["labels"]["app.kubernetes.io/component"])

    def endpoint(self, port: str) -> str:
        """HOST:PORT of the container port called `port`."""
        ports = self._container.get("ports", [])
        number = next(p["containerPort"] for p in ports if p["name"] == port)
        return self._ports.get(number, f"{self._address}:{number}")

    def sync(self, manifest: Any) -> None:
        """Take the next step that a kubelet would take for the pod's current manifest."""
        self.manifest = manifest
        if "deletionTimestamp" in manifest["metadata"]:
            self._terminate()
        elif self._finished:
            return
        elif not self._is_started:
            # A pod starts only when all of its volumes can be mounted.
            if self._mount():
                self._start()
        else:
            self._mount()
            self._update_status()

    @property
    def is_serving(self) -> bool:
        """Whether the process runs and is not being terminated."""
        return self._is_running and not self._is_terminating

    def kill(self) -> None:
        """Kill the process (SIGKILL)."""
        if self._is_running:
            os.kill(self.process_id, signal.SIGKILL)

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

    def _start(self) -> None:
        variables = {entry["name"]: entry["value"] for entry in self._container.get("env", [])}
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": "/nonexistent"}
        command = [sys.executable, "-m", "gpuward", *self._arguments()]
        self._runtime.processes.start(self.name, command, {**environment, **variables})
        self.process_id = self._runtime.processes.ids[self.name]
        self._is_started = True
        self._report("Running")

    def _arguments(self) -> list[str]:
        arguments = [self._translate(argument) for argument in self._container["args"]]
        spec, plane = self.manifest["spec"], self._runtime.plane
        if spec["automountServiceAccountToken"]:
            token = plane.token(spec["serviceAccountName"], self.namespace)
            arguments += ["--kubeconfig", str(plane.kubeconfig_for(token))]
        if arguments[:2] == ["webhooks", "check"]:
            arguments += ["--address", f"{self._service_address()}:443"]
        return arguments

    def _service_address(self) -> str:
        """The address of the namespace's only Service with one: the process has no cluster DNS."""
        path = f"/api/v1/namespaces/{self.namespace}/services"
        found = self._runtime.plane.request("GET", path).body["items"]
        (address,) = {service["spec"]["clusterIP"] for service in found} - {"None"}
        return str(address)

    def _translate(self, argument: str) -> str:
        flag, _, value = argument.partition("=")
        if argument.startswith(LISTEN_OPTIONS):
            return f"{flag}={self._address}{value}"
        if flag == "--status-port":
            self._ports[int(value)] = f"127.0.0.1:{free_port()}"
            return f"{flag}={self._ports[int(value)].rpartition(':')[2]}"
        for mount in self._container.get("volumeMounts", []):
            if mount["name"] in self._volumes:
                folder = str(self._volumes[mount["name"]].folder)
                argument = argument.replace(mount["mountPath"], folder)
        return argument

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
        elif self.ready:
            # The process is not restarted, as during the back-off of a kubelet.
            self.ready = False
            self._report("Running", status)

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
        status = pod_status(phase, self._container, ready=self.ready, exit_status=exit_status)
        path, body = f"{self._path}/status", {"status": status}
        content_type = "application/merge-patch+json"
        answer = self._runtime.plane.request("PATCH", path, body, content_type=content_type)
        assert answer.status in (200, 404), answer

    @property
    def _path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.manifest['metadata']['name']}"

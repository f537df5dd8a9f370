"""A pod of the chart as a process of this machine, and what a kubelet would report of it."""

from __future__ import annotations

import http.client
import os
import signal
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tests.testkit.chart.mounted_volumes import mounted
from tests.testkit.chart.pod_status import pod_status
from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.control_plane.processes import Processes, free_port
from tests.testkit.paths import ROOT

LISTENING = ("--listen=", "--metrics-listen=")


class World(NamedTuple):
    """Where pods run."""

    plane: Cluster
    processes: Processes
    folder: Path


class PodProcess:
    """`gpuward` with the arguments of the pod's container, as the API server has them.

    What is different, because there is no network and no file system of its own:

    * `--listen=:PORT` gets a loopback address of the pod's own before its port,
      and `--status-port` a free port;
    * paths at which a volume is mounted become the folder that follows the volume;
    * where the pod mounts a token, `--kubeconfig` names one of the same account;
    * `webhooks check` is told where the Service is.
    """

    def __init__(self, world: World, manifest: Any) -> None:
        self.manifest = manifest
        self.name = f"{self.namespace}-{manifest['metadata']['name']}"
        self.ready = self._over = False
        #: Its process, once it is started
        self.process_id = 0
        self._world = world
        self._address = world.plane.service_address(10250)
        self._ports: dict[int, str] = {}
        self._started = self._ending = False
        home = world.folder / manifest["metadata"]["uid"]
        self._volumes = mounted(world.plane, manifest, home)

    @property
    def namespace(self) -> str:
        """Where the pod is."""
        return str(self.manifest["metadata"]["namespace"])

    @property
    def component(self) -> str:
        """Which part of gpuward it is."""
        return str(self.manifest["metadata"]["labels"]["app.kubernetes.io/component"])

    def endpoint(self, port: str) -> str:
        """HOST:PORT of what the container calls `port`."""
        ports = self._container.get("ports", [])
        number = next(p["containerPort"] for p in ports if p["name"] == port)
        return self._ports.get(number, f"{self._address}:{number}")

    def look(self, manifest: Any) -> None:
        """Do the next thing that a kubelet would do, now that the pod looks like this."""
        self.manifest = manifest
        if "deletionTimestamp" in manifest["metadata"]:
            self._leave()
        elif self._over:
            return
        elif not self._started:
            # Until all is there that it mounts, a pod is not started.
            if self._mount():
                self._start()
        else:
            self._mount()
            self._watch()

    @property
    def serves(self) -> bool:
        """Whether its process runs and has not been asked to end."""
        return self._running and not self._ending

    def kill(self) -> None:
        """End the process without asking it."""
        if self._running:
            os.kill(self.process_id, signal.SIGKILL)

    @property
    def _container(self) -> Any:
        (only,) = self.manifest["spec"]["containers"]
        return only

    @property
    def _running(self) -> bool:
        return self._started and self._world.processes.exit_status(self.name) is None

    def _mount(self) -> bool:
        """Bring the volumes up to date; whether all could be."""
        done = [volume.sync() for volume in self._volumes.values()]
        return all(done)

    def _start(self) -> None:
        given = {entry["name"]: entry["value"] for entry in self._container.get("env", [])}
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": "/nonexistent"}
        command = [sys.executable, "-m", "gpuward", *self._arguments()]
        self._world.processes.start(self.name, command, {**environment, **given})
        self.process_id = self._world.processes.ids[self.name]
        self._started = True
        self._report("Running")

    def _arguments(self) -> list[str]:
        arguments = [self._mapped(argument) for argument in self._container["args"]]
        spec, plane = self.manifest["spec"], self._world.plane
        if spec["automountServiceAccountToken"]:
            token = plane.token(spec["serviceAccountName"], self.namespace)
            arguments += ["--kubeconfig", str(plane.kubeconfig_for(token))]
        if arguments[:2] == ["webhooks", "check"]:
            arguments += ["--address", f"{self._service_address()}:443"]
        return arguments

    def _service_address(self) -> str:
        """Where the one Service of the namespace is that has an address: there is no DNS here."""
        path = f"/api/v1/namespaces/{self.namespace}/services"
        found = self._world.plane.request("GET", path).body["items"]
        (address,) = {service["spec"]["clusterIP"] for service in found} - {"None"}
        return str(address)

    def _mapped(self, argument: str) -> str:
        flag, _, value = argument.partition("=")
        if argument.startswith(LISTENING):
            return f"{flag}={self._address}{value}"
        if flag == "--status-port":
            self._ports[int(value)] = f"127.0.0.1:{free_port()}"
            return f"{flag}={self._ports[int(value)].rpartition(':')[2]}"
        for mount in self._container.get("volumeMounts", []):
            if mount["name"] in self._volumes:
                folder = str(self._volumes[mount["name"]].folder)
                argument = argument.replace(mount["mountPath"], folder)
        return argument

    def _watch(self) -> None:
        status = self._world.processes.exit_status(self.name)
        if status is None:
            ready = self._is_ready()
            if ready != self.ready:
                self.ready = ready
                self._report("Running")
        elif self.manifest["spec"]["restartPolicy"] == "Never":
            self._over, self.ready = True, False
            self._report("Failed" if status else "Succeeded", status)
        elif self.ready:
            # It is not started again, as if its node were waiting ever longer to do that.
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

    def _leave(self) -> None:
        self.ready = False
        if self._running:
            if not self._ending:
                os.kill(self.process_id, signal.SIGTERM)
            self._ending = True
            return
        uid = self.manifest["metadata"]["uid"]
        now = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        self._world.plane.request("DELETE", self._path, now)

    def _report(self, phase: str, exit_status: int | None = None) -> None:
        told = pod_status(phase, self._container, ready=self.ready, exit_status=exit_status)
        path, sent = f"{self._path}/status", {"status": told}
        content_type = "application/merge-patch+json"
        answer = self._world.plane.request("PATCH", path, sent, content_type=content_type)
        assert answer.status in (200, 404), answer

    @property
    def _path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.manifest['metadata']['name']}"

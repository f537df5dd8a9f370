"""The arguments of a pod's container, for a process of this machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.testkit.chart.mounted_volumes import Volume
from tests.testkit.control_plane.cluster import HTTP_REFUSED, Cluster
from tests.testkit.control_plane.objects import token_request
from tests.testkit.control_plane.processes import free_port

LISTEN_OPTIONS = ("--listen=", "--metrics-listen=")


class PodArguments:
    """The arguments of the only container of a pod, some of them changed.

    The process shares this machine's network and file system, therefore:

    * `--listen=:PORT`, `--listen=*` and `--metrics-listen=:PORT` get `address`, a loopback address
      of the pod's own, and `--status-port` gets a free port;
    * the mount path of a volume becomes the folder with the volume's content;
    * where the pod mounts a token, `--kubeconfig` has a token of the same account;
    * `webhooks check` gets the address of the Service.
    """

    def __init__(
        self, plane: Cluster, manifest: Any, address: str, volumes: Mapping[str, Volume]
    ) -> None:
        self._plane = plane
        self._spec = manifest["spec"]
        self._namespace = manifest["metadata"]["namespace"]
        (self._container,) = self._spec["containers"]
        self._address = address
        self._volumes = volumes
        self._ports: dict[int, str] = {}

    def endpoint(self, port: str) -> str:
        """HOST:PORT of the container port called `port`."""
        ports = self._container.get("ports", [])
        number = next(p["containerPort"] for p in ports if p["name"] == port)
        return self._ports.get(number, f"{self._address}:{number}")

    def build(self) -> list[str] | None:
        """The arguments for a process that starts now; None while its account gets no token.

        That is so if the account, or its namespace, is being deleted.
        """
        arguments = [self._translate(argument) for argument in self._container["args"]]
        if self._spec["automountServiceAccountToken"]:
            account = f"serviceaccounts/{self._spec['serviceAccountName']}"
            path = f"/api/v1/namespaces/{self._namespace}/{account}/token"
            answer = self._plane.request("POST", path, token_request())
            if answer.status >= HTTP_REFUSED:
                return None
            token = answer.body["status"]["token"]
            arguments += ["--kubeconfig", str(self._plane.kubeconfig_for(token))]
        if arguments[:2] == ["webhooks", "check"]:
            arguments += ["--address", f"{self._service_address()}:443"]
        return arguments

    def _service_address(self) -> str:
        """The address of the webhook's Service: the process has no cluster DNS."""
        label = "labelSelector=app.kubernetes.io/component=webhook"
        path = f"/api/v1/namespaces/{self._namespace}/services?{label}"
        found = self._plane.request("GET", path).body["items"]
        (address,) = {service["spec"]["clusterIP"] for service in found} - {"None"}
        return str(address)

    def _translate(self, argument: str) -> str:
        flag, _, value = argument.partition("=")
        if argument.startswith(LISTEN_OPTIONS):
            return f"{flag}={self._address}{value.removeprefix('*')}"
        if flag == "--status-port":
            self._ports[int(value)] = f"127.0.0.1:{free_port()}"
            return f"{flag}={self._ports[int(value)].rpartition(':')[2]}"
        for mount in self._container.get("volumeMounts", []):
            if mount["name"] in self._volumes:
                folder = str(self._volumes[mount["name"]].folder)
                argument = argument.replace(mount["mountPath"], folder)
        return argument

"""Starts, restarts and stops the programs of one control plane."""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.testkit.control_plane import flags
from tests.testkit.control_plane.build import Programs
from tests.testkit.control_plane.client import Client
from tests.testkit.control_plane.pki import Authority, KeyPairFiles, signing_keys
from tests.testkit.control_plane.processes import Processes, eventually, free_port
from tests.testkit.control_plane.toolchain import BuildError

ALWAYS = ("etcd", "kube-apiserver")
CONTROLLERS = ("kube-controller-manager", "kube-scheduler", "kwok")
# Go collects garbage when the heap has grown by this percentage, by default 100: 40 percent of what
# an API server does that compiles policies. Above the limit it collects more often.
FEWER_COLLECTIONS: Mapping[str, str] = {"GOGC": "400", "GOMEMLIMIT": "1536MiB"}


class Servers:
    """The programs of a control plane, with their keys and certificates in `folder`.

    Without `controllers` there are only etcd and the API server; `without_controllers` are single
    ones of kube-controller-manager that do not run. `api_server_flags` are added to
    the flags of the API server, and `go_settings` to the environment of all programs;
    `feature_gates` are switched on. Raises BuildError if a program is missing.
    """

    def __init__(
        self,
        folder: Path,
        programs: Programs,
        *,
        controllers: bool,
        without_controllers: Sequence[str],
        api_server_flags: Sequence[str],
        feature_gates: Sequence[str] = (),
        services: str = "",
        go_settings: Mapping[str, str] = FEWER_COLLECTIONS,
    ) -> None:
        self.has_controllers = controllers
        self._go_settings = go_settings
        self._without_controllers = without_controllers
        self.commands = {name: str(programs[name]) for name in ALWAYS + CONTROLLERS * controllers}
        self._stages = programs.stages
        if controllers and not self._stages:
            raise BuildError("the folder `stages` of kwok is missing")
        self.settings = flags.Settings(folder, free_port(), free_port(), free_port(), services)
        self.authority = Authority(folder)
        self._feature_gates = flags.feature_gates(feature_gates)
        self._api_server_flags = list(api_server_flags)
        hosts = ["127.0.0.1", "localhost", "kubernetes.default.svc", f"{self.settings.services}.1"]
        self._server = self.authority.issue("kube-apiserver", hosts=hosts)
        self._tokens = signing_keys(folder, "service-accounts")
        admin = self.authority.issue("admin", groups=["system:masters"])
        #: The kubeconfig file of a cluster administrator
        self.kubeconfig = self.write_kubeconfig("admin", _files(admin))
        self._clients: list[Client] = []
        self.client = self._client(admin, None)
        self.processes = Processes(folder)

    def start(self) -> None:
        """Start all programs and wait until they are ready; ProcessError if one ends."""
        self._start("etcd", flags.etcd(self.settings))
        self._start_api_server()
        if not self.has_controllers:
            return
        arguments = (self.kubeconfig, self.authority.file, self._tokens)
        manager = flags.controller_manager(*arguments, without=self._without_controllers)
        self._start("kube-controller-manager", manager + self._feature_gates)
        # With its own name: gpuward lets it write what no other user may.
        own = self.authority.issue("scheduler", common_name="system:kube-scheduler")
        kubeconfig = self.write_kubeconfig("scheduler", _files(own))
        self._start("kube-scheduler", flags.scheduler(kubeconfig) + self._feature_gates)
        self._start("kwok", flags.kwok(self.kubeconfig, self._stages))

    def restart_api_server(self) -> None:
        """End the API server, start it again on the same port, and wait until it is ready."""
        for client in self._clients:
            client.close()
        # A graceful shutdown waits for open watches, and the controllers never close theirs.
        self.processes.end("kube-apiserver", seconds=1)
        self._start_api_server()

    def stop(self) -> None:
        """End all programs."""
        for client in self._clients:
            client.close()
        self.processes.stop()

    def client_for(self, token: str) -> Client:
        """A client that authenticates with `token`; it is closed when the servers stop."""
        return self._client(None, token)

    def environment(self, kubeconfig: Path) -> dict[str, str]:
        """The environment of a server or a client, without the developer's own settings."""
        home = str(self.settings.folder)
        own = {"PATH": os.defpath, "HOME": home, "KUBECONFIG": str(kubeconfig)}
        return {**own, **self._go_settings}

    def write_kubeconfig(self, name: str, user: dict[str, str]) -> Path:
        """Write a kubeconfig file with the credentials `user`, in the format of a kubeconfig."""
        cluster = {"server": self.settings.url, "certificate-authority": str(self.authority.file)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": name, "context": {"cluster": "test", "user": name}}],
            "current-context": name,
        }
        file = self.settings.folder / f"{name}.kubeconfig"
        file.touch(mode=0o600)
        file.write_text(json.dumps(config), encoding="utf-8")
        return file

    def wait(self, method: str, path: str, *, seconds: float = 60, **arguments: Any) -> None:
        """Wait until the request succeeds; ProcessError if a program ends meanwhile."""

        def succeeds() -> bool:
            self.processes.check()
            try:
                return self.client.request(method, path, **arguments).status < 300
            except OSError:
                return False

        eventually(succeeds, seconds=seconds, what=f"{method} {path}")

    def _client(self, pair: KeyPairFiles | None, token: str | None) -> Client:
        context = ssl.create_default_context(cafile=self.authority.file)
        if pair:
            context.load_cert_chain(pair.certificate, pair.key)
        client = Client(self.settings.port, context, token)
        self._clients.append(client)
        return client

    def _start(self, name: str, arguments: list[str]) -> None:
        environment = self.environment(self.kubeconfig)
        self.processes.start(name, [self.commands[name], *arguments], environment)

    def _start_api_server(self) -> None:
        arguments = (self.authority.file, self._server, self._tokens)
        own = flags.api_server(self.settings, *arguments)
        self._start("kube-apiserver", own + self._feature_gates + self._api_server_flags)
        # It compiles the policies of files before it answers.
        self.wait("GET", "/readyz", seconds=240)


def _files(pair: KeyPairFiles) -> dict[str, str]:
    return {"client-certificate": str(pair.certificate), "client-key": str(pair.key)}

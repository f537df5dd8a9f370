"""A registered webhook for `gpuward webhooks check`, and the credentials to check it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from cluster.api.errors import ConfigurationKind
from rules.finding import Action
from tests.testkit.admission.registered_webhook import by_service, registered
from tests.testkit.admission.server_process import Server
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.paths import ROOT
from webhook.registration import RegistrationOptions

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
SERVICE, PORT = "gpuward", 8443
OPTIONS = RegistrationOptions(Action.OFF, failure_policy="Fail", timeout_seconds=3)
PATHS = [f"/{kind}/{mode}" for kind in ("validate", "mutate") for mode in ("deny", "warn", "audit")]
ENVIRONMENT = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": "/nonexistent"}


class Installation(NamedTuple):
    """A webhook server, and the kubeconfig file that may read its configurations."""

    plane: ControlPlane
    namespace: str
    server: Server
    kubeconfig: Path
    folder: Path

    @property
    def name(self) -> str:
        return f"gpuward-{self.namespace}"

    @property
    def url(self) -> str:
        return f"https://{SERVICE}.{self.namespace}.svc:{PORT}"

    def client_config(self, service: str = SERVICE, bundle: bytes | None = None) -> Any:
        trusted = self.plane.authority.bundle if bundle is None else bundle
        return by_service(service, self.namespace, PORT, trusted)

    def registered(self, client_config: Any = None) -> Any:
        """Register it for its own namespace alone, in which no test creates objects."""
        chosen = client_config or self.client_config()
        return registered(self.plane, chosen, OPTIONS, name=self.name, only=self.namespace)

    def edit(self, kind: ConfigurationKind, operation: str, path: str, value: Any = None) -> None:
        """Change one value of a configuration."""
        patch = [{"op": operation, "path": path, "value": value}]
        content_type = "application/json-patch+json"
        path_of_object = f"{ADMISSION}/{kind.value}/{self.name}"
        answer = self.plane.request("PATCH", path_of_object, patch, content_type=content_type)
        assert answer.status == 200, answer

    def command(self, *arguments: str, address: str | None = None) -> list[str]:
        configurations = [
            f"--{kind}-configuration={self.name}" for kind in ("mutating", "validating")
        ]
        options = ["--address", address or self.server.address, *arguments]
        if "--kubeconfig" not in arguments:
            options += ["--kubeconfig", str(self.kubeconfig)]
        return [sys.executable, "-m", "gpuward", "webhooks", "check", *configurations, *options]

    def check(
        self, *arguments: str, address: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        command = self.command(*arguments, address=address)
        return subprocess.run(
            command, capture_output=True, text=True, check=False, env=ENVIRONMENT, timeout=300
        )

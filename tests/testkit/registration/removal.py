"""Webhook configurations on a real API server, and credentials to remove them with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from cluster.api.errors import ConfigurationKind
from rules.finding import Action
from tests.testkit.chart.permissions import REMOVAL_ACCOUNT
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.paths import ROOT
from webhook.registration import RegistrationOptions, configurations

ADMISSION = "/apis/admissionregistration.k8s.io/v1"


class Removal(NamedTuple):
    """Two webhook configurations of one name, and credentials with and without rights."""

    plane: ControlPlane
    name: str
    namespace: str

    @property
    def hook_kubeconfig(self) -> Path:
        """The kubeconfig file of the chart's hook."""
        return self.plane.kubeconfig_for(self.plane.token(REMOVAL_ACCOUNT, self.namespace))

    @property
    def unprivileged_kubeconfig(self) -> Path:
        """The kubeconfig file of an account without rights."""
        return self.plane.kubeconfig_for(self.plane.token("default", self.namespace))

    def register(self) -> None:
        """Create the configurations as the chart does; mode off selects no namespace."""
        manifests = configurations(
            self.name, lambda path: {"url": "https://127.0.0.1:1" + path}, MODE_OFF
        )
        for kind, manifest in zip(ConfigurationKind, manifests, strict=True):
            self.plane.create(f"{ADMISSION}/{kind.value}", manifest)

    def existing(self) -> set[ConfigurationKind]:
        """The kinds whose configuration exists."""
        statuses = {
            kind: self.plane.request("GET", self.path(kind)).status for kind in ConfigurationKind
        }
        assert set(statuses.values()) <= {200, 404}
        return {kind for kind, status in statuses.items() if status == 200}

    def path(self, kind: ConfigurationKind) -> str:
        return f"{ADMISSION}/{kind.value}/{self.name}"

    def edit(self, kind: ConfigurationKind, path: str, value: Any) -> None:
        """Set one value of a configuration."""
        patch = [{"op": "add", "path": path, "value": value}]
        content_type = "application/json-patch+json"
        answer = self.plane.request("PATCH", self.path(kind), patch, content_type=content_type)
        assert answer.status == 200, answer

    def run(self, kubeconfig: Path, *more: str) -> subprocess.CompletedProcess[str]:
        options = [f"--{kind}-configuration={self.name}" for kind in ("mutating", "validating")]
        return remove("--kubeconfig", str(kubeconfig), *options, *more)


MODE_OFF = RegistrationOptions(Action.OFF)


def remove(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `gpuward webhooks remove` with an empty home folder."""
    base_environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": "/nonexistent"}
    command = [sys.executable, "-m", "gpuward", "webhooks", "remove", *arguments]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**base_environment, **environment},
    )

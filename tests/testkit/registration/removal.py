"""Webhook configurations on a real API server, and who may remove them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from cluster.api import ConfigurationKind
from registration.configurations import RegistrationOptions, configurations
from rules.finding import Action
from tests.testkit.chart.permissions import REMOVER
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.paths import ROOT

ADMISSION = "/apis/admissionregistration.k8s.io/v1"


class Removal(NamedTuple):
    """Two webhook configurations of one name, and who may take them away."""

    plane: ControlPlane
    name: str
    namespace: str

    @property
    def hook(self) -> Path:
        """The credentials of the chart's hook."""
        return self.plane.kubeconfig_for(self.plane.token(REMOVER, self.namespace))

    @property
    def stranger(self) -> Path:
        """The credentials of somebody who may do nothing."""
        return self.plane.kubeconfig_for(self.plane.token("default", self.namespace))

    def register(self) -> None:
        """Make what a chart makes; no pod is ever sent there."""
        made = configurations(self.name, lambda path: {"url": "https://127.0.0.1:1" + path}, NOBODY)
        for kind, manifest in zip(ConfigurationKind, made, strict=True):
            self.plane.create(f"{ADMISSION}/{kind.value}", manifest)

    def there(self) -> set[ConfigurationKind]:
        """Those that exist."""
        asked = {
            kind: self.plane.request("GET", self.path(kind)).status for kind in ConfigurationKind
        }
        assert set(asked.values()) <= {200, 404}
        return {kind for kind, status in asked.items() if status == 200}

    def path(self, kind: ConfigurationKind) -> str:
        return f"{ADMISSION}/{kind.value}/{self.name}"

    def edit(self, kind: ConfigurationKind, path: str, value: Any) -> None:
        """Set one value of a configuration."""
        sent = [{"op": "add", "path": path, "value": value}]
        content_type = "application/json-patch+json"
        answer = self.plane.request("PATCH", self.path(kind), sent, content_type=content_type)
        assert answer.status == 200, answer

    def run(self, kubeconfig: Path) -> subprocess.CompletedProcess[str]:
        named = [f"--{kind}-configuration={self.name}" for kind in ("mutating", "validating")]
        return remove("--kubeconfig", str(kubeconfig), *named)


NOBODY = RegistrationOptions(Action.OFF)


def remove(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`gpuward webhooks remove`, in a home with nothing in it."""
    seen = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": "/nonexistent"}
    command = [sys.executable, "-m", "gpuward", "webhooks", "remove", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env={**seen, **environment}
    )

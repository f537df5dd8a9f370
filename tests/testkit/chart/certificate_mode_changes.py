"""From one certificate mode of the chart to another, by the commands of docs/certificates.md."""

from __future__ import annotations

import base64
import os
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

from certs.pki.keypairs import parse_certificates
from tests.testkit.chart.cert_manager import CertManager
from tests.testkit.chart.certificate_modes import (
    SECRETS,
    fill_secret,
    new_signer,
    objects,
    trusted,
    values,
    wait_for_pods,
)
from tests.testkit.chart.installation import Installed
from tests.testkit.control_plane.processes import eventually
from tests.testkit.paths import ROOT

DOCUMENT = ROOT / "docs" / "certificates.md"


class Commands(NamedTuple):
    """The commands of the document, in its order."""

    beforehand: str
    prepare: str
    trust_both: str
    change: str
    trust_new: str
    trust_new_alone: str
    trust_given: str


def documented(namespace: str) -> Commands:
    """What the document says, for a release in `namespace`."""
    text = DOCUMENT.read_text(encoding="utf-8").replace("gpuward-system", namespace)
    _, _, text = text.partition("\n## Changing the mode\n")
    text, _, _ = text.partition("\n## ")
    found = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    return Commands(*("\n".join(re.findall(r"\$ (.*)", block)) for block in found))


class Changing:
    """An installation that goes from mode to mode; it begins with mode `self`.

    The commands find helm, kubectl and the chart in `folder`, and leave their files there.
    """

    def __init__(self, installed: Installed, cert_manager: CertManager, folder: Path) -> None:
        self.installed = installed
        self.mode = "self"
        #: How often Helm has asked before it took a field over
        self.conflicts = 0
        self._cert_manager = cert_manager
        self._folder = folder
        self._commands = documented(installed.namespace)
        for name, program in (("helm", installed.program), ("kubectl", "kubectl")):
            (folder / name).symlink_to(installed.plane.programs[program])
        (folder / "charts").symlink_to(ROOT / "charts")
        installed.install(values("self"))
        self._hurry()
        self._wait_for_trust(b"")

    def change(self, mode: str) -> None:
        """All steps of the way to another mode."""
        self._run(self._commands.beforehand)
        fresh = self._prepare(mode)
        change = self._commands.change.replace("MODE", mode)
        if mode == "self":
            change = change.replace("both.pem", "old.pem")
        else:
            (self._folder / "new.pem").write_bytes(fresh)
            self._run(self._commands.trust_both)
            self._wait_for_trust((self._folder / "both.pem").read_bytes())
        if mode == "existingSecret":
            change += f" --set certificates.existingSecret.name={SECRETS[mode]}"
        self._run(change)
        self.mode = mode
        self._wait_for_trust((self._folder / "old.pem").read_bytes() + fresh)
        wait_for_pods(self.installed, mode)
        self._run(
            self._commands.trust_given if mode == "existingSecret" else self._commands.trust_new
        )
        if mode == "certManager":
            self._run(self._commands.trust_new_alone)
        self._wait_for_trust(fresh)

    def upgrade_within(self) -> None:
        """Change something else."""
        self._run("upgrade --set registration.timeoutSeconds=29")

    def _prepare(self, mode: str) -> bytes:
        """The first step: the new certificate beside the old one. Its authority (PEM)."""
        if mode == "certManager":
            self._run(self._commands.prepare)
            return self._cert_manager.authority("gpuward", self.installed.namespace)
        if mode == "existingSecret":
            signer = new_signer(self.installed)
            fill_secret(self.installed, signer)
            return signer.certificate_pem
        return b""

    def _run(self, command: str) -> None:
        """Commands of the document. Where Helm asks, it is told to go on."""
        done = self._bash(command)
        if "conflict" in done.stderr and self.installed.program == "helm4":
            assert "clientConfig.caBundle" in done.stderr
            self.conflicts += 1
            done = self._bash(f"{command} --force-conflicts")
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        if "Deployment/gpuward-certs" in objects(self.installed):
            self._hurry()

    def _bash(self, command: str) -> subprocess.CompletedProcess[str]:
        shorthand = self._commands.beforehand.splitlines()[-1]
        return subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", f"{shorthand}\n{command}"],
            cwd=self._folder,
            env={
                "PATH": f"{self._folder}:{os.environ['PATH']}",
                "HOME": str(self._folder),
                "KUBECONFIG": str(self.installed.plane.kubeconfig),
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=400,
        )

    def _wait_for_trust(self, given: bytes) -> None:
        """Wait until these authorities are trusted; in mode `self`, ours too; and no others."""

        def ask() -> bool:
            wanted = set(parse_certificates(given))
            if "Secret/gpuward-ca" in objects(self.installed):
                data = self.installed.get("secret/gpuward-ca")["data"]
                wanted |= set(parse_certificates(base64.b64decode(data["ca.crt"])))
            return trusted(self.installed) == wanted

        eventually(ask, seconds=100, what="the authorities are published")

    def _hurry(self) -> None:
        """Let our controller look around every second, so that nobody has to wait for it."""
        command = ("set", "env", "deployment/gpuward-certs", "GPUWARD_CERTS_INTERVAL=1")
        self.installed.plane.kubectl(*command, "-n", self.installed.namespace)

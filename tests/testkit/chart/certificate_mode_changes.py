"""Change the certificate mode of the chart with the commands of docs/certificates.md."""

from __future__ import annotations

import base64
import os
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

from certs.keypairs import parse_certificates
from tests.testkit.chart.cert_manager import CertManager
from tests.testkit.chart.certificate_modes import (
    SECRETS,
    fill_secret,
    new_signer,
    release_objects,
    trusted_authorities,
    values,
    wait_for_pods,
)
from tests.testkit.chart.installation import Installation
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
    overwriting: str  # the options of Helm 4


def documented_commands(namespace: str) -> Commands:
    """The commands of the document, for a release in `namespace`."""
    text = DOCUMENT.read_text(encoding="utf-8").replace("gpuward-system", namespace)
    text = text.replace("oci://ghcr.io/gpuward/charts/gpuward", "charts/gpuward")
    _, _, text = text.partition("\n## Changing the mode\n")
    text, _, _ = text.partition("\n## ")
    found = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    options = re.findall(r"\n`(--server-side.*?)`", text)
    blocks = ["\n".join(re.findall(r"\$ (.*)", block)) for block in found]
    return Commands(*blocks, *options)


class ModeChanger:
    """Changes the certificate mode of an installation, which starts in mode `self`.

    `folder` has helm, kubectl and the chart for the commands, and gets the files they write.
    """

    def __init__(
        self,
        installation: Installation,
        cert_manager: CertManager,
        folder: Path,
        *,
        installed_by: str = "",
    ) -> None:
        """`installed_by` is the version of Helm that installs the chart, if it is another one.

        Then Helm 4 gets its options without waiting for a conflict, as the document says it.
        """
        self.installation = installation
        self.mode = "self"
        #: How often Helm has reported a conflict about a field of another manager
        self.conflicts = 0
        self._cert_manager = cert_manager
        self._folder = folder
        self._commands = documented_commands(installation.namespace)
        for name, program in (("helm", installation.program), ("kubectl", "kubectl")):
            (folder / name).symlink_to(installation.plane.programs[program])
        (folder / "charts").symlink_to(ROOT / "charts")
        self._overwriting = f" {self._commands.overwriting}" if installed_by else ""
        changed_by = installation.program
        installation.program = installed_by or changed_by
        installation.install(values("self"))
        installation.program = changed_by
        self._shorten_interval()
        self._wait_for_trust(b"")

    def change(self, mode: str) -> None:
        """Run all documented steps from the current mode to another."""
        self._run(self._commands.beforehand)
        authority = self._prepare(mode)
        change = self._commands.change.replace("MODE", mode)
        if mode == "self":
            change = change.replace("both.pem", "old.pem")
        else:
            (self._folder / "new.pem").write_bytes(authority)
            self._run(self._commands.trust_both)
            self._wait_for_trust((self._folder / "both.pem").read_bytes())
        if mode == "existingSecret":
            change += f" --set certificates.existingSecret.name={SECRETS[mode]}{self._overwriting}"
        self._run(change)
        self.mode = mode
        self._wait_for_trust((self._folder / "old.pem").read_bytes() + authority)
        wait_for_pods(self.installation, mode)
        trust_given = self._commands.trust_given + self._overwriting
        self._run(trust_given if mode == "existingSecret" else self._commands.trust_new)
        if mode == "certManager":
            self._run(self._commands.trust_new_alone)
        self._wait_for_trust(authority)

    def upgrade_in_mode(self) -> None:
        """Upgrade the release without a change of the mode."""
        self._run("upgrade --set registration.timeoutSeconds=29")

    def _prepare(self, mode: str) -> bytes:
        """Run the first step, which creates the new certificate; returns its authority (PEM)."""
        if mode == "certManager":
            self._run(self._commands.prepare)
            return self._cert_manager.authority("gpuward", self.installation.namespace)
        if mode == "existingSecret":
            signer = new_signer(self.installation)
            fill_secret(self.installation, signer)
            return signer.certificate_pem
        return b""

    def _run(self, command: str) -> None:
        """Run commands of the document; after a conflict, once more with the options for that."""
        done = self._bash(command)
        if "conflict" in done.stderr and self.installation.program == "helm4":
            assert "clientConfig.caBundle" in done.stderr
            self.conflicts += 1
            done = self._bash(f"{command} {self._commands.overwriting}")
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        if "Deployment/gpuward-certs" in release_objects(self.installation):
            self._shorten_interval()

    def _bash(self, command: str) -> subprocess.CompletedProcess[str]:
        shorthand = self._commands.beforehand.splitlines()[-1]
        return subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", f"{shorthand}\n{command}"],
            cwd=self._folder,
            env={
                "PATH": f"{self._folder}:{os.environ['PATH']}",
                "HOME": str(self._folder),
                "KUBECONFIG": str(self.installation.plane.kubeconfig),
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=400,
        )

    def _wait_for_trust(self, given: bytes) -> None:
        """Wait until exactly these authorities are trusted, and the controller's if it has one."""

        def is_trusted() -> bool:
            wanted = set(parse_certificates(given))
            if "Deployment/gpuward-certs" in release_objects(self.installation):
                data = self.installation.get("secret/gpuward-ca")["data"]
                wanted |= set(parse_certificates(base64.b64decode(data["ca.crt"])))
            return trusted_authorities(self.installation) == wanted

        eventually(is_trusted, seconds=100, what="the authorities are published")

    def _shorten_interval(self) -> None:
        """Make the certificate controller reconcile every second, to shorten the tests."""
        command = ("set", "env", "deployment/gpuward-certs", "GPUWARD_CERTS_INTERVAL=1")
        self.installation.plane.kubectl(*command, "-n", self.installation.namespace)

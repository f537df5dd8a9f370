"""Signatures by cosign, with a key in place of the identity that only GitHub gives the workflow."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.testkit.release.programs import COSIGN, program
from tests.testkit.release.servers import Registry

_OFFLINE_SIGNING = ("--use-signing-config=false", "--tlog-upload=false", "--key=cosign.key")
_OFFLINE_VERIFYING = ("--offline", "--insecure-ignore-tlog", "--key=cosign.pub")


class Signer:
    """Signs and verifies what is in the registry, and asks no transparency log."""

    def __init__(self, folder: Path, registry: Registry) -> None:
        self._folder = folder
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "COSIGN_PASSWORD": "",
            "SSL_CERT_FILE": str(registry.authority),
        }
        done = self._cosign("generate-key-pair")
        assert done.returncode == 0, done.stderr

    def sign(self, image: str, *options: str) -> None:
        """Sign IMAGE@DIGEST."""
        done = self._cosign("sign", "--yes", *_OFFLINE_SIGNING, *options, image)
        assert done.returncode == 0, done.stderr

    def attest(self, image: str, predicate: Path) -> None:
        """Attest that a file with CycloneDX's JSON lists the packages of IMAGE@DIGEST."""
        options = ("--yes", "--type=cyclonedx", f"--predicate={predicate}")
        done = self._cosign("attest", *options, *_OFFLINE_SIGNING, image)
        assert done.returncode == 0, done.stderr

    def verify_attestation(self, image: str) -> str:
        """Return why no such attestation is accepted; empty if one is."""
        done = self._cosign("verify-attestation", "--type=cyclonedx", *_OFFLINE_VERIFYING, image)
        return done.stderr if done.returncode else ""

    def verify(self, image: str) -> str:
        """Return why the signature of IMAGE@DIGEST is not accepted; empty if it is."""
        done = self._cosign("verify", *_OFFLINE_VERIFYING, image)
        return done.stderr if done.returncode else ""

    def _cosign(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [program(COSIGN), *arguments],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

"""A folder like the mount of a Secret."""

from __future__ import annotations

import contextlib
import itertools
from pathlib import Path

from certs.keypairs import KeyPair


class MountedSecret:
    """A folder like the kubelet's mount of a Secret: all files change at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._versions = itertools.count()
        folder.mkdir()

    def put(self, pair: KeyPair) -> None:
        """Replace the certificate by `pair`."""
        version = self.folder / f"..{next(self._versions)}"
        version.mkdir()
        (version / "tls.crt").write_bytes(pair.certificate_pem)
        (version / "tls.key").write_bytes(pair.key_pem)
        (self.folder / "..new").symlink_to(version.name)
        (self.folder / "..new").rename(self.folder / "..data")
        for name in ("tls.crt", "tls.key"):
            with contextlib.suppress(FileExistsError):
                (self.folder / name).symlink_to(f"..data/{name}")

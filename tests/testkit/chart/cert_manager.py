"""Run the real cert-manager with a control plane: its certificate controllers and its injector.

It is built once, like the control plane, from the Go module in `control_plane/cert-manager`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.testkit.control_plane.build import Programs
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import TIMEOUT, Processes, eventually
from tests.testkit.control_plane.sources import HERE
from tests.testkit.control_plane.toolchain import BuildError, build_once, cache, go_command, run
from tests.testkit.skipping import skip_missing

SOURCE = HERE / "cert-manager"
MODULE = "github.com/cert-manager/cert-manager"
KINDS = ("certificaterequests", "certificates", "clusterissuers", "issuers")


class CertManager:
    """Runs cert-manager while its context is open; its CRDs stay installed."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self._plane = plane
        self._programs = _programs()
        self._processes = Processes(folder)

    def authority(self, certificate: str, namespace: str) -> bytes:
        """The authority (PEM) of a Certificate, once cert-manager has issued it."""
        ready = ("--for=condition=Ready", TIMEOUT, "-n", namespace)
        self._plane.kubectl("wait", f"certificate/{certificate}", *ready)
        found = self._get(f"certificate/{certificate}", namespace)
        secret = self._get(f"secret/{found['spec']['secretName']}", namespace)
        return base64.b64decode(secret["data"]["ca.crt"])

    def renew(self, certificate: str, namespace: str) -> None:
        """Renew a Certificate as `cmctl renew` does: by setting the condition `Issuing`."""
        secret = self._get(f"certificate/{certificate}", namespace)["spec"]["secretName"]
        before = self._get(f"secret/{secret}", namespace)["data"]["tls.crt"]
        condition = {"type": "Issuing", "status": "True", "reason": "Asked", "message": ""}
        status = json.dumps({"status": {"conditions": [condition]}})
        patch = ("patch", f"certificate/{certificate}", "-n", namespace, "--subresource=status")
        self._plane.kubectl(*patch, "--type=merge", f"--patch={status}")

        def is_renewed() -> bool:
            return bool(self._get(f"secret/{secret}", namespace)["data"]["tls.crt"] != before)

        eventually(is_renewed, what=f"{certificate} is renewed")

    def __enter__(self) -> Self:
        files = [f"--filename={file}" for file in self._programs.crds]
        self._plane.kubectl("apply", "--server-side", "--force-conflicts", *files)
        # kubectl refuses to wait for an object that has no conditions yet.
        wait = ("wait", "--for=condition=Established", TIMEOUT)
        eventually(lambda: self._plane.kubectl(*wait, *files), what="its kinds are served")
        program = str(self._programs["cert-manager"])
        self._processes.start("cert-manager", [program, str(self._plane.kubeconfig)], {})
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._processes.stop()

    def _get(self, what: str, namespace: str) -> Any:
        return json.loads(self._plane.kubectl("get", what, "-n", namespace, "-o", "json").stdout)


def _programs() -> Programs:
    """The program and the `crds`; skips the test if they cannot be built."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    try:
        found = Programs((Path(assets) if assets else _built(),))
        _ = found["cert-manager"]
    except BuildError as error:
        skip_missing(str(error))
    return found


def _built() -> Path:
    go = go_command()
    files = [SOURCE / name for name in ("go.mod", "go.sum", "main.go")]
    platform = run([go, "env", "GOVERSION", "GOOS", "GOARCH"])
    key = hashlib.sha256("\0".join([platform, *(f.read_text() for f in files)]).encode())
    target = cache() / f"cert-manager-{key.hexdigest()[:12]}"
    with build_once(target) as folder:
        if folder:
            flags = ["-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags=-s -w"]
            run([go, "build", *flags, f"-o={folder / 'cert-manager'}", "."], SOURCE)
            home = Path(run([go, "list", "-m", "-f={{.Dir}}", MODULE], SOURCE).strip())
            (folder / "crds").mkdir()
            for kind in KINDS:
                name = f"cert-manager.io_{kind}.yaml"
                shutil.copyfile(home / "deploy" / "crds" / name, folder / "crds" / name)
    return target

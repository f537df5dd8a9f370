"""Release the chart as Flux's helm-controller does.

Its program is not a Go module that others can use. So a small program does with Helm's library and
Flux's own library for drift what helm-controller does with them: `control_plane/flux/main.go`. It
is built once, like the control plane. An example:

    def test_nothing_drifts(installation: Installation) -> None:
        flux = Flux(installation)
        flux.install({"mode": "deny"})
        assert flux.drift() == []
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

from tests.testkit.chart.installation import CHART, Installation, merge_values
from tests.testkit.control_plane import objects
from tests.testkit.control_plane.build import flux
from tests.testkit.control_plane.processes import PATIENCE
from tests.testkit.control_plane.toolchain import BuildError
from tests.testkit.skipping import skip_missing

_SECONDS = 100


class Flux:
    """The HelmRelease of an installation: its release, in its namespace, with its node's values.

    A HelmRelease is in a namespace that exists, so this creates it. A failure of Helm is an
    AssertionError with its text. The methods return what the program prints: of a release the
    `revision`, the `status` and the `applyMethod`, which is `ssa` or `csa`.
    """

    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        try:
            self._program = flux()
        except BuildError as error:
            skip_missing(str(error))
        namespace = objects.namespace(installation.namespace, {})
        installation.plane.create("/api/v1/namespaces", namespace)

    def install(self, values: Any, *, client_side: bool = False) -> Any:
        """The first reconciliation; `client_side` is `spec.install.serverSideApply: false`."""
        options = ["--client-side"] if client_side else []
        return self._run("install", *options, values=values)

    def upgrade(self, values: Any, *, force: bool = False, seconds: int = _SECONDS) -> Any:
        """A reconciliation with other values.

        `force` is `spec.upgrade.force`, and `seconds` is `spec.timeout`.
        """
        options = ["--force"] if force else []
        return self._run("upgrade", *options, values=values, seconds=seconds)

    def rollback(self) -> Any:
        """Roll back to the revision before, as Flux does after a failed upgrade."""
        return self._run("rollback")

    def uninstall(self) -> Any:
        """Delete the HelmRelease."""
        return self._run("uninstall")

    def drift(self) -> list[Any]:
        """The objects that differ from the release, each with its `kind`, `name`, `type`, `patch`.

        `type` is `create` for one that is missing, and `update` for one that differs by the
        JSON patch. As with `spec.driftDetection.mode: warn`.
        """
        found: list[Any] = self._run("drift")
        return found

    def correct(self) -> list[Any]:
        """Undo the drift, and return what it was, as with `spec.driftDetection.mode: enabled`."""
        found: list[Any] = self._run("correct")
        return found

    def _run(self, command: str, *options: str, values: Any = None, seconds: int = _SECONDS) -> Any:
        release = self._installation
        kubeconfig = release.plane.kubeconfig
        done = subprocess.run(
            [
                str(self._program),
                command,
                f"--kubeconfig={kubeconfig}",
                f"--namespace={release.namespace}",
                f"--release={release.release}",
                f"--chart={CHART}",
                f"--timeout={seconds}s",
                *options,
            ],
            env={"PATH": os.defpath, "HOME": str(kubeconfig.parent)},
            input=json.dumps(merge_values(release.node_values, values or {})),
            capture_output=True,
            text=True,
            check=False,
            timeout=(seconds + 60) * PATIENCE,
        )
        assert done.returncode == 0, f"flux {command}: {done.stdout}{done.stderr}"
        release.kubelet.check()
        return json.loads(done.stdout)

"""A pod that runs no process, for the pods of users."""

from __future__ import annotations

from typing import Any

from tests.testkit.chart.pod_status import write_status
from tests.testkit.control_plane.cluster import Cluster


class SimulatedPod:
    """A pod that becomes ready at once, or succeeds if it is not to be restarted."""

    def __init__(self, plane: Cluster, manifest: Any) -> None:
        self.manifest = manifest
        self._plane = plane
        self._reported = False

    def sync(self, manifest: Any) -> None:
        """Report the status once; remove the pod when it is being deleted."""
        self.manifest = manifest
        metadata = manifest["metadata"]
        if "deletionTimestamp" in metadata:
            options = {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}}
            self._plane.request("DELETE", self._path, options)
        elif not self._reported:
            self._reported = True
            runs = manifest["spec"]["restartPolicy"] == "Always"
            ready = {"type": "Ready", "status": "True" if runs else "False"}
            status = {"phase": "Running" if runs else "Succeeded", "conditions": [ready]}
            write_status(self._plane, self._path, status)

    def kill(self) -> None:
        """There is no process."""

    def log_file(self, *, previous: bool) -> None:
        """There is no log."""

    @property
    def _path(self) -> str:
        metadata = self.manifest["metadata"]
        return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"

"""The status that a kubelet reports for a pod with one container."""

from __future__ import annotations

from typing import Any

from tests.testkit.control_plane.cluster import Cluster


def pod_status(
    phase: str,
    container: Any,
    *,
    ready: bool,
    exit_status: int | None,
    process_id: int = 0,
    restarts: int = 0,
) -> dict[str, Any]:
    """The status of a pod in a phase; `exit_status` is None while the process runs.

    The status has no pod IP: Kubernetes refuses loopback addresses in endpoints. The ID of the
    container is that of the process.
    """
    is_ready = "True" if ready else "False"
    conditions = {"PodScheduled": "True", "Initialized": "True", "ContainersReady": is_ready}
    conditions["Ready"] = is_ready
    state: dict[str, Any] = {"running": {}}
    if exit_status is not None:
        reason = "Error" if exit_status else "Completed"
        # A process that a signal has ended has the exit code 128 + signal.
        code = exit_status if exit_status >= 0 else 128 - exit_status
        state = {"terminated": {"exitCode": code, "reason": reason}}
    identity = {key: container[key] for key in ("name", "image")}
    container_status = {
        **identity,
        "imageID": "",
        "containerID": f"process://{process_id}",
        "ready": ready,
        "restartCount": restarts,
        "state": state,
    }
    return {
        "phase": phase,
        "conditions": [{"type": name, "status": is_ready} for name, is_ready in conditions.items()],
        "containerStatuses": [container_status],
    }


def write_status(plane: Cluster, pod_path: str, status: dict[str, Any]) -> None:
    """Write the status of the pod at `pod_path` of the API, unless the pod is gone."""
    content_type = "application/merge-patch+json"
    answer = plane.request(
        "PATCH", f"{pod_path}/status", {"status": status}, content_type=content_type
    )
    assert answer.status in (200, 404), answer

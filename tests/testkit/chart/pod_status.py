"""The status that a kubelet reports for a pod with one container."""

from __future__ import annotations

from typing import Any


def pod_status(
    phase: str, container: Any, *, ready: bool, exit_status: int | None
) -> dict[str, Any]:
    """The status of a pod in a phase; `exit_status` is None while the process runs.

    The status has no pod IP: Kubernetes refuses loopback addresses in endpoints.
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
        "ready": ready,
        "restartCount": 0,
        "state": state,
    }
    return {
        "phase": phase,
        "conditions": [{"type": name, "status": is_ready} for name, is_ready in conditions.items()],
        "containerStatuses": [container_status],
    }

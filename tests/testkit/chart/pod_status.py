"""What a kubelet says of a pod with one container."""

from __future__ import annotations

from typing import Any


def pod_status(
    phase: str, container: Any, *, ready: bool, exit_status: int | None
) -> dict[str, Any]:
    """The status of a pod in that phase; `exit_status` is of a process that has ended.

    It has no address: of loopback addresses no endpoints can be made.
    """
    word = "True" if ready else "False"
    conditions = {"PodScheduled": "True", "Initialized": "True", "ContainersReady": word}
    conditions["Ready"] = word
    state: dict[str, Any] = {"running": {}}
    if exit_status is not None:
        reason = "Error" if exit_status else "Completed"
        # A process that a signal has ended counts upwards from 128.
        code = exit_status if exit_status >= 0 else 128 - exit_status
        state = {"terminated": {"exitCode": code, "reason": reason}}
    named = {key: container[key] for key in ("name", "image")}
    seen = {**named, "imageID": "", "ready": ready, "restartCount": 0, "state": state}
    return {
        "phase": phase,
        "conditions": [{"type": name, "status": word} for name, word in conditions.items()],
        "containerStatuses": [seen],
    }

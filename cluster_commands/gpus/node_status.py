"""Whether a node takes pods, and what kubectl shows as its status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rules.base.json_access import as_object, as_objects, as_text

# The taints by which Kubernetes itself keeps pods away, such as node.kubernetes.io/not-ready; and
# that of nodes which a cloud has yet to set up.
_TAINTS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
_EFFECTS = ("NoSchedule", "NoExecute")


def status_of(node: Mapping[str, Any]) -> str:
    """What `kubectl get nodes` shows, such as `Ready,SchedulingDisabled`."""
    conditions = as_objects(as_object(node.get("status")).get("conditions"))
    ready = [as_text(c.get("status")) for _, c in conditions if c.get("type") == "Ready"]
    known = {"True": "Ready", "False": "NotReady"}.get(ready[0] if ready else "")
    # kubectl also shows NotReady for Unknown.
    status = known or ("NotReady" if ready else "Unknown")
    cordoned = as_object(node.get("spec")).get("unschedulable") is True
    return f"{status},SchedulingDisabled" if cordoned else status


def takes_pods(node: Mapping[str, Any]) -> bool:
    """Whether the scheduler still puts pods there that tolerate no taint of Kubernetes itself."""
    spec = as_object(node.get("spec"))
    return spec.get("unschedulable") is not True and not any(
        taint.get("effect") in _EFFECTS and as_text(taint.get("key")).startswith(_TAINTS)
        for _, taint in as_objects(spec.get("taints"))
    )

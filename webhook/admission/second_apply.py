"""Whether a second `kubectl apply` of the same file would fail because a Pod was fixed.

Kubernetes lets almost nothing of a Pod change. The second apply asks for what the file says again:
a value that a fix removed or replaced, or a list without what a fix added to it. The API server
refuses that, by client-side and server-side apply alike. What a fix added where the file has
nothing stays (all seen on a real API server).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rules.base.json_access import as_object, as_objects, as_text
from rules.base.json_values import Operation, find_value

SECOND_APPLY = (
    "gpuward: a second `kubectl apply` of this file will fail, because a Pod cannot change back to "
    "what the file says; write the fixes into the file"
)
# What shows that `kubectl apply` created an object: an annotation of client-side apply, and the
# operation of a field manager, with server-side apply.
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
APPLY = "Apply"
# Lists that apply replaces as a whole; it merges the others by the names of their elements.
_REPLACED_LISTS = ("/spec/tolerations/", "/spec/affinity/")
# The API server itself adds tolerations of these keys to every pod, before any webhook and again
# with every update.
_DEFAULT_TOLERATIONS = {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}


def second_apply_fails(manifest: Any, operations: Iterable[Operation]) -> bool:
    """Whether `manifest`, a new Pod, was applied from a file that `operations` contradict."""
    metadata = as_object(manifest.get("metadata"))
    return _is_applied(metadata) and any(_contradicts(manifest, o) for o in operations)


def _is_applied(metadata: Mapping[str, Any]) -> bool:
    """Whether `kubectl apply` created the object, client-side or server-side."""
    if LAST_APPLIED in as_object(metadata.get("annotations")):
        return True
    managers = as_objects(metadata.get("managedFields"))
    return any(manager.get("operation") == APPLY for _, manager in managers)


def _contradicts(manifest: Any, operation: Operation) -> bool:
    if operation["op"] != "add":
        return True
    path = as_text(operation["path"])
    *parents, last = path.split("/")[1:]
    if not path.startswith(_REPLACED_LISTS) or not (last == "-" or last.isdigit()):
        return False
    steps = tuple(int(step) if step.isdigit() else step for step in parents)
    existing = as_objects(find_value(manifest, steps))
    return any(element.get("key") not in _DEFAULT_TOLERATIONS for _, element in existing)

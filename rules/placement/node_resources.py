"""What a Node says that it offers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rules.base.json_access import as_object
from rules.base.quantity import Quantity, parse
from rules.objects.kubernetes_object import KubernetesObject


def offered_resources(node: KubernetesObject) -> Mapping[str, Any]:
    """The resources of the status, `allocatable` before `capacity`; empty without a status."""
    status = as_object(node.raw.get("status"))
    return as_object(status.get("allocatable")) or as_object(status.get("capacity"))


def amount_of(offered: Mapping[str, Any], name: str) -> int | None:
    """How much there is of the resource, None if that cannot be read; 0 if it is not offered."""
    if name not in offered:
        return 0
    amount = parse(offered[name])
    return amount.value if isinstance(amount, Quantity) else None

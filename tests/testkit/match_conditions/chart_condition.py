"""The match condition of the chart's webhook configurations."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tests.testkit.chart.rendering import render


def chart_condition(values: Mapping[str, Any] | None = None, helm: str = "helm3") -> str:
    """The condition under which the API server sends pods; empty if it sends all pods.

    Every webhook for pods has the same condition, and no webhook for workloads has one.
    """
    objects = render(json.dumps(values or {}), helm=helm)
    hooks = [hook for one in objects for hook in one.get("webhooks", [])]
    found = {json.dumps(hook.get("matchConditions", [])) for hook in hooks if _is_for_pods(hook)}
    assert not [hook for hook in hooks if "matchConditions" in hook and not _is_for_pods(hook)]
    (text,) = found
    conditions = json.loads(text)
    assert len(conditions) <= 1
    return str(conditions[0]["expression"]) if conditions else ""


def _is_for_pods(hook: dict[str, Any]) -> bool:
    return any("pods" in rule["resources"] for rule in hook["rules"])

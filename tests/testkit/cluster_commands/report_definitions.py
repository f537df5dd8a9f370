"""The kinds of PolicyReports and OpenReports, as their CustomResourceDefinitions have them.

They have the fields, types and allowed values of kubernetes-sigs/wg-policy-prototypes
policy-report/crd/v1alpha2 and of openreports/reports-api v1alpha1, as far as gpuward uses them, and
no others: an API server with strict validation refuses everything else.
"""

from __future__ import annotations

from typing import Any

_TEXT = {"type": "string"}
_REFERENCE = {"apiVersion": _TEXT, "kind": _TEXT, "namespace": _TEXT, "name": _TEXT}
_OUTCOMES = ("pass", "fail", "warn", "error", "skip")
_RESULT = {
    **dict.fromkeys(("source", "policy", "rule", "category", "message"), _TEXT),
    "properties": {"type": "object", "additionalProperties": _TEXT},
    "resources": {"type": "array", "items": {"type": "object", "properties": _REFERENCE}},
    "result": {"type": "string", "enum": list(_OUTCOMES)},
    "severity": {"type": "string", "enum": ["high", "low", "medium"]},
}
_FIELDS = {
    "apiVersion": _TEXT,
    "kind": _TEXT,
    "metadata": {"type": "object"},
    "summary": {
        "type": "object",
        "properties": {outcome: {"type": "integer"} for outcome in _OUTCOMES},
    },
    "results": {
        "type": "array",
        "items": {"type": "object", "required": ["policy"], "properties": _RESULT},
    },
}


def report_definitions() -> list[dict[str, Any]]:
    """The definitions of the four kinds."""
    return [
        _definition("wgpolicyk8s.io", "v1alpha2", "PolicyReport", "Namespaced"),
        _definition("wgpolicyk8s.io", "v1alpha2", "ClusterPolicyReport", "Cluster"),
        _definition("openreports.io", "v1alpha1", "Report", "Namespaced"),
        _definition("openreports.io", "v1alpha1", "ClusterReport", "Cluster"),
    ]


def _definition(group: str, version: str, kind: str, scope: str) -> dict[str, Any]:
    plural = f"{kind.lower()}s"
    schema = {"openAPIV3Schema": {"type": "object", "properties": _FIELDS}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"kind": kind, "plural": plural},
            "versions": [{"name": version, "served": True, "storage": True, "schema": schema}],
        },
    }

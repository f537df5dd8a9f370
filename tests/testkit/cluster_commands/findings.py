"""Findings as an audit has them."""

from __future__ import annotations

from reports.findings import LocatedFinding, ReportedFinding
from rules.finding import Action
from rules.objects.object_ref import ObjectRef
from sources.manifests import Excerpt, Span


def error_about(namespace: str, name: str, message: str = "a message") -> LocatedFinding:
    """An error about a pod, with `message`."""
    ref = ObjectRef("Pod", "", namespace, name)
    finding = ReportedFinding(
        rule="visible-devices-env",
        action=Action.DENY,
        path=("spec", "containers", 0),
        key="",
        message=message,
        help="",
        object=ref,
        stable_path="",
        container_name="main",
        container="container main",
        fix="",
        fixable=False,
    )
    excerpt = Excerpt("", 0, 1, (), (), 0, 0, 0, 0)
    return LocatedFinding(finding, "", Span(0, 0, 0, 0), excerpt, ref)

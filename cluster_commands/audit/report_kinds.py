"""The kinds of reports in which an audit can keep its findings."""

from __future__ import annotations

from typing import NamedTuple

from cluster.source.objects import Resource


class ReportKind(NamedTuple):
    """One of the two APIs for reports: the resource of namespaces, and that of the cluster."""

    namespaced: Resource
    cluster: Resource


KINDS = {
    "policyreport": ReportKind(
        Resource("policyreports", "PolicyReport", "wgpolicyk8s.io", ("v1alpha2",)),
        Resource("clusterpolicyreports", "ClusterPolicyReport", "wgpolicyk8s.io", ("v1alpha2",)),
    ),
    "openreports": ReportKind(
        Resource("reports", "Report", "openreports.io", ("v1alpha1",)),
        Resource("clusterreports", "ClusterReport", "openreports.io", ("v1alpha1",)),
    ),
}

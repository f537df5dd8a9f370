"""One audit of one or several clusters: the results of each, under the name of its context."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from cluster.audit.audit import AuditResult
from cluster.source.objects import ObjectReader, ObjectSource, SourceError
from reports.results import InputNotEvaluated, Results

Clusters: TypeAlias = Mapping[str, Callable[[], ObjectReader]]
"""What opens each cluster, by its context. The name of the only one may be empty."""


def audit_clusters(
    clusters: Clusters, audit: Callable[[ObjectSource], AuditResult]
) -> tuple[Results, AuditResult | None]:
    """Audit each cluster; the results of all, and what the audit of the only one has found.

    What reports call a file is the context. One of several clusters that cannot be read is input
    that was not evaluated.
    """
    together = Results()
    result = None
    for context, open_source in clusters.items():
        try:
            result = audit(open_source())
        except SourceError as error:
            together.not_evaluated.append(InputNotEvaluated(context, 0, 0, str(error)))
            continue
        together.add(_named(result.results, context) if context else result.results)
    return together, result if len(clusters) == 1 else None


def _named(results: Results, context: str) -> Results:
    """The results, with the context where there was no name of a file."""
    results.findings = [each._replace(file=context) for each in results.findings]
    results.remarks = [each._replace(file=context) for each in results.remarks]
    results.not_evaluated = [each._replace(file=context) for each in results.not_evaluated]
    return results

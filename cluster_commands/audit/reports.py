"""The findings of an audit as PolicyReports, or as Reports of OpenReports."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from cluster.source.objects import Object
from cluster_commands.audit.report_kinds import ReportKind
from reports.findings import LocatedFinding, ReportedFinding
from terminal import printable

REPORT_NAME = "gpuward-audit"
"""How the names of all reports begin."""
MANAGED_BY = "app.kubernetes.io/managed-by"
SOURCE = "gpuward"
# Of one report: API servers accept about 1.5 MB, and dashboards read it as a whole.
_MAX_RESULTS = 1_000
_MAX_BYTES = 512 << 10
_MAX_MESSAGE = 2_000  # characters
_OUTCOMES = {"error": ("fail", "high"), "warning": ("warn", "medium"), "note": ("warn", "low")}
# The versions of groups that Kubernetes serves itself; of others it is not known.
_VERSIONS = {"": "v1", "apps": "apps/v1", "batch": "batch/v1"}


def with_help(finding: ReportedFinding) -> str:
    """The message of a finding, and its remedy."""
    return f"{finding.message}. Help: {finding.help}" if finding.help else finding.message


def reports_by_namespace(
    kind: ReportKind, findings: Iterable[LocatedFinding]
) -> Iterator[tuple[str, Iterator[Object]]]:
    """Each namespace with its reports: as many as its findings need.

    Findings about objects without a namespace are in reports of the empty namespace.
    """
    by_namespace: dict[str, list[LocatedFinding]] = defaultdict(list)
    for located in findings:
        owner = located.owner or located.finding.object
        by_namespace[owner.namespace if owner else ""].append(located)
    for namespace, found in by_namespace.items():
        yield namespace, _reports(kind, namespace, found)


def _reports(kind: ReportKind, namespace: str, found: Iterable[LocatedFinding]) -> Iterator[Object]:
    for number, results in enumerate(_shards(found), start=1):
        yield _report(kind, namespace, f"{REPORT_NAME}-{number}", results)


def _shards(found: Iterable[LocatedFinding]) -> Iterator[list[dict[str, Any]]]:
    """The results of one namespace, as many together as fit into a report."""
    shard: list[dict[str, Any]] = []
    size = 0
    for result in map(_result, found):
        length = len(json.dumps(result))
        if shard and (len(shard) == _MAX_RESULTS or size + length > _MAX_BYTES):
            yield shard
            shard, size = [], 0
        shard.append(result)
        size += length
    if shard:
        yield shard


def _report(kind: ReportKind, namespace: str, name: str, results: list[dict[str, Any]]) -> Object:
    resource = kind.namespaced if namespace else kind.cluster
    counts = Counter(result["result"] for result in results)
    metadata = {"name": name, "labels": {MANAGED_BY: SOURCE}}
    return {
        "apiVersion": f"{resource.group}/{resource.versions[0]}",
        "kind": resource.kind,
        "metadata": metadata | ({"namespace": namespace} if namespace else {}),
        "summary": {"pass": 0, "fail": counts["fail"], "warn": counts["warn"]}
        | {"error": 0, "skip": 0},
        "results": results,
    }


def _result(located: LocatedFinding) -> dict[str, Any]:
    """A finding. Without the time of the audit, a report changes only if its findings do."""
    finding, owner = located.finding, located.owner or located.finding.object
    outcome, severity = _OUTCOMES[located.level]
    message = with_help(finding)
    properties = {"objects": str(located.objects), "field": located.pointer_in_object}
    if finding.container_name:
        properties["container"] = finding.container_name
    result: dict[str, Any] = {
        "source": SOURCE,
        "policy": SOURCE,
        "rule": finding.rule,
        "category": located.rule.family,
        "result": outcome,
        "severity": severity,
        "message": printable(message)[:_MAX_MESSAGE],
        "properties": {key: printable(text)[:_MAX_MESSAGE] for key, text in properties.items()},
    }
    if owner:
        ref = {"kind": owner.kind, "name": owner.name}
        ref |= {"namespace": owner.namespace} if owner.namespace else {}
        ref |= {"apiVersion": _VERSIONS[owner.group]} if owner.group in _VERSIONS else {}
        result["resources"] = [ref]
    return result

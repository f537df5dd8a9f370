"""Keep the findings of an audit in a cluster, as PolicyReports or as Reports of OpenReports."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import quote

from cluster.connection import Connection
from cluster.errors import (
    ForbiddenError,
    MissingError,
    NamespaceTerminatingError,
    UnavailableError,
)
from cluster.protocols import ClusterError
from cluster_commands.audit.report_kinds import ReportKind
from cluster_commands.source.api_server import ApiServerSource
from cluster_commands.source.objects import Object, SourceError
from cluster_commands.source.retries import RetryingConnection
from lint.findings import LocatedFinding
from lint.report import printable

FIELD_MANAGER = "gpuward-audit"
_NAME = "gpuward-audit"
_LABEL = "app.kubernetes.io/managed-by"
_SOURCE = "gpuward"
# Of one report: API servers accept about 1.5 MB, and dashboards read it as a whole.
_MAX_RESULTS = 1_000
_MAX_BYTES = 512 << 10
_MAX_MESSAGE = 2_000  # characters
_OUTCOMES = {"error": ("fail", "high"), "warning": ("warn", "medium"), "note": ("warn", "low")}
# The versions of groups that Kubernetes serves itself; of others it is not known.
_VERSIONS = {"": "v1", "apps": "apps/v1", "batch": "batch/v1"}


class _NamespaceError(SourceError):
    """A report could not be written or deleted; those of other namespaces perhaps can."""


def publish(
    connection: Connection,
    kind: ReportKind,
    findings: Iterable[LocatedFinding],
    namespace: str | None,
    on_error: Callable[[SourceError], object],
    *,
    prune: bool,
) -> int:
    """Write reports with `findings`; returns how many reports there are.

    A namespace has as many reports as its findings need. With `prune`, reports of earlier audits
    that no longer have a finding are deleted: of `namespace`, or of all. What cannot be written in
    one namespace is given to `on_error`; its earlier reports stay, and others are still written.
    Namespaces that are gone, or are being deleted, are left out. Raises SourceError.
    """
    requests = RetryingConnection(connection)
    _check_served(requests, kind)
    by_namespace: dict[str, list[LocatedFinding]] = defaultdict(list)
    for located in findings:
        owner = located.owner or located.finding.object
        by_namespace[owner.namespace if owner else ""].append(located)
    written = set()
    left_out = set()  # namespaces
    for home, found in by_namespace.items():
        for number, results in enumerate(_shards(found), start=1):
            report = _report(kind, home, f"{_NAME}-{number}", results)
            try:
                is_written = _request(requests, "PATCH", kind, report)
            except _NamespaceError as error:
                on_error(error)
                is_written = False
            if not is_written:
                left_out.add(home)
                break
            written.add((home, report["metadata"]["name"]))
    if prune:
        for home, name in _existing(ApiServerSource(connection), kind, namespace) - written:
            if home not in left_out:
                try:
                    _request(
                        requests, "DELETE", kind, {"metadata": {"name": name, "namespace": home}}
                    )
                except _NamespaceError as error:
                    on_error(error)
                    left_out.add(home)
    return len(written)


def _check_served(requests: RetryingConnection, kind: ReportKind) -> None:
    resource = kind.namespaced
    try:
        requests.request("GET", f"/apis/{resource.group}/{resource.versions[0]}")
    except MissingError as error:
        why = "the API server does not serve them: install their CustomResourceDefinition"
        raise SourceError(f"cannot write {resource}: {why}") from error
    except ClusterError as error:
        raise SourceError(f"cannot write {resource}: {error}") from error


def _existing(
    source: ApiServerSource, kind: ReportKind, namespace: str | None
) -> set[tuple[str, str]]:
    """The namespace and the name of each report that an audit has written."""
    return {
        (report["metadata"].get("namespace", ""), report["metadata"]["name"])
        for resource in ((kind.namespaced,) if namespace else kind)
        for report in source.list(resource, namespace, labels=f"{_LABEL}={_SOURCE}")
        if report["metadata"]["name"].startswith(f"{_NAME}-")
    }


def _request(requests: RetryingConnection, method: str, kind: ReportKind, report: Object) -> bool:
    """Write or delete a report; False if it, or its namespace, is gone or is being deleted."""
    metadata = report["metadata"]
    namespace, name = metadata.get("namespace", ""), metadata["name"]
    resource = kind.namespaced if namespace else kind.cluster
    scope = f"namespaces/{quote(namespace, safe='')}/" if namespace else ""
    path = f"/apis/{resource.group}/{resource.versions[0]}/{scope}{resource.name}/{name}"
    where = f" in namespace {namespace}" if namespace else ""
    try:
        if method == "DELETE":
            requests.request(method, path)
        else:
            path += f"?fieldManager={FIELD_MANAGER}&force=true&fieldValidation=Strict"
            requests.request(method, path, report, "application/apply-patch+yaml")
    except (MissingError, NamespaceTerminatingError):
        return False
    except UnavailableError as error:  # so it is in every namespace, after minutes for each
        raise SourceError(f"cannot write {name}{where}: {error}") from error
    except ForbiddenError as error:
        needed = f"the account needs the rights to list, create, patch and delete {resource}"
        raise _NamespaceError(f"cannot write {name}{where}: {error}; {needed}{where}") from error
    except ClusterError as error:
        raise _NamespaceError(f"cannot write {name}{where}: {error}") from error
    return True


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
    metadata = {"name": name, "labels": {_LABEL: _SOURCE}}
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
    message = f"{finding.message}. Help: {finding.help}" if finding.help else finding.message
    properties = {"objects": str(located.objects), "field": located.pointer_in_object}
    if finding.container_name:
        properties["container"] = finding.container_name
    result: dict[str, Any] = {
        "source": _SOURCE,
        "policy": _SOURCE,
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

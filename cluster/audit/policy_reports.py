"""Keep the findings of an audit in a cluster, as PolicyReports or as Reports of OpenReports."""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, NamedTuple
from urllib.parse import quote

from cluster.api.connection import Connection
from cluster.api.errors import (
    ClusterError,
    ForbiddenError,
    InternalError,
    MissingError,
    NamespaceTerminatingError,
    UnavailableError,
)
from cluster.source.api_server import ApiServerSource, RetryingConnection
from cluster.source.objects import Object, Resource, SourceError
from reports.findings import LocatedFinding, ReportedFinding
from terminal import printable


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


REPORT_NAME = "gpuward-audit"
"""The beginning of the names of all reports."""
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
    properties = {"objects": str(located.object_count), "field": located.pointer_in_object}
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


FIELD_MANAGER = "gpuward-audit"


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
    incomplete: Collection[str] = (),
    wait: Callable[[float], object] = time.sleep,
) -> int:
    """Write reports with `findings`; returns how many reports there are.

    A namespace has as many reports as its findings need. With `prune`, reports of earlier audits
    that no longer have a finding are deleted: of `namespace`, or of all, but of none that is
    `incomplete`, as not everything in it was evaluated. What cannot be written in one namespace is
    given to `on_error`; its earlier reports stay, and others are still written. Namespaces that are
    gone, or are being deleted, are left out. `wait` waits so many seconds.
    Raises SourceError.
    """
    writer = ReportWriter(connection, kind, wait)
    writer.check_served()
    written = set()
    left_out = set(incomplete)
    for home, reports in reports_by_namespace(kind, findings):
        for report in reports:
            try:
                is_written = writer.request("PATCH", report)
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
                    writer.request("DELETE", {"metadata": {"name": name, "namespace": home}})
                except _NamespaceError as error:
                    on_error(error)
                    left_out.add(home)
    return len(written)


def _existing(
    source: ApiServerSource, kind: ReportKind, namespace: str | None
) -> set[tuple[str, str]]:
    """The namespace and the name of each report that an audit has written."""
    return {
        (report["metadata"].get("namespace", ""), report["metadata"]["name"])
        for resource in ((kind.namespaced,) if namespace else kind)
        for report in source.list(resource, namespace, labels=f"{MANAGED_BY}={SOURCE}")
        if report["metadata"]["name"].startswith(f"{REPORT_NAME}-")
    }


class ReportWriter:
    """Writes and deletes reports of one kind.

    Another webhook may fail in some namespaces, which the API server answers with 500.
    The first time, the request is sent again, as everything that fails for a while is; from then on
    a namespace that is answered so is given up at once, as each would take half a minute.
    """

    def __init__(
        self, connection: Connection, kind: ReportKind, wait: Callable[[float], object]
    ) -> None:
        self._requests = RetryingConnection(connection, wait)
        self._kind = kind

    def check_served(self) -> None:
        """SourceError if the API server does not serve the kind."""
        resource = self._kind.namespaced
        try:
            self._requests.request("GET", f"/apis/{resource.group}/{resource.versions[0]}")
        except MissingError as error:
            why = "the API server does not serve them: install their CustomResourceDefinition"
            raise SourceError(f"cannot write {resource}: {why}") from error
        except ClusterError as error:
            raise SourceError(f"cannot write {resource}: {error}") from error

    def request(self, method: str, report: Object) -> bool:
        """Write or delete a report; False if it, or its namespace, is gone or is being deleted."""
        metadata = report["metadata"]
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        resource = self._kind.namespaced if namespace else self._kind.cluster
        scope = f"namespaces/{quote(namespace, safe='')}/" if namespace else ""
        path = f"/apis/{resource.group}/{resource.versions[0]}/{scope}{resource.name}/{name}"
        where = f" in namespace {namespace}" if namespace else ""
        try:
            if method == "DELETE":
                self._requests.request(method, path)
            else:
                path += f"?fieldManager={FIELD_MANAGER}&force=true&fieldValidation=Strict"
                self._requests.request(method, path, report, "application/apply-patch+yaml")
        except (MissingError, NamespaceTerminatingError):
            return False
        except InternalError as error:
            self._requests.gives_up_on = InternalError
            raise _NamespaceError(f"cannot write {name}{where}: {error}") from error
        except UnavailableError as error:  # so it is in every namespace, after minutes for each
            raise SourceError(f"cannot write {name}{where}: {error}") from error
        except ForbiddenError as error:
            needed = f"the account needs the rights to list, create, patch and delete {resource}"
            why = f"{error}; {needed}{where}"
            raise _NamespaceError(f"cannot write {name}{where}: {why}") from error
        except ClusterError as error:
            raise _NamespaceError(f"cannot write {name}{where}: {error}") from error
        return True

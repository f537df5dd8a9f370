"""Keep the findings of an audit in a cluster, as PolicyReports or as Reports of OpenReports."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from urllib.parse import quote

from cluster.api.connection import Connection
from cluster.api.errors import (
    ForbiddenError,
    InternalError,
    MissingError,
    NamespaceTerminatingError,
    UnavailableError,
)
from cluster.protocols import ClusterError
from cluster.source.api_server import ApiServerSource
from cluster.source.objects import Object, SourceError
from cluster_commands.audit.report_kinds import ReportKind
from cluster_commands.audit.reports import (
    MANAGED_BY,
    REPORT_NAME,
    SOURCE,
    reports_by_namespace,
)
from cluster_commands.source.retries import RetryingConnection
from reports.findings import LocatedFinding

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
    writer = _Writer(connection, kind, wait)
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


class _Writer:
    """Writes and deletes reports of one kind.

    A webhook of somebody else may fail in some namespaces, which the API server answers with 500.
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

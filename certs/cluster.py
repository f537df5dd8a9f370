"""The Kubernetes API: the one module that knows its client.

Of the client only the configuration (in-cluster or kubeconfig) and the connection are used.
Its models change with every release, and refuse values that they do not know.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import urllib3
from kubernetes import client, config

from certs.api import ClusterError, ConflictError, Kind, Object

FIELD_MANAGER = "gpuward-certs"
_GROUP = "admissionregistration.k8s.io/v1"
_SECONDS = 10.0  # for one request; there are about eight in a round


class KubernetesCluster:
    """`certs.api.Cluster` on the real thing, in `namespace`.

    With the credentials of the pod, or of a kubeconfig file if one is given. The constructor
    raises ClusterError if there are none.
    """

    def __init__(self, namespace: str, kubeconfig: str | None = None) -> None:
        self._namespace = quote(namespace, safe="")
        self._configuration = client.Configuration()
        try:
            if kubeconfig is None:
                config.load_incluster_config(client_configuration=self._configuration)  # type: ignore[no-untyped-call]  # the client's own code has no types
            else:
                config.load_kube_config(kubeconfig, client_configuration=self._configuration)  # type: ignore[no-untyped-call]  # the same
        except (config.ConfigException, OSError) as error:
            raise ClusterError(f"no credentials for the Kubernetes API: {error}") from error
        # A request that failed is asked again in the next round; waiting here helps nobody.
        self._configuration.retries = urllib3.Retry(0)
        self._pool = client.ApiClient(self._configuration).rest_client.pool_manager

    def get_secret(self, name: str) -> Object:
        """The Secret `name` of our namespace."""
        return self._found(self._namespaced("api/v1", "secrets", name))

    def update_secret(self, secret: Object) -> Object:
        """Replace a Secret; what is stored now."""
        name = secret["metadata"]["name"]
        return self._ask("PUT", self._namespaced("api/v1", "secrets", name), secret)

    def get_lease(self, name: str) -> Object:
        """The Lease `name` of our namespace."""
        return self._found(self._namespaced("apis/coordination.k8s.io/v1", "leases", name))

    def update_lease(self, lease: Object) -> Object:
        """Replace a Lease; what is stored now."""
        path = self._namespaced("apis/coordination.k8s.io/v1", "leases", lease["metadata"]["name"])
        return self._ask("PUT", path, lease)

    def get_configuration(self, kind: Kind, name: str) -> Object | None:
        """A webhook configuration; None if there is none of that name."""
        try:
            return self._ask("GET", f"/apis/{_GROUP}/{kind.value}/{quote(name, safe='')}")
        except _MissingError:
            return None

    def write_bundle(
        self, kind: Kind, name: str, version: str, places: Sequence[int], bundle: str
    ) -> None:
        """Set the caBundle (base64) of the webhooks at `places` in that resourceVersion.

        By JSON Patch, after which we own this one field and no more. Server-side apply would
        make us an owner of each webhook: seen on an API server, a tool that applies the chart
        can then remove no webhook again, as a torso of it would stay and is refused.
        """
        edits = [{"op": "replace", "path": "/metadata/resourceVersion", "value": version}]
        for place in places:
            path = f"/webhooks/{place}/clientConfig/caBundle"
            edits.append({"op": "add", "path": path, "value": bundle})
        path = f"/apis/{_GROUP}/{kind.value}/{quote(name, safe='')}?fieldManager={FIELD_MANAGER}"
        self._ask("PATCH", path, edits, "application/json-patch+json")

    def _namespaced(self, group: str, resource: str, name: str) -> str:
        return f"/{group}/namespaces/{self._namespace}/{resource}/{quote(name, safe='')}"

    def _found(self, path: str) -> Object:
        """What must be there before we are, because we may not create it."""
        try:
            return self._ask("GET", path)
        except _MissingError as error:
            why = "the Lease and both Secrets must exist beforehand, see docs/certificates.md"
            raise ClusterError(f"{error}; {why}") from error

    def _ask(
        self,
        method: str,
        path: str,
        body: Object | list[dict[str, str]] | None = None,
        sent: str = "application/json",
    ) -> Object:
        headers = {"Accept": "application/json", **self._credentials()}
        if body is not None:
            headers["Content-Type"] = sent
        what = f"{method} {path.partition('?')[0]}"
        try:
            answer = self._pool.request(
                method,
                self._configuration.host + path,
                headers=headers,
                body=None if body is None else json.dumps(body),
                timeout=_SECONDS,
            )
        except urllib3.exceptions.HTTPError as error:
            raise ClusterError(f"{what}: {type(error).__name__}: {error}") from error
        return _answered(what, answer)

    def _credentials(self) -> dict[str, str]:
        # Asked for each time: tokens of pods are replaced every hour.
        found = self._configuration.auth_settings().get("BearerToken", {}).get("value")
        return {"Authorization": found} if found else {}


class _MissingError(ClusterError):
    """There is no such object."""


_ERRORS: dict[int, type[ClusterError]] = {
    HTTPStatus.CONFLICT: ConflictError,
    HTTPStatus.NOT_FOUND: _MissingError,
}


def _answered(what: str, answer: urllib3.BaseHTTPResponse) -> Object:
    if answer.status >= HTTPStatus.BAD_REQUEST:
        raise _ERRORS.get(answer.status, ClusterError)(
            f"{what}: {answer.status} {_message(answer.data)}"
        )
    try:
        found: Any = json.loads(answer.data)
    except ValueError as error:
        raise ClusterError(f"{what}: the answer is no JSON") from error
    if not isinstance(found, dict):
        raise ClusterError(f"{what}: the answer is no object")
    return found


def _message(data: bytes) -> str:
    try:
        return str(json.loads(data)["message"])
    except (ValueError, KeyError, TypeError):
        return "without a message"

"""The requests of `cluster.protocols`, sent to a real API server."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from cluster.api.connection import Connection
from cluster.api.errors import MissingError
from cluster.protocols import ClusterError, ConfigurationRef, Object

FIELD_MANAGER = "gpuward-certs"
_GROUP = "admissionregistration.k8s.io/v1"


class KubernetesConfigurations:
    """`Configurations` at a real API server."""

    def __init__(self, connection: Connection) -> None:
        self._request = connection.request

    def get_configuration(self, ref: ConfigurationRef) -> Object | None:
        """A webhook configuration; None if it does not exist."""
        try:
            return self._request("GET", _configuration_path(ref))
        except MissingError:
            return None

    def delete_configuration(self, ref: ConfigurationRef, uid: str) -> Sequence[str]:
        """Delete a webhook configuration; returns the finalizers that keep it."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        try:
            answer = self._request("DELETE", _configuration_path(ref), options)
        except MissingError:
            return ()
        # The API server answers with a Status if the object is gone, else with the object.
        finalizers: Sequence[str] = answer.get("metadata", {}).get("finalizers") or ()
        return finalizers


class KubernetesCluster(KubernetesConfigurations):
    """`Cluster` at a real API server, for the objects in `namespace`.

    Uses the credentials of the pod, or of a kubeconfig file if one is given. The constructor
    raises ClusterError if there are none.
    """

    def __init__(self, namespace: str, kubeconfig: str | None = None) -> None:
        super().__init__(Connection.in_cluster(kubeconfig))
        self._namespace = quote(namespace, safe="")

    def get_secret(self, name: str) -> Object:
        """The Secret `name` in the controller's namespace."""
        return self._get_existing(self._namespaced("api/v1", "secrets", name))

    def update_secret(self, secret: Object) -> Object:
        """Replace a Secret; returns what is stored now."""
        name = secret["metadata"]["name"]
        return self._request("PUT", self._namespaced("api/v1", "secrets", name), secret)

    def get_lease(self, name: str) -> Object:
        """The Lease `name` in the controller's namespace."""
        return self._get_existing(self._namespaced("apis/coordination.k8s.io/v1", "leases", name))

    def update_lease(self, lease: Object) -> Object:
        """Replace a Lease; returns what is stored now."""
        path = self._namespaced("apis/coordination.k8s.io/v1", "leases", lease["metadata"]["name"])
        return self._request("PUT", path, lease)

    def write_bundle(
        self, ref: ConfigurationRef, version: str, indices: Sequence[int], bundle: str
    ) -> None:
        """Set the caBundle (base64) of the webhooks at `indices` in that resourceVersion.

        A JSON Patch makes gpuward the owner of this field alone. Server-side apply would make it
        an owner of each webhook. Then a tool that applies the chart could not remove a webhook:
        the API server keeps the fields that gpuward owns and refuses the incomplete rest (seen).
        """
        edits = [{"op": "replace", "path": "/metadata/resourceVersion", "value": version}]
        for index in indices:
            path = f"/webhooks/{index}/clientConfig/caBundle"
            edits.append({"op": "add", "path": path, "value": bundle})
        path = f"{_configuration_path(ref)}?fieldManager={FIELD_MANAGER}"
        self._request("PATCH", path, edits, "application/json-patch+json")

    def _namespaced(self, group: str, resource: str, name: str) -> str:
        return f"/{group}/namespaces/{self._namespace}/{resource}/{quote(name, safe='')}"

    def _get_existing(self, path: str) -> Object:
        """An object that must exist already, because gpuward has no right to create it."""
        try:
            return self._request("GET", path)
        except MissingError as error:
            why = "the Lease and both Secrets must exist beforehand, see docs/certificates.md"
            raise ClusterError(f"{error}; {why}") from error


def _configuration_path(ref: ConfigurationRef) -> str:
    return f"/apis/{_GROUP}/{ref.kind.value}/{quote(ref.name, safe='')}"

"""The Kubernetes API as the controller and the removal use it."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from certs.api import ClusterError, Kind, Object
from certs.connection import Connection, MissingError

FIELD_MANAGER = "gpuward-certs"
_GROUP = "admissionregistration.k8s.io/v1"


class KubernetesConfigurations:
    """`certs.api.Configurations` on the real thing."""

    def __init__(self, connection: Connection) -> None:
        self._ask = connection.ask

    def get_configuration(self, kind: Kind, name: str) -> Object | None:
        """A webhook configuration; None if there is none of that name."""
        try:
            return self._ask("GET", _configuration(kind, name))
        except MissingError:
            return None

    def delete_configuration(self, kind: Kind, name: str, uid: str) -> Sequence[str]:
        """Delete a webhook configuration; the finalizers for which it stays."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        try:
            answer = self._ask("DELETE", _configuration(kind, name), options)
        except MissingError:
            return ()
        # What is gone is answered by a Status, and what stays by itself.
        found: Sequence[str] = answer.get("metadata", {}).get("finalizers") or ()
        return found


class KubernetesCluster(KubernetesConfigurations):
    """`certs.api.Cluster` on the real thing, in `namespace`.

    With the credentials of the pod, or of a kubeconfig file if one is given. The constructor
    raises ClusterError if there are none.
    """

    def __init__(self, namespace: str, kubeconfig: str | None = None) -> None:
        # A request that failed is asked again in the next round; there are about eight in one.
        super().__init__(Connection.of_a_pod(kubeconfig))
        self._namespace = quote(namespace, safe="")

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
        path = f"{_configuration(kind, name)}?fieldManager={FIELD_MANAGER}"
        self._ask("PATCH", path, edits, "application/json-patch+json")

    def _namespaced(self, group: str, resource: str, name: str) -> str:
        return f"/{group}/namespaces/{self._namespace}/{resource}/{quote(name, safe='')}"

    def _found(self, path: str) -> Object:
        """What must be there before we are, because we may not create it."""
        try:
            return self._ask("GET", path)
        except MissingError as error:
            why = "the Lease and both Secrets must exist beforehand, see docs/certificates.md"
            raise ClusterError(f"{error}; {why}") from error


def _configuration(kind: Kind, name: str) -> str:
    return f"/apis/{_GROUP}/{kind.value}/{quote(name, safe='')}"

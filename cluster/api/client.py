"""The requests of `cluster.api.errors`, sent to a real API server."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol
from urllib.parse import quote, urlencode

from cluster.api.connection import Connection
from cluster.api.errors import (
    NEW_BUNDLE_ANNOTATION,
    ClusterError,
    ConfigurationRef,
    ForbiddenError,
    MissingError,
    NotCreatedError,
    Object,
    TooLargeError,
)

FIELD_MANAGER = "gpuward-certs"
HELM_FIELD_MANAGER = "helm"
_GROUP = "admissionregistration.k8s.io/v1"
_NEW_BUNDLE_POINTER = f"/metadata/annotations/{NEW_BUNDLE_ANNOTATION.replace('/', '~1')}"


class KubernetesConfigurations:
    """`Configurations` at a real API server."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._request = connection.request

    def changes(self, ref: ConfigurationRef) -> Iterator[None]:
        """Watch one webhook configuration, which need not exist: see `Connection.changes`.

        The right to watch can be limited to its name, because the request has it.
        """
        query = urlencode({"fieldSelector": f"metadata.name={ref.name}"})
        return self._connection.changes(f"/apis/{_GROUP}/{ref.kind.value}?{query}")

    def create(self, ref: ConfigurationRef, manifest: Object) -> None:
        """Create a webhook configuration that does not exist, as Helm would.

        The field manager is that of Helm 4: with another one, the next `helm upgrade` would
        conflict with it over each field that it changes. Raises ConflictError if the configuration
        exists.
        """
        self._create(_configuration_path(ref), manifest, HELM_FIELD_MANAGER)

    def service_exists(self, namespace: str, name: str) -> bool:
        """Return whether there is such a Service."""
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/services/{quote(name, safe='')}"
        return self._find(path) is not None

    def _create(self, path: str, manifest: Object, manager: str) -> Object:
        """Create the object at `path`, which has its name; ConflictError if there is one.

        By server-side apply, because then the API server checks the right to create *this name*;
        for a POST it knows none (seen).
        """
        # No object has this version, so nothing that exists is changed.
        metadata = {**manifest["metadata"], "resourceVersion": "1"}
        content_type = "application/apply-patch+yaml"
        body = {**manifest, "metadata": metadata}
        return self._request("PATCH", f"{path}?fieldManager={manager}", body, content_type)

    def _find(self, path: str) -> Object | None:
        """The object at `path`; None if there is none."""
        try:
            return self._request("GET", path)
        except MissingError:
            return None

    def get_configuration(self, ref: ConfigurationRef) -> Object | None:
        """A webhook configuration; None if it does not exist."""
        return self._find(_configuration_path(ref))

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

    def delete_cluster_role_binding(self, name: str) -> None:
        """Delete a ClusterRoleBinding, if it exists."""
        group = "rbac.authorization.k8s.io/v1"
        with contextlib.suppress(MissingError):
            self._request("DELETE", f"/apis/{group}/clusterrolebindings/{quote(name, safe='')}")


class _Kind(NamedTuple):
    """A kind of object with a namespace: the parts of its manifests, and of its path."""

    api_version: str
    name: str
    resource: str

    @property
    def root(self) -> str:
        """Return the beginning of the kind's paths."""
        return "apis" if "/" in self.api_version else "api"


_SECRETS = _Kind("v1", "Secret", "secrets")
_ACCOUNTS = _Kind("v1", "ServiceAccount", "serviceaccounts")
_LEASES = _Kind("coordination.k8s.io/v1", "Lease", "leases")


class KubernetesCluster(KubernetesConfigurations):
    """`Cluster` at a real API server, for the objects in `namespace`.

    Uses the credentials of the pod, or of a kubeconfig file if one is given. The constructor
    raises ClusterError if there are none. What is created belongs to the ServiceAccount `owner`, if
    that is given: Kubernetes deletes it with its owner.
    """

    def __init__(self, namespace: str, kubeconfig: str | None = None, owner: str = "") -> None:
        super().__init__(Connection.in_cluster(kubeconfig))
        self._namespace = quote(namespace, safe="")
        self._owner = owner

    def get_secret(self, name: str) -> Object | None:
        """The Secret `name` in the controller's namespace; None if it does not exist."""
        return self._find(self._namespaced(_SECRETS, name))

    def write_secret(self, secret: Object) -> Object:
        """Replace a Secret, or create it; returns what is stored now."""
        return self._write(_SECRETS, secret)

    def secret_changes(self, name: str) -> Iterator[None]:
        """Watch one Secret, which need not exist: see `Connection.changes`."""
        query = urlencode({"fieldSelector": f"metadata.name={name}"})
        resource = f"/api/v1/namespaces/{self._namespace}/secrets"
        return self._connection.changes(f"{resource}?{query}")

    def get_lease(self, name: str) -> Object | None:
        """The Lease `name` in the controller's namespace; None if it does not exist."""
        return self._find(self._namespaced(_LEASES, name))

    def write_lease(self, lease: Object) -> Object:
        """Replace a Lease, or create it; returns what is stored now."""
        return self._write(_LEASES, lease)

    def write_bundle(
        self, ref: ConfigurationRef, read: Object, indices: Sequence[int], bundle: str
    ) -> None:
        """Set the caBundle (base64) of the webhooks at `indices`, and NEW_BUNDLE_ANNOTATION.

        `read` is the configuration as it was read.
        A JSON Patch makes gpuward the owner of this field alone. Server-side apply would make it
        an owner of each webhook. Then a tool that applies the chart could not remove a webhook:
        the API server keeps the fields that gpuward owns and refuses the incomplete rest (seen).
        """
        metadata = read["metadata"]
        edits: list[Object] = []
        if "annotations" not in metadata:
            edits.append({"op": "add", "path": "/metadata/annotations", "value": {}})
        edits.append({"op": "add", "path": _NEW_BUNDLE_POINTER, "value": "true"})
        for index in indices:
            pointer = f"/webhooks/{index}/clientConfig/caBundle"
            edits.append({"op": "add", "path": pointer, "value": bundle})
        self._edit_configuration(ref, metadata["resourceVersion"], edits)

    def remove_bundle_annotation(self, ref: ConfigurationRef, version: str) -> None:
        """Remove NEW_BUNDLE_ANNOTATION from a configuration in that resourceVersion."""
        edit = {"op": "remove", "path": _NEW_BUNDLE_POINTER}
        self._edit_configuration(ref, version, [edit])

    def _edit_configuration(
        self, ref: ConfigurationRef, version: str, edits: Sequence[Object]
    ) -> None:
        """Apply a JSON Patch to a configuration in that resourceVersion."""
        pin = {"op": "replace", "path": "/metadata/resourceVersion", "value": version}
        path = f"{_configuration_path(ref)}?fieldManager={FIELD_MANAGER}"
        self._request("PATCH", path, [pin, *edits], "application/json-patch+json")

    def _write(self, kind: _Kind, item: Object) -> Object:
        path = self._namespaced(kind, item["metadata"]["name"])
        if "resourceVersion" in item["metadata"]:
            return self._request("PUT", f"{path}?fieldManager={FIELD_MANAGER}", item)
        metadata = {**item["metadata"], **self._owner_references()}
        manifest = {"apiVersion": kind.api_version, "kind": kind.name, **item, "metadata": metadata}
        try:
            return self._create(path, manifest, FIELD_MANAGER)
        except ForbiddenError as error:
            text = f"the {kind.name} {item['metadata']['name']} does not exist: {error}"
            raise NotCreatedError(text) from error

    def _owner_references(self) -> Object:
        """The part of new metadata that names the owner."""
        if not self._owner:
            return {}
        account = self._request("GET", self._namespaced(_ACCOUNTS, self._owner))
        owner = {"apiVersion": _ACCOUNTS.api_version, "kind": _ACCOUNTS.name, "name": self._owner}
        return {"ownerReferences": [{**owner, "uid": account["metadata"]["uid"]}]}

    def _namespaced(self, kind: _Kind, name: str) -> str:
        place = f"{self._namespace}/{kind.resource}/{quote(name, safe='')}"
        return f"/{kind.root}/{kind.api_version}/namespaces/{place}"


def _configuration_path(ref: ConfigurationRef) -> str:
    return f"/apis/{_GROUP}/{ref.kind.value}/{quote(ref.name, safe='')}"


class StoredConfigMap:
    """The ConfigMap `name` in `namespace`, which the chart has created.

    Its methods raise ClusterError; `update` ConflictError, if another client has written it.
    """

    def __init__(self, connection: Connection, namespace: str, name: str, manager: str) -> None:
        self._request = connection.request
        place = f"{quote(namespace, safe='')}/configmaps/{quote(name, safe='')}"
        self._path = f"/api/v1/namespaces/{place}"
        self._manager = manager

    def get(self) -> Object:
        """The ConfigMap as it is now."""
        try:
            return self._request("GET", self._path)
        except MissingError as error:
            raise ClusterError(f"{error}; the chart creates it: run helm upgrade") from error

    def update(self, config_map: Object) -> None:
        """Replace the ConfigMap; it must carry the resourceVersion that was read."""
        self._request("PUT", f"{self._path}?fieldManager={self._manager}", config_map)


_OBJECTS = "apis/gpuward.io/v1alpha1"
# A tenant may write very many objects, or some with a megabyte of labels and annotations, which
# their schema does not limit. So pages are large, and become smaller where the objects are.
_PAGE = 250
_PAGE_BYTES = 8_000_000
EXCEPTIONS_FIELD_MANAGER = "gpuward-exceptions"


class GpuExceptions(Protocol):
    """The requests of the controller. All raise ClusterError; those that write, ConflictError."""

    def list_objects(self) -> Iterator[Object]:
        """The GpuExceptions of all namespaces, by namespace and name."""

    def write_conditions(self, raw: Object, conditions: list[Object]) -> None:
        """Replace the conditions of the GpuException that was read as `raw`."""

    def get_config_map(self) -> Object:
        """The ConfigMap for the accepted GpuExceptions."""

    def update_config_map(self, config_map: Object) -> None:
        """Replace that ConfigMap; it must carry the resourceVersion that was read."""


class KubernetesGpuExceptions:
    """`GpuExceptions` at a real API server, with the ConfigMap `name` in `namespace`."""

    def __init__(self, connection: Connection, namespace: str, name: str) -> None:
        self._request = connection.request
        self._config_map = StoredConfigMap(connection, namespace, name, EXCEPTIONS_FIELD_MANAGER)

    def list_objects(self) -> Iterator[Object]:
        """The GpuExceptions of all namespaces, by namespace and name, read page by page."""
        limit, query = _PAGE, dict[str, str]()
        while True:
            path = f"/{_OBJECTS}/gpuexceptions?{urlencode({'limit': str(limit)} | query)}"
            try:
                page = self._request("GET", path, max_bytes=_PAGE_BYTES)
            except TooLargeError:
                if limit == 1:
                    raise
                limit = max(1, limit // 4)
                continue
            yield from page.get("items") or ()
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                return
            del page  # before the next is read
            query["continue"] = token
            limit = min(_PAGE, limit * 2)

    def write_conditions(self, raw: Object, conditions: list[Object]) -> None:
        """Replace the conditions of the GpuException that was read as `raw`."""
        metadata = raw["metadata"]
        namespace, name = (quote(metadata[key], safe="") for key in ("namespace", "name"))
        path = f"/{_OBJECTS}/namespaces/{namespace}/gpuexceptions/{name}/status"
        # The resourceVersion: no condition is written about a spec that gpuward has not read.
        change = {
            "metadata": {"resourceVersion": metadata["resourceVersion"]},
            "status": {"conditions": conditions},
        }
        sent = "application/merge-patch+json"
        self._request("PATCH", f"{path}?fieldManager={EXCEPTIONS_FIELD_MANAGER}", change, sent)

    def get_config_map(self) -> Object:
        """The ConfigMap for the accepted GpuExceptions."""
        return self._config_map.get()

    def update_config_map(self, config_map: Object) -> None:
        """Replace that ConfigMap."""
        self._config_map.update(config_map)

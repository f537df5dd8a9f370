"""The requests of the controller for GpuExceptions, sent to a real API server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol
from urllib.parse import quote, urlencode

from cluster.api.connection import Connection
from cluster.api.errors import TooLargeError
from cluster.config_map import StoredConfigMap
from cluster.protocols import Object

_OBJECTS = "apis/gpuward.io/v1alpha1"
# A tenant may write very many objects, or some with a megabyte of labels and annotations, which
# their schema does not limit. So pages are large, and become smaller where the objects are.
_PAGE = 250
_PAGE_BYTES = 8_000_000
FIELD_MANAGER = "gpuward-exceptions"


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
        self._config_map = StoredConfigMap(connection, namespace, name, FIELD_MANAGER)

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
            query["continue"] = token
            limit = min(_PAGE, limit * 2)

    def write_conditions(self, raw: Object, conditions: list[Object]) -> None:
        """Replace the conditions of the GpuException that was read as `raw`."""
        metadata = raw["metadata"]
        namespace, name = (quote(metadata[key], safe="") for key in ("namespace", "name"))
        path = f"/{_OBJECTS}/namespaces/{namespace}/gpuexceptions/{name}/status"
        # The resourceVersion: no condition is written about a spec that nobody has read.
        change = {
            "metadata": {"resourceVersion": metadata["resourceVersion"]},
            "status": {"conditions": conditions},
        }
        sent = "application/merge-patch+json"
        self._request("PATCH", f"{path}?fieldManager={FIELD_MANAGER}", change, sent)

    def get_config_map(self) -> Object:
        """The ConfigMap for the accepted GpuExceptions."""
        return self._config_map.get()

    def update_config_map(self, config_map: Object) -> None:
        """Replace that ConfigMap."""
        self._config_map.update(config_map)

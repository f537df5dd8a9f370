"""A ConfigMap in which a controller keeps what it has found."""

from __future__ import annotations

from urllib.parse import quote

from cluster.api.connection import Connection
from cluster.api.errors import MissingError
from cluster.protocols import ClusterError, Object


class StoredConfigMap:
    """The ConfigMap `name` in `namespace`, which the chart has created.

    Its methods raise ClusterError; `update` ConflictError, if somebody else has written it.
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

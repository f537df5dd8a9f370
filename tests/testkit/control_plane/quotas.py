"""When the quotas of a namespace limit what is created there."""

from __future__ import annotations

from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.control_plane.processes import eventually

_FORBIDDEN = 403
_LAST = "made-last"


def await_quotas(cluster: Cluster, namespace: str) -> None:
    """Return when the API server's admission knows all quotas of `namespace`, and their usage.

    Admission reads quotas from a watch, which may be behind the answer to a GET. The watch
    delivers changes in their order: when admission refuses by a quota that was made last, it
    has seen the others. Raises TimeoutError.
    """
    path = f"/api/v1/namespaces/{namespace}/resourcequotas"

    def are_counted() -> bool:
        quotas = cluster.request("GET", path).body["items"]
        return all(quota.get("status", {}).get("hard") for quota in quotas)

    eventually(are_counted, what="the quotas are counted")
    cluster.create(path, {"metadata": {"name": _LAST}, "spec": {"hard": {"configmaps": "0"}}})
    config_maps = f"/api/v1/namespaces/{namespace}/configmaps?dryRun=All"

    def is_refused() -> bool:
        return cluster.request("POST", config_maps, {"metadata": {"name": "x"}}).status == (
            _FORBIDDEN
        )

    eventually(is_refused, what="the quota that was made last refuses a ConfigMap")
    cluster.request("DELETE", f"{path}/{_LAST}")

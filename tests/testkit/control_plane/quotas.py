"""When the quotas of a namespace limit what is created there."""

from __future__ import annotations

import itertools

from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.control_plane.processes import eventually

_FORBIDDEN = 403
# A name of its own for each call: the watch may not have shown yet that the last one is deleted.
_NUMBERS = itertools.count(1)


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
    last = f"made-last-{next(_NUMBERS)}"
    cluster.create(path, {"metadata": {"name": last}, "spec": {"hard": {"configmaps": "0"}}})
    config_maps = f"/api/v1/namespaces/{namespace}/configmaps?dryRun=All"

    def is_refused() -> bool:
        answer = cluster.request("POST", config_maps, {"metadata": {"name": "x"}})
        return answer.status == _FORBIDDEN and last in answer.body["message"]

    eventually(is_refused, what="the quota that was made last refuses a ConfigMap")
    cluster.request("DELETE", f"{path}/{last}")

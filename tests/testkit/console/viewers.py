"""Viewers of the console: service accounts with tokens for it."""

from __future__ import annotations

from console.access import AUDIENCE
from tests.testkit.chart.permissions import RBAC
from tests.testkit.control_plane.cluster import Cluster


def viewer_token(plane: Cluster, namespace: str, *, sees_all: bool = False) -> str:
    """A token for a user who may list the pods of a namespace, or of all."""
    name = "viewer"
    core = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    plane.create(core, {"metadata": {"name": name}})
    kind = "ClusterRoleBinding" if sees_all else "RoleBinding"
    place = "" if sees_all else f"/namespaces/{namespace}"
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": f"viewer-{namespace}"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "view",
        },
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    }
    plane.create(f"{RBAC}{place}/{kind.lower()}s", binding)
    spec = {"audiences": [AUDIENCE], "expirationSeconds": 3600}
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    return str(plane.create(f"{core}/{name}/token", request)["status"]["token"])

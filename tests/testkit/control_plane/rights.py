"""When the API server's authorizer knows the roles and bindings that there are."""

from __future__ import annotations

from typing import Any

from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.control_plane.processes import eventually

_GROUP = "rbac.authorization.k8s.io"
_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_NAME = "granted-last"
_NAMESPACE = "default"
_RULE = {"apiGroups": ["example.com"], "resources": ["rights"], "verbs": ["get"]}


def await_rights(cluster: Cluster) -> None:
    """Return when the API server's authorizer goes by the roles and bindings as they are now.

    It reads those of each kind from a watch, which may be behind the answer to a POST or DELETE.
    The watch delivers changes in their order: when a right is known that was granted last, the
    changes before it are known. Aggregated roles, such as `view`, are changed by a controller
    later. Raises TimeoutError.
    """
    for kind, place in (("Role", f"/namespaces/{_NAMESPACE}"), ("ClusterRole", "")):
        user = f"{_NAME}-by-a-{kind.lower()}"
        parent = f"/apis/{_GROUP}/v1{place}"
        roles, bindings = (f"{parent}/{kind.lower()}{end}" for end in ("s", "bindings"))
        cluster.create(roles, {"metadata": {"name": _NAME}, "rules": [_RULE]})
        try:
            cluster.create(bindings, _binding(kind, user))
            eventually(lambda: _may(cluster, user), what=f"the rights by a {kind}")  # noqa: B023
        finally:
            for path in (bindings, roles):
                cluster.request("DELETE", f"{path}/{_NAME}")


def _may(cluster: Cluster, user: str) -> bool:
    attributes = {"group": "example.com", "resource": "rights", "verb": "get"}
    spec = {"user": user, "resourceAttributes": {**attributes, "namespace": _NAMESPACE}}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    allowed: bool = cluster.create(_REVIEWS, body)["status"]["allowed"]
    return allowed


def _binding(kind: str, user: str) -> dict[str, Any]:
    role = {"apiGroup": _GROUP, "kind": kind, "name": _NAME}
    subject = {"apiGroup": _GROUP, "kind": "User", "name": user}
    return {"metadata": {"name": _NAME}, "roleRef": role, "subjects": [subject]}

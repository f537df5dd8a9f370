"""When the API server's authorizer knows the roles and bindings that there are."""

from __future__ import annotations

import itertools
from typing import Any

from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.control_plane.processes import eventually

_GROUP = "rbac.authorization.k8s.io"
_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_NAMESPACE = "default"
# A name of its own for each call: the watch may not have shown yet that the last one is deleted.
_NUMBERS = itertools.count(1)
_RULE = {"apiGroups": ["example.com"], "resources": ["rights"], "verbs": ["get"]}


def await_rights(cluster: Cluster) -> None:
    """Return when the API server's authorizer goes by the roles and bindings as they are now.

    It reads those of each kind from a watch, which may be behind the answer to a POST or DELETE.
    The watch delivers changes in their order: when a right is known that was granted last, the
    changes before it are known. Aggregated roles, such as `view`, are changed by a controller
    later. Raises TimeoutError.
    """
    for kind, place in (("Role", f"/namespaces/{_NAMESPACE}"), ("ClusterRole", "")):
        name = f"granted-last-{next(_NUMBERS)}"
        parent = f"/apis/{_GROUP}/v1{place}"
        roles, bindings = (f"{parent}/{kind.lower()}{end}" for end in ("s", "bindings"))
        cluster.create(roles, {"metadata": {"name": name}, "rules": [_RULE]})
        try:
            cluster.create(bindings, _binding(kind, name))
            eventually(lambda: _may(cluster, name), what=f"the rights by a {kind}")  # noqa: B023
        finally:
            for path in (bindings, roles):
                cluster.request("DELETE", f"{path}/{name}")


def _may(cluster: Cluster, user: str) -> bool:
    attributes = {"group": "example.com", "resource": "rights", "verb": "get"}
    spec = {"user": user, "resourceAttributes": {**attributes, "namespace": _NAMESPACE}}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    allowed: bool = cluster.create(_REVIEWS, body)["status"]["allowed"]
    return allowed


def _binding(kind: str, name: str) -> dict[str, Any]:
    """Give the role called `name` to the user of this name."""
    role = {"apiGroup": _GROUP, "kind": kind, "name": name}
    subject = {"apiGroup": _GROUP, "kind": "User", "name": name}
    return {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]}

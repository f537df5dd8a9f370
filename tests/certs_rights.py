"""What a chart makes for the certificate controller, and what it lets it do."""

from __future__ import annotations

from controlplane.cluster import Cluster

from certs.api import Kind

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ACCOUNT = LEASE = "gpuward-certs"
AUTHORITY_SECRET, SERVING_SECRET = "gpuward-ca", "gpuward-tls"
NAMESPACED = [
    {
        "apiGroups": [""],
        "resources": ["secrets"],
        "resourceNames": [AUTHORITY_SECRET, SERVING_SECRET],
    },
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": [LEASE]},
]


def prepare(plane: Cluster, namespace: str, configuration: str) -> None:
    """Make the controller's account, its empty Secrets and Lease, and all of its rights.

    `configuration` is the name of both webhook configurations, which need not exist yet.
    """
    core = f"/api/v1/namespaces/{namespace}"
    plane.create(f"{core}/serviceaccounts", {"metadata": {"name": ACCOUNT}})
    for name in (AUTHORITY_SECRET, SERVING_SECRET):
        plane.create(f"{core}/secrets", {"metadata": {"name": name}})
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    plane.create(leases, {"metadata": {"name": LEASE}})
    whole = {
        "apiGroups": ["admissionregistration.k8s.io"],
        "resources": [kind.value for kind in Kind],
        "resourceNames": [configuration],
        "verbs": ["get", "patch"],
    }
    account = [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}]
    for place, role, granted in (
        (f"{RBAC}/namespaces/{namespace}/", "Role", [_used(rule) for rule in NAMESPACED]),
        (f"{RBAC}/", "ClusterRole", [whole]),
    ):
        metadata = {"name": configuration}
        plane.create(f"{place}{role.lower()}s", {"metadata": metadata, "rules": granted})
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": configuration}
        binding = {"metadata": metadata, "roleRef": reference, "subjects": account}
        plane.create(f"{place}{role.lower()}bindings", binding)


def _used(rule: dict[str, list[str]]) -> dict[str, list[str]]:
    return {**rule, "verbs": ["get", "update"]}

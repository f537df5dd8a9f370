"""What a chart makes for the programs that ask API servers, and lets them do."""

from __future__ import annotations

from cluster.api import ConfigurationKind
from tests.testkit.control_plane.cluster import Cluster

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ACCOUNT = LEASE = "gpuward-certs"
REMOVER = "gpuward-removal"
CHECKER = "gpuward-test"
CONTROLLER_VERBS = ["get", "patch"]
# To delete would do, but then nobody could look beforehand whose it is.
REMOVAL_VERBS = ["get", "delete"]
CHECK_VERBS = ["get"]
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
    account = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    plane.create(leases, {"metadata": {"name": LEASE}})
    granted = [_used(rule) for rule in NAMESPACED]
    _grant(plane, f"{RBAC}/namespaces/{namespace}", "Role", configuration, granted, account)
    whole = [on_configurations(configuration, CONTROLLER_VERBS)]
    _grant(plane, RBAC, "ClusterRole", configuration, whole, account)


def prepare_removal(plane: Cluster, namespace: str, configuration: str) -> None:
    """Make the account of the pre-delete hook, and all of its rights."""
    plane.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": REMOVER}})
    granted = [on_configurations(configuration, REMOVAL_VERBS)]
    account = {"kind": "ServiceAccount", "name": REMOVER, "namespace": namespace}
    _grant(plane, RBAC, "ClusterRole", f"{configuration}-removal", granted, account)


def take_back_removal(plane: Cluster, configuration: str) -> None:
    """Take away what of the removal's rights is in no namespace."""
    for what in ("clusterrolebindings", "clusterroles"):
        plane.request("DELETE", f"{RBAC}/{what}/{configuration}-removal")


def prepare_check(plane: Cluster, namespace: str, configuration: str) -> None:
    """Make the account of the chart's test, and all of its rights."""
    plane.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": CHECKER}})
    granted = [on_configurations(configuration, CHECK_VERBS)]
    account = {"kind": "ServiceAccount", "name": CHECKER, "namespace": namespace}
    _grant(plane, RBAC, "ClusterRole", f"{configuration}-test", granted, account)


def take_back_check(plane: Cluster, configuration: str) -> None:
    """Take away what of the test's rights is in no namespace."""
    for what in ("clusterrolebindings", "clusterroles"):
        plane.request("DELETE", f"{RBAC}/{what}/{configuration}-test")


def on_configurations(name: str, verbs: list[str]) -> dict[str, list[str]]:
    """The rule for both webhook configurations of that name."""
    return {
        "apiGroups": ["admissionregistration.k8s.io"],
        "resources": [kind.value for kind in ConfigurationKind],
        "resourceNames": [name],
        "verbs": verbs,
    }


def _grant(
    plane: Cluster,
    place: str,
    role: str,
    name: str,
    rules: list[dict[str, list[str]]],
    account: dict[str, str],
) -> None:
    plane.create(f"{place}/{role.lower()}s", {"metadata": {"name": name}, "rules": rules})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": name}
    binding = {"metadata": {"name": name}, "roleRef": reference, "subjects": [account]}
    plane.create(f"{place}/{role.lower()}bindings", binding)


def _used(rule: dict[str, list[str]]) -> dict[str, list[str]]:
    return {**rule, "verbs": ["get", "update"]}

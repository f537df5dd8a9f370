"""The accounts and permissions that the chart gives to the clients of the API server."""

from __future__ import annotations

from cluster.api.errors import ConfigurationKind
from tests.testkit.control_plane.cluster import Cluster
from tests.testkit.control_plane.rights import await_rights

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ACCOUNT = LEASE = "gpuward-certs"
REMOVAL_ACCOUNT = "gpuward-removal"
CHECK_ACCOUNT = "gpuward-test"
WATCH_ACCOUNT = "gpuward-watch"
CONTROLLER_VERBS = ["get", "watch", "patch"]
WATCH_VERBS = ["get", "watch"]
REPAIR_VERBS = ["create", "patch"]
REPAIR_BINDING = "gpuward-repair"
# `gpuward webhooks remove` first sees whether a configuration is gpuward's.
REMOVAL_VERBS = ["get", "delete"]
READING_VERBS = ["get"]
AUTHORITY_SECRET, SERVING_SECRET = "gpuward-ca", "gpuward-tls"
# What the controller creates it applies: API servers check `create` with the name then.
NAMESPACED_RULES = [
    {
        "apiGroups": [""],
        "resources": ["secrets"],
        "resourceNames": [AUTHORITY_SECRET, SERVING_SECRET],
        "verbs": ["get", "watch", "create", "patch", "update"],
    },
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "resourceNames": [LEASE],
        "verbs": ["get", "create", "patch", "update"],
    },
    {
        "apiGroups": [""],
        "resources": ["serviceaccounts"],
        "resourceNames": [ACCOUNT],
        "verbs": ["get"],
    },
]
# RBAC cannot limit `create` to names.
EVENT_RULE = {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create"]}


# A configuration is created again only if its Service exists.
SERVICE_RULE = {
    "apiGroups": [""],
    "resources": ["services"],
    "resourceNames": ["gpuward"],
    "verbs": ["get"],
}


def create_controller_account(plane: Cluster, namespace: str, configuration: str) -> None:
    """Create the controller's account and its permissions.

    `configuration` is the name of both webhook configurations, which need not exist yet.
    """
    core = f"/api/v1/namespaces/{namespace}"
    plane.create(f"{core}/serviceaccounts", {"metadata": {"name": ACCOUNT}})
    account = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}
    rules = [*NAMESPACED_RULES, EVENT_RULE]
    _grant(plane, f"{RBAC}/namespaces/{namespace}", "Role", configuration, rules, account)
    cluster_rules = [configuration_rule(configuration, CONTROLLER_VERBS)]
    _grant(plane, RBAC, "ClusterRole", configuration, cluster_rules, account)


def create_removal_account(plane: Cluster, namespace: str, configuration: str) -> None:
    """Create an account for `gpuward webhooks remove`, and its permissions."""
    role = f"{configuration}-removal"
    _create_hook_account(plane, namespace, REMOVAL_ACCOUNT, role, configuration, REMOVAL_VERBS)


def delete_removal_permissions(plane: Cluster, configuration: str) -> None:
    """Delete the cluster-scoped permissions of that account."""
    _delete_cluster_role(plane, f"{configuration}-removal")


def create_check_account(plane: Cluster, namespace: str, configuration: str) -> None:
    """Create the account of the chart's test hook, and its permissions."""
    role = f"{configuration}-test"
    _create_hook_account(plane, namespace, CHECK_ACCOUNT, role, configuration, READING_VERBS)


def delete_check_permissions(plane: Cluster, configuration: str) -> None:
    """Delete the cluster-scoped permissions of the test hook."""
    _delete_cluster_role(plane, f"{configuration}-test")


def create_watch_account(plane: Cluster, namespace: str, configuration: str) -> None:
    """Create the account of the pod that watches the configurations, and its permissions."""
    role = f"{configuration}-watch"
    _create_hook_account(plane, namespace, WATCH_ACCOUNT, role, configuration, WATCH_VERBS)
    account = {"kind": "ServiceAccount", "name": WATCH_ACCOUNT, "namespace": namespace}
    _grant(plane, f"{RBAC}/namespaces/{namespace}", "Role", role, [EVENT_RULE], account)


def grant_repair(plane: Cluster, namespace: str, configuration: str) -> None:
    """Let the pod that watches the configurations create them again."""
    account = {"kind": "ServiceAccount", "name": WATCH_ACCOUNT, "namespace": namespace}
    rules = [configuration_rule(configuration, REPAIR_VERBS)]
    _grant(plane, RBAC, "ClusterRole", f"{configuration}-repair", rules, account)
    namespaced = f"{RBAC}/namespaces/{namespace}"
    _grant(plane, namespaced, "Role", f"{configuration}-repair", [SERVICE_RULE], account)


def delete_repair_permissions(plane: Cluster, configuration: str) -> None:
    """Delete the permissions of `grant_repair`."""
    _delete_cluster_role(plane, f"{configuration}-repair")


def delete_watch_permissions(plane: Cluster, configuration: str) -> None:
    """Delete the cluster-scoped permissions of the watch."""
    _delete_cluster_role(plane, f"{configuration}-watch")


def _create_hook_account(
    plane: Cluster, namespace: str, name: str, role: str, configuration: str, verbs: list[str]
) -> None:
    plane.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": name}})
    account = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    _grant(plane, RBAC, "ClusterRole", role, [configuration_rule(configuration, verbs)], account)


def _delete_cluster_role(plane: Cluster, name: str) -> None:
    for resource in ("clusterrolebindings", "clusterroles"):
        plane.request("DELETE", f"{RBAC}/{resource}/{name}")


def configuration_rule(name: str, verbs: list[str]) -> dict[str, list[str]]:
    """The RBAC rule for both webhook configurations of a name."""
    return {
        "apiGroups": ["admissionregistration.k8s.io"],
        "resources": [kind.value for kind in ConfigurationKind],
        "resourceNames": [name],
        "verbs": verbs,
    }


def _grant(
    plane: Cluster,
    parent: str,
    role: str,
    name: str,
    rules: list[dict[str, list[str]]],
    account: dict[str, str],
) -> None:
    plane.create(f"{parent}/{role.lower()}s", {"metadata": {"name": name}, "rules": rules})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": name}
    binding = {"metadata": {"name": name}, "roleRef": reference, "subjects": [account]}
    plane.create(f"{parent}/{role.lower()}bindings", binding)
    await_rights(plane)


def may(plane: Cluster, namespace: str, account: str, attempt: tuple[str, ...]) -> bool:
    """Return whether a service account may do something, by the API server's own authorizer.

    `attempt` is the verb, the group, the resource, the subresource, the namespace and the name.
    """
    keys = ("verb", "group", "resource", "subresource", "namespace", "name")
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{namespace}:{account}",
            "groups": ["system:serviceaccounts", "system:authenticated"],
            "resourceAttributes": dict(zip(keys, attempt, strict=True)),
        },
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    allowed: bool = plane.create(path, body)["status"]["allowed"]
    return allowed

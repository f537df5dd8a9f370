"""Policies that let few users change what gpuward itself consists of.

An API server that read them from a file asks them also about webhook configurations and policies,
which those in its storage are never asked about. So they have no parameters, and refer to nothing
that a request can change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from rules.in_process.expression import (
    Expression,
    all_of,
    any_of,
    choose,
    entry,
    get,
    is_in,
    name,
    not_,
    optional,
    string,
    text,
)
from webhook.in_process.objects import labels
from webhook.registration import MODE_LABEL, NAME_LABEL

_GROUP = "admissionregistration.k8s.io"
_OWN_NAME = "gpuward"
"""The beginning of the names of all objects of gpuward that are in no namespace."""
_SYSTEM = "kube-system"
# Controllers of Kubernetes. What they do follows from what somebody else did, who was asked.
_CONTROLLERS = (
    *("cronjob-controller", "daemon-set-controller", "deployment-controller"),
    *("generic-garbage-collector", "horizontal-pod-autoscaler", "job-controller"),
    *("legacy-service-account-token-cleaner", "namespace-controller", "replicaset-controller"),
    *("replication-controller", "root-ca-cert-publisher", "service-account-controller"),
    *("statefulset-controller", "ttl-after-finished-controller"),
)
# All of them, where they have no accounts of their own.
_CONTROLLER_MANAGER = "system:kube-controller-manager"
# They ask for the tokens of the pods that they run, and show their static pods.
_NODES = "system:nodes"
_TOKEN_SECRET = "kubernetes.io/service-account-token"  # noqa: S105  # a type
_ACCOUNT_OF_TOKEN = "kubernetes.io/service-account.name"  # noqa: S105  # an annotation

_ALL = ("CREATE", "UPDATE", "DELETE")
# The fields of guarded objects by which an update changes what they do.
_FIELDS = (
    *("spec", "data", "binaryData", "stringData", "type", "immutable", "webhooks"),
    *("rules", "aggregationRule", "roleRef", "subjects"),
    *("automountServiceAccountToken", "imagePullSecrets", "secrets"),
)
_METADATA = ("annotations", "finalizers", "labels", "ownerReferences")


class Guard(NamedTuple):
    """The objects that are guarded, and who may change them.

    - `namespace`, `release`: where gpuward is installed, and how the names of its objects begin.
    - `users`, `groups`: who may change it besides its own accounts.
    """

    namespace: str = "gpuward-system"
    release: str = "gpuward"
    users: Sequence[str] = ()
    groups: Sequence[str] = ()


_REQUEST = name("request")
_OBJECT, _OLD, _NOTHING = name("object"), name("oldObject"), name("null")
_USER = _REQUEST.userInfo.username
_USER_GROUPS = get(_REQUEST.userInfo, "groups", [])
_RESOURCE = _REQUEST.resource.resource
_SUBRESOURCE = get(_REQUEST, "subResource", "")


def guard_objects(guard: Guard) -> Iterator[dict[str, Any]]:
    """Yield the policies, each before its binding."""
    only_named = "only its own accounts, and the users whom a file of the API server names,"
    what = f"{string(_RESOURCE)} {string(_changed_name())}"
    yield from _policy(
        "gpuward-guard",
        "Only gpuward's own accounts, and the users whom this policy names, change its webhook "
        "configurations, its policies and its namespace.",
        [
            _rule(
                _GROUP,
                [
                    *("mutatingadmissionpolicies", "mutatingadmissionpolicybindings"),
                    *("mutatingwebhookconfigurations", "validatingwebhookconfigurations"),
                    *("validatingadmissionpolicies", "validatingadmissionpolicybindings"),
                ],
                _ALL,
                "Cluster",
            ),
            _rule("", _with("namespaces", "status", "finalize"), ["UPDATE", "DELETE"], "Cluster"),
        ],
        all_of(_is_own(guard), not_(_is_accepted(guard))),
        text(f"gpuward guards {what}: {only_named} change it"),
    )
    yield from _policy(
        "gpuward-guard-namespace",
        "Only gpuward's own accounts, the users whom this policy names, and controllers of "
        "Kubernetes change what is in gpuward's namespace.",
        _rules_in_namespace(),
        not_(_is_accepted(guard)),
        text(f"gpuward guards {what} in its namespace: {only_named} change it"),
        guard.namespace,
    )
    yield from _policy(
        "gpuward-guard-controllers",
        "Only nodes and the controller manager get tokens of the controllers of Kubernetes, whom "
        "the other guards let pass.",
        [
            _rule("", ["serviceaccounts/token"], ["CREATE"]),
            _rule("", ["secrets"], ["CREATE", "UPDATE"]),
        ],
        all_of(_is_token_of_controller(), not_(_is_accepted(guard))),
        text(
            "gpuward guards the tokens of controllers of Kubernetes: only the users whom a file of "
            "the API server names get one"
        ),
        _SYSTEM,
    )
    yield from _policy(
        "gpuward-guard-modes",
        "Only the users whom this policy names choose the mode of a namespace.",
        # The labels of a namespace can also be changed through these two.
        [_rule("", _with("namespaces", "status", "finalize"), ["CREATE", "UPDATE"], "Cluster")],
        all_of(_mode(_OBJECT) != _mode_before(), not_(_may_change(guard))),
        text(
            f"gpuward guards the label {MODE_LABEL}: only the users whom a file of the API server "
            "names choose the mode of a namespace"
        ),
    )


def _with(resource: str, *subresources: str) -> list[str]:
    return [resource, *(f"{resource}/{each}" for each in subresources)]


def _rules_in_namespace() -> list[dict[str, Any]]:
    """Return the kinds of gpuward's objects, and those by which a user could act as gpuward."""
    sets = ("daemonsets", "deployments", "replicasets", "statefulsets")
    return [
        _rule("", ["configmaps", "secrets", "services"], _ALL),
        _rule("", ["serviceaccounts", "serviceaccounts/token"], _ALL),
        # They may be deleted and evicted, as when a node is drained: others take their place.
        _rule("", ["pods", "pods/ephemeralcontainers"], ["CREATE", "UPDATE"]),
        _rule("", ["pods/attach", "pods/exec"], ["CONNECT"]),
        _rule("", _with("replicationcontrollers", "scale", "status"), _ALL),
        _rule("apps", [r for each in sets for r in _with(each, "scale", "status")], _ALL),
        _rule("autoscaling", ["horizontalpodautoscalers"], _ALL),
        _rule("batch", ["cronjobs", "jobs"], _ALL),
        _rule("coordination.k8s.io", ["leases"], _ALL),
        _rule("networking.k8s.io", ["networkpolicies"], _ALL),
        _rule("policy", ["poddisruptionbudgets"], _ALL),
        _rule("rbac.authorization.k8s.io", ["rolebindings", "roles"], _ALL),
    ]


def _changed_name() -> Expression:
    # A deletion of all objects of a kind has no name of its own, and is asked about for each.
    changed = choose((_NOTHING != _OLD, _OLD), otherwise=_OBJECT)
    return get(changed, "metadata.name", "")


def _is_own(guard: Guard) -> Expression:
    """Return whether an object that is in no namespace is one of gpuward, or its namespace."""
    changed = _changed_name()
    begins = dict.fromkeys((_OWN_NAME, guard.release))
    is_named = any_of(*(any_of(changed == w, changed.startsWith(f"{w}-")) for w in begins))
    return choose(
        (_REQUEST.resource.group == _GROUP, is_named), otherwise=changed == guard.namespace
    )


def _is_token_of_controller() -> Expression:
    """Return whether the user gets a token of a controller of Kubernetes."""
    account = entry(get(_OBJECT, "metadata.annotations", {}), _ACCOUNT_OF_TOKEN, "")
    by_secret = all_of(
        get(_OBJECT, "type", "") == _TOKEN_SECRET, is_in(account, list(_CONTROLLERS))
    )
    by_request = is_in(_REQUEST.name, list(_CONTROLLERS))
    return choose((_RESOURCE == "secrets", by_secret), otherwise=by_request)


def _is_accepted(guard: Guard) -> Expression:
    return any_of(_may_change(guard), _is_by_kubernetes(), _is_unchanged())


def _may_change(guard: Guard) -> Expression:
    tests = [_USER.startsWith(f"system:serviceaccount:{guard.namespace}:")]
    if guard.users:
        tests.append(is_in(_USER, list(guard.users)))
    if guard.groups:
        allowed = list(guard.groups)
        tests.append(_USER_GROUPS.exists(lambda g: is_in(g, allowed)))
    return any_of(*tests)


def _is_by_kubernetes() -> Expression:
    accounts = [f"system:serviceaccount:{_SYSTEM}:{each}" for each in _CONTROLLERS]
    is_of_node = any_of(_RESOURCE == "pods", _SUBRESOURCE == "token")
    return any_of(
        is_in(_USER, [_CONTROLLER_MANAGER, *accounts]),
        all_of(is_of_node, _REQUEST.operation == "CREATE", is_in(_NODES, _USER_GROUPS)),
    )


def _is_unchanged() -> Expression:
    """Return whether an update changes nothing, as when storage is encrypted anew."""
    return all_of(
        _REQUEST.operation == "UPDATE",
        *(optional(_OBJECT, field) == optional(_OLD, field) for field in _FIELDS),
        *(
            optional(_OBJECT, f"metadata.{field}") == optional(_OLD, f"metadata.{field}")
            for field in _METADATA
        ),
    )


def _mode(subject: Expression) -> Expression:
    return entry(get(subject, "metadata.labels", {}), MODE_LABEL, "")


def _mode_before() -> Expression:
    return choose((_NOTHING == _OLD, ""), otherwise=_mode(_OLD))


def _rule(
    group: str, resources: Sequence[str], operations: Sequence[str], scope: str = "Namespaced"
) -> dict[str, Any]:
    return {
        "apiGroups": [group],
        "apiVersions": ["*"],
        "operations": [*operations],
        "resources": [*resources],
        "scope": scope,
    }


def _policy(
    word: str,
    description: str,
    rules: Sequence[dict[str, Any]],
    is_refused: Expression,
    message: Expression,
    namespace: str = "",
) -> Iterator[dict[str, Any]]:
    common = {"apiVersion": f"{_GROUP}/v1"}
    # No request can change this label.
    here = [{"key": NAME_LABEL, "operator": "In", "values": [namespace]}]
    yield {
        **common,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {
            "name": word,
            "labels": labels(),
            "annotations": {"kubernetes.io/description": description},
        },
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "matchPolicy": "Equivalent",
                "namespaceSelector": {"matchExpressions": here} if namespace else {},
                "objectSelector": {},
                "resourceRules": [*rules],
            },
            "validations": [
                {
                    "expression": str(not_(is_refused)),
                    "message": "gpuward guards this object",
                    "messageExpression": str(message),
                    "reason": "Forbidden",
                }
            ],
        },
    }
    yield {
        **common,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": word, "labels": labels()},
        "spec": {"policyName": word, "validationActions": ["Deny"]},
    }

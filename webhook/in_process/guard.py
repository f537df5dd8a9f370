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
    string,
    text,
)
from webhook.in_process.objects import labels
from webhook.registration import MODE_LABEL

_GROUP = "admissionregistration.k8s.io"
_OWN_NAME = "gpuward"
"""The beginning of the names of all objects of gpuward that are in no namespace."""
_CONTROLLERS = "system:serviceaccount:kube-system:"
# What these do follows from what somebody else did, who was asked: they complete the deletion of an
# owner or of a namespace, and record in a Deployment which revision it has.
_OF_KUBERNETES = tuple(
    f"{_CONTROLLERS}{word}"
    for word in ("deployment-controller", "generic-garbage-collector", "namespace-controller")
)
# It sets how many replicas run, and nothing else.
_AUTOSCALER = f"{_CONTROLLERS}horizontal-pod-autoscaler"


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
_OBJECT, _OLD = name("object"), name("oldObject")
_USER = _REQUEST.userInfo.username


def guard_objects(guard: Guard) -> Iterator[dict[str, Any]]:
    """Yield the policies, each before its binding."""
    everything = [
        _rule(
            _GROUP,
            [
                *("mutatingadmissionpolicies", "mutatingadmissionpolicybindings"),
                *("mutatingwebhookconfigurations", "validatingwebhookconfigurations"),
                *("validatingadmissionpolicies", "validatingadmissionpolicybindings"),
            ],
            ["CREATE", "UPDATE", "DELETE"],
            "Cluster",
        ),
        _rule("", ["configmaps", "secrets"], ["CREATE", "UPDATE", "DELETE"]),
        _rule("coordination.k8s.io", ["leases"], ["CREATE", "UPDATE", "DELETE"]),
        _rule("apps", ["deployments", "deployments/scale"], ["UPDATE", "DELETE"]),
        _rule("", ["namespaces"], ["DELETE"], "Cluster"),
    ]
    yield from _policy(
        "gpuward-guard",
        "Only gpuward's own accounts, and the users whom this policy names, change what gpuward "
        "consists of.",
        everything,
        all_of(_is_own(guard), not_(_may_change(guard)), not_(_is_by_kubernetes())),
        text(
            f"gpuward guards {string(_REQUEST.resource.resource)} {string(_changed_name())}: only "
            "its own accounts, and the users whom a file of the API server names, change it"
        ),
    )
    yield from _policy(
        "gpuward-guard-modes",
        "Only the users whom this policy names choose the mode of a namespace.",
        [_rule("", ["namespaces"], ["CREATE", "UPDATE"], "Cluster")],
        all_of(_mode(_OBJECT) != _mode_before(), not_(_may_change(guard))),
        text(
            f"gpuward guards the label {MODE_LABEL}: only the users whom a file of the API server "
            "names choose the mode of a namespace"
        ),
    )


def _changed_name() -> Expression:
    # A deletion of all objects of a kind has no name of its own, and is asked about for each.
    changed = choose((name("null") != _OLD, _OLD), otherwise=_OBJECT)
    return get(changed, "metadata.name", "")


def _is_own(guard: Guard) -> Expression:
    """Return whether the object is one of gpuward, or its namespace."""
    changed = _changed_name()
    in_namespace = all_of(
        get(_REQUEST, "namespace", "") == guard.namespace, _begins_with(changed, guard.release)
    )
    in_none = any_of(_begins_with(changed, _OWN_NAME), _begins_with(changed, guard.release))
    is_namespace = changed == guard.namespace
    return choose(
        (_REQUEST.resource.resource == "namespaces", is_namespace),
        (_REQUEST.resource.group == _GROUP, in_none),
        otherwise=in_namespace,
    )


def _begins_with(value: Expression, word: str) -> Expression:
    return any_of(value == word, value.startsWith(f"{word}-"))


def _may_change(guard: Guard) -> Expression:
    own = _USER.startsWith(f"system:serviceaccount:{guard.namespace}:")
    tests: list[Expression] = [own]
    if guard.users:
        tests.append(is_in(_USER, list(guard.users)))
    if guard.groups:
        allowed = list(guard.groups)
        tests.append(get(_REQUEST.userInfo, "groups", []).exists(lambda g: is_in(g, allowed)))
    return any_of(*tests)


def _is_by_kubernetes() -> Expression:
    scales = all_of(get(_REQUEST, "subResource", "") == "scale", _USER == _AUTOSCALER)
    return any_of(is_in(_USER, list(_OF_KUBERNETES)), scales)


def _mode(subject: Expression) -> Expression:
    return entry(get(subject, "metadata.labels", {}), MODE_LABEL, "")


def _mode_before() -> Expression:
    return choose((name("null") == _OLD, ""), otherwise=_mode(_OLD))


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
) -> Iterator[dict[str, Any]]:
    common = {"apiVersion": f"{_GROUP}/v1"}
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
                "namespaceSelector": {},
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

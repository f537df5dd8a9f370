"""The identity and rights of users, which API servers tell other programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from rules.base.json_values import as_object, as_text

if TYPE_CHECKING:  # it needs the Kubernetes client, and the records here do not
    from cluster.api.connection import Connection

_MAX_BYTES = 1 << 20  # of an answer

ALL_NAMESPACES = ""
"""The namespace in which a user may list pods if they may list them in every namespace."""


class Identity(NamedTuple):
    """A user as API servers know them. `extra` is sorted, so that equal users are equal."""

    user: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


class Reviewer(Protocol):
    """Both questions. The methods raise ClusterError."""

    def identity(self, token: str, audience: str) -> Identity | None:
        """Return the user of a token; None if the API server does not accept it for `audience`.

        The empty audience is that of the API server itself.
        """

    def may_list_pods(self, identity: Identity, namespace: str) -> bool:
        """Return whether this user may list pods in a namespace, or in ALL_NAMESPACES."""


class KubernetesReviewer:
    """`Reviewer` at a real API server; the account needs to create both kinds of reviews."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def identity(self, token: str, audience: str) -> Identity | None:
        """Return the user of a token, by a TokenReview."""
        spec: dict[str, Any] = {"token": token}
        if audience:
            spec["audiences"] = [audience]
        status = self._reviewed("authentication.k8s.io", "TokenReview", spec)
        if status.get("authenticated") is not True:
            return None
        # What does not know of audiences accepts every token, and then does not name them.
        if audience and audience not in _texts(status.get("audiences")):
            return None
        user = as_object(status.get("user"))
        extra = sorted((key, _texts(each)) for key, each in as_object(user.get("extra")).items())
        name = as_text(user.get("username"))
        return Identity(name, _texts(user.get("groups")), as_text(user.get("uid")), tuple(extra))

    def may_list_pods(self, identity: Identity, namespace: str) -> bool:
        """Return whether this user may, by a SubjectAccessReview."""
        wanted = {"verb": "list", "resource": "pods", "version": "v1", "namespace": namespace}
        spec = {
            "user": identity.user,
            "groups": [*identity.groups],
            "uid": identity.uid,
            "extra": {key: [*values] for key, values in identity.extra},
            "resourceAttributes": wanted,
        }
        status = self._reviewed("authorization.k8s.io", "SubjectAccessReview", spec)
        return status.get("allowed") is True

    def _reviewed(self, group: str, kind: str, spec: dict[str, Any]) -> Any:
        """The status of a review, which API servers answer and do not keep."""
        body = {"apiVersion": f"{group}/v1", "kind": kind, "spec": spec}
        path = f"/apis/{group}/v1/{kind.lower()}s"
        answer = self._connection.request("POST", path, body, max_bytes=_MAX_BYTES)
        return as_object(answer.get("status"))


def _texts(value: object) -> tuple[str, ...]:
    return tuple(map(as_text, value)) if isinstance(value, list) else ()

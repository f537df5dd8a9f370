"""The requests that gpuward sends to Kubernetes, as protocols, and why one may fail."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, NamedTuple, Protocol

Object = dict[str, Any]
"""A Kubernetes object as JSON."""


class ConfigurationKind(enum.Enum):
    """The two kinds of webhook configuration, by the name of their resource."""

    MUTATING = "mutatingwebhookconfigurations"
    VALIDATING = "validatingwebhookconfigurations"


class ConfigurationRef(NamedTuple):
    """One webhook configuration of gpuward: its kind and its name."""

    kind: ConfigurationKind
    name: str


NEW_BUNDLE_ANNOTATION = "gpuward.io/new-ca-bundle"
"""On a webhook configuration for some seconds after its caBundle was written; its value is `true`.

Removing it makes API servers read the configuration once more.
"""


class ClusterError(Exception):
    """The API server refused a request or could not be reached."""


class ConflictError(ClusterError):
    """Another client changed the object after we read it."""


class Leases(Protocol):
    """The requests of a leader election, as those of `Cluster`."""

    def get_lease(self, name: str) -> Object | None:
        """The Lease `name` in the controller's namespace; None if it does not exist."""

    def write_lease(self, lease: Object) -> Object:
        """Replace a Lease, or create it; returns what is stored now."""


class Cluster(Leases, Protocol):
    """The requests of the certificate controller.

    All methods raise ClusterError; those that write also raise ConflictError. What is written
    carries the resourceVersion that was read; without one it is created, and must not exist.
    """

    def get_secret(self, name: str) -> Object | None:
        """The Secret `name` in the controller's namespace; None if it does not exist."""

    def write_secret(self, secret: Object) -> Object:
        """Replace a Secret, or create it; returns what is stored now."""

    def get_configuration(self, ref: ConfigurationRef) -> Object | None:
        """A webhook configuration; None if it does not exist."""

    def write_bundle(
        self, ref: ConfigurationRef, read: Object, indices: Sequence[int], bundle: str
    ) -> None:
        """Set the caBundle (base64) of the webhooks at `indices`, and annotate the configuration.

        `read` is the configuration as it was read. The annotation is NEW_BUNDLE_ANNOTATION.
        """

    def remove_bundle_annotation(self, ref: ConfigurationRef, version: str) -> None:
        """Remove NEW_BUNDLE_ANNOTATION from a configuration in that resourceVersion."""


class Configurations(Protocol):
    """The requests of `gpuward webhooks`. All raise ClusterError."""

    def get_configuration(self, ref: ConfigurationRef) -> Object | None:
        """A webhook configuration; None if it does not exist."""

    def delete_configuration(self, ref: ConfigurationRef, uid: str) -> Sequence[str]:
        """Delete a webhook configuration; returns the finalizers that keep it."""

    def delete_cluster_role_binding(self, name: str) -> None:
        """Delete a ClusterRoleBinding, if it exists."""


class MissingError(ClusterError):
    """There is no such object, or no such resource."""


class ForbiddenError(ClusterError):
    """The account lacks a right."""


class NamespaceTerminatingError(ForbiddenError):
    """The namespace is being deleted: nothing can be created there any more."""


class NotCreatedError(ForbiddenError):
    """An object that gpuward needs does not exist, and the account may not create it."""


class TooLargeError(ClusterError):
    """The answer is larger than the caller wants to read."""


class InvalidError(ClusterError):
    """The API server, or any webhook, does not accept what a request says."""


class ExpiredError(ClusterError):
    """The API server has forgotten the state of which it has listed a part.

    `continue_token` lists the rest of the present state; it may be empty.
    """

    continue_token = ""


class UnavailableError(ClusterError):
    """The API server does not answer, or not now; the same request may succeed later.

    `retry_after` is how many seconds it asks to wait, if it does.
    """

    retry_after: float | None = None


class UnreachableError(UnavailableError):
    """No answer came, or not all of it."""


class InternalError(UnavailableError):
    """The API server failed, or any webhook that must answer it."""


_ERRORS: dict[int, type[ClusterError]] = {
    HTTPStatus.BAD_REQUEST: InvalidError,
    HTTPStatus.CONFLICT: ConflictError,
    HTTPStatus.FORBIDDEN: ForbiddenError,
    HTTPStatus.GONE: ExpiredError,
    HTTPStatus.NOT_FOUND: MissingError,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: InvalidError,
    HTTPStatus.TOO_MANY_REQUESTS: UnavailableError,
    HTTPStatus.UNPROCESSABLE_ENTITY: InvalidError,
    HTTPStatus.INTERNAL_SERVER_ERROR: InternalError,
}


# API servers answer so for a path that they do not know, as of a kind without a definition.
_NOT_SERVED = "the API server does not serve this: is the CustomResourceDefinition installed?"


def error_of(what: str, code: int, status: Object, retry_after: str) -> ClusterError:
    """The error for an answer with the HTTP status `code`.

    `status` is its body, which API servers send as an object of the kind Status; `retry_after` is
    the header of this name. The message begins with `what`.
    """
    default = UnavailableError if code >= HTTPStatus.INTERNAL_SERVER_ERROR else ClusterError
    kind = _ERRORS.get(code, default)
    if kind is ForbiddenError and "NamespaceTerminating" in _cause_reasons(status):
        kind = NamespaceTerminatingError
    if not (message := status.get("message")):
        message = _NOT_SERVED if code == HTTPStatus.NOT_FOUND else "without a message"
    error = kind(f"{what} {message}")
    if isinstance(error, ExpiredError):
        metadata = status.get("metadata")
        token = metadata.get("continue") if isinstance(metadata, dict) else None
        error.continue_token = str(token or "")
    elif isinstance(error, UnavailableError):
        error.retry_after = float(retry_after) if retry_after.isdecimal() else None
    return error


def _cause_reasons(status: Object) -> list[object]:
    """The reasons of the causes in `status`.

    Source: Kubernetes, `staging/src/k8s.io/apimachinery/pkg/apis/meta/v1/types.go`, StatusCause.
    """
    details = status.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    found = causes if isinstance(causes, list) else []
    return [cause.get("reason") for cause in found if isinstance(cause, dict)]

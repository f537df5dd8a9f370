"""Why a request to an API server failed, for callers that can do something about it."""

from __future__ import annotations

from http import HTTPStatus

from cluster.protocols import ClusterError, ConflictError, Object


class MissingError(ClusterError):
    """There is no such object, or no such resource."""


class ForbiddenError(ClusterError):
    """The account lacks a right."""


class NamespaceTerminatingError(ForbiddenError):
    """The namespace is being deleted: nothing can be created there any more."""


class TooLargeError(ClusterError):
    """The answer is larger than the caller wants to read."""


class InvalidError(ClusterError):
    """The API server, or a webhook of somebody, does not accept what a request says."""


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
    """The API server failed, or a webhook of somebody that must answer it."""


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


def error_of(what: str, code: int, status: Object, retry_after: str) -> ClusterError:
    """The error for an answer with the HTTP status `code`.

    `status` is its body, which API servers send as an object of the kind Status; `retry_after` is
    the header of this name. The message begins with `what`.
    """
    default = UnavailableError if code >= HTTPStatus.INTERNAL_SERVER_ERROR else ClusterError
    kind = _ERRORS.get(code, default)
    if kind is ForbiddenError and "NamespaceTerminating" in _causes(status):
        kind = NamespaceTerminatingError
    error = kind(f"{what} {status.get('message') or 'without a message'}")
    if isinstance(error, ExpiredError):
        metadata = status.get("metadata")
        token = metadata.get("continue") if isinstance(metadata, dict) else None
        error.continue_token = str(token or "")
    elif isinstance(error, UnavailableError):
        error.retry_after = float(retry_after) if retry_after.isdecimal() else None
    return error


def _causes(status: Object) -> list[object]:
    """The reasons of the causes in `status`.

    Source: Kubernetes, `staging/src/k8s.io/apimachinery/pkg/apis/meta/v1/types.go`, StatusCause.
    """
    details = status.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    found = causes if isinstance(causes, list) else []
    return [cause.get("reason") for cause in found if isinstance(cause, dict)]

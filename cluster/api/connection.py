"""The connection to an API server, by the Kubernetes client.

It uses only the client's configuration (in-cluster or kubeconfig) and connection pool. The client's
models change with every release, and refuse values that they do not know.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Self

import urllib3
import yaml
from kubernetes import client, config

from cluster.api.errors import TooLargeError, UnreachableError, error_of
from cluster.kubeconfig import current_context, impersonation
from cluster.protocols import ClusterError, Object

_SECONDS = 10.0  # for one request
_NO_CREDENTIALS = "no credentials for the Kubernetes API"


class Connection:
    """A connection with the credentials that `load` puts into a configuration.

    The constructor raises ClusterError if there are none.
    """

    def __init__(self, load: Callable[[client.Configuration], None]) -> None:
        self._configuration = client.Configuration()
        try:
            load(self._configuration)
        except (config.ConfigException, OSError, ValueError, yaml.YAMLError) as error:
            raise ClusterError(f"{_NO_CREDENTIALS}: {error}") from error
        except (AttributeError, KeyError, TypeError) as error:  # where the client expects a list
            why = "a part of the kubeconfig file is missing or has another type than it must have"
            raise ClusterError(f"{_NO_CREDENTIALS}: {why}") from error
        if not self._configuration.host.startswith(("http://", "https://")):
            host = self._configuration.host
            raise ClusterError(f"{_NO_CREDENTIALS}: the cluster's server is no address: {host!r}")
        self._headers: list[tuple[str, str]] = []
        # Callers decide themselves when to retry.
        self._configuration.retries = urllib3.Retry(0)
        self._pool = client.ApiClient(self._configuration).rest_client.pool_manager

    @classmethod
    def in_cluster(cls, kubeconfig: str | None = None) -> Self:
        """Use the credentials of the pod, or of a kubeconfig file if one is given."""

        def load(configuration: client.Configuration) -> None:
            if kubeconfig is None:
                config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]  # the client's own code has no types
            elif not _exists(kubeconfig):
                raise _no_file(kubeconfig)
            else:
                config.load_kube_config(kubeconfig, client_configuration=configuration)  # type: ignore[no-untyped-call]  # the same

        return cls(load)

    @classmethod
    def like_kubectl(cls, kubeconfig: str | None = None, context: str | None = None) -> Self:
        """Use the credentials that kubectl would use: those of the pod only if there is no file."""
        files = kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
        more: list[tuple[str, str]] = []

        def load(configuration: client.Configuration) -> None:
            chosen = context or current_context(files)
            config.load_kube_config(files, chosen, client_configuration=configuration)  # type: ignore[no-untyped-call]  # the same
            more.extend(impersonation(files, chosen))

        if _exists(files):
            connection = cls(load)
            connection._headers = more
            return connection
        if kubeconfig or context or "KUBERNETES_SERVICE_HOST" not in os.environ:
            raise _no_file(files)
        return cls.in_cluster()

    def request(
        self,
        method: str,
        path: str,
        body: Object | list[dict[str, str]] | None = None,
        sent: str = "application/json",
        max_bytes: int | None = None,
    ) -> Object:
        """The JSON response to one request, which may have up to `max_bytes`.

        Raises ClusterError: one of those in `cluster.api.errors` for what a caller can do something
        about.
        """
        what = f"{method} {path.partition('?')[0]}"
        found = _object_in(self._send(what, method, path, body, sent, max_bytes))
        if found is None:
            raise ClusterError(f"{what}: the answer is no JSON object")
        return found

    def get_text(self, path: str, max_bytes: int) -> str:
        """The text at `path`, such as metrics, which may have up to `max_bytes`.

        Raises ClusterError, as `request` does.
        """
        data = self._send(f"GET {path}", "GET", path, None, "", max_bytes, accept="*/*")
        return data.decode("utf-8", "replace")

    def _send(
        self,
        what: str,
        method: str,
        path: str,
        body: Object | list[dict[str, str]] | None,
        sent: str,
        max_bytes: int | None,
        accept: str = "application/json",
    ) -> bytes:
        headers = urllib3.HTTPHeaderDict({"Accept": accept, **self._credentials()})
        for name, value in self._headers:
            headers.add(name, value)
        if body is not None:
            headers["Content-Type"] = sent
        try:
            answer = self._pool.request(
                method,
                self._configuration.host + path,
                headers=headers,
                body=None if body is None else json.dumps(body),
                timeout=_SECONDS,
                preload_content=False,
            )
            data = _read(answer, max_bytes)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise _failure(what, error) from error
        if data is None:
            raise TooLargeError(f"{what}: the answer has more than {max_bytes} bytes")
        if answer.status >= HTTPStatus.BAD_REQUEST:
            raise error_of(
                f"{what}: {answer.status}",
                answer.status,
                _object_in(data) or {},
                answer.headers.get("Retry-After", ""),
            )
        return data

    def _credentials(self) -> dict[str, str]:
        # Read for each request: tokens of pods are replaced every hour.
        found = self._configuration.auth_settings().get("BearerToken", {}).get("value")
        return {"Authorization": found.strip()} if found else {}


def _exists(files: str) -> bool:
    """Whether one of the kubeconfig files exists, which are separated as in $KUBECONFIG."""
    return any(os.path.exists(os.path.expanduser(file)) for file in files.split(os.pathsep))


def _no_file(files: str) -> ClusterError:
    return ClusterError(f"{_NO_CREDENTIALS}: there is no file {files}")


def _read(answer: urllib3.BaseHTTPResponse, max_bytes: int | None) -> bytes | None:
    """The body, and the connection given back; None if it has more than `max_bytes`."""
    try:
        data = answer.read(None if max_bytes is None else max_bytes + 1)
    except BaseException:
        answer.close()
        raise
    if max_bytes is not None and len(data) > max_bytes:
        answer.close()
        return None
    answer.release_conn()
    return data


def _failure(what: str, error: Exception) -> ClusterError:
    """The error for a request that was not answered."""
    reason = getattr(error, "reason", None)
    cause = reason if isinstance(reason, Exception) else error
    # A certificate, or a file of one, does not get better by waiting.
    is_final = isinstance(cause, urllib3.exceptions.SSLError) or isinstance(error, OSError)
    kind = ClusterError if is_final else UnreachableError
    return kind(f"{what}: {type(cause).__name__}: {cause}")


def _object_in(data: bytes) -> Object | None:
    """The JSON object that `data` is; None if it is none."""
    try:
        found: Any = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None

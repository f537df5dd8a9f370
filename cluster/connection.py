"""The connection to an API server: the one module that imports the Kubernetes client.

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
from kubernetes.config import kube_config

from cluster.protocols import ClusterError, ConflictError, Object

_SECONDS = 10.0  # for one request


class Connection:
    """A connection with the credentials that `load` puts into a configuration.

    The constructor raises ClusterError if there are none.
    """

    def __init__(self, load: Callable[[client.Configuration], None]) -> None:
        self._configuration = client.Configuration()
        try:
            load(self._configuration)
        except (config.ConfigException, OSError, ValueError, yaml.YAMLError) as error:
            raise ClusterError(f"no credentials for the Kubernetes API: {error}") from error
        # Callers decide themselves when to retry.
        self._configuration.retries = urllib3.Retry(0)
        self._pool = client.ApiClient(self._configuration).rest_client.pool_manager

    @classmethod
    def in_cluster(cls, kubeconfig: str | None = None) -> Self:
        """Use the credentials of the pod, or of a kubeconfig file if one is given."""

        def load(configuration: client.Configuration) -> None:
            if kubeconfig is None:
                config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]  # the client's own code has no types
            else:
                config.load_kube_config(kubeconfig, client_configuration=configuration)  # type: ignore[no-untyped-call]  # the same

        return cls(load)

    @classmethod
    def like_kubectl(cls, kubeconfig: str | None = None, context: str | None = None) -> Self:
        """Use the credentials that kubectl would use: those of the pod only if there is no file."""
        files = kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"

        def load(configuration: client.Configuration) -> None:
            chosen = context or _current_context(files)
            config.load_kube_config(files, chosen, client_configuration=configuration)  # type: ignore[no-untyped-call]  # the same

        if any(os.path.exists(os.path.expanduser(file)) for file in files.split(os.pathsep)):
            return cls(load)
        if kubeconfig or context or "KUBERNETES_SERVICE_HOST" not in os.environ:
            raise ClusterError(f"no credentials for the Kubernetes API: there is no file {files}")
        return cls.in_cluster()

    def request(
        self,
        method: str,
        path: str,
        body: Object | list[dict[str, str]] | None = None,
        sent: str = "application/json",
    ) -> Object:
        """The JSON response to one request. Raises ClusterError; MissingError for status 404."""
        headers = {"Accept": "application/json", **self._credentials()}
        if body is not None:
            headers["Content-Type"] = sent
        what = f"{method} {path.partition('?')[0]}"
        try:
            answer = self._pool.request(
                method,
                self._configuration.host + path,
                headers=headers,
                body=None if body is None else json.dumps(body),
                timeout=_SECONDS,
            )
        except urllib3.exceptions.HTTPError as error:
            raise ClusterError(f"{what}: {type(error).__name__}: {error}") from error
        return _answered(what, answer)

    def _credentials(self) -> dict[str, str]:
        # Read for each request: tokens of pods are replaced every hour.
        found = self._configuration.auth_settings().get("BearerToken", {}).get("value")
        return {"Authorization": found.strip()} if found else {}


class MissingError(ClusterError):
    """There is no such object."""


_ERRORS: dict[int, type[ClusterError]] = {
    HTTPStatus.CONFLICT: ConflictError,
    HTTPStatus.NOT_FOUND: MissingError,
}


def _current_context(files: str) -> str | None:
    """The context of the first file that names one, as kubectl chooses it.

    The client takes the last one, and so might connect to another cluster than kubectl.
    """
    contents: dict[str, Any] = kube_config.KubeConfigMerger(files).config_files  # type: ignore[no-untyped-call]  # the same
    found = (content.get("current-context") for content in contents.values())
    return next(filter(None, found), None)


def _answered(what: str, answer: urllib3.BaseHTTPResponse) -> Object:
    if answer.status >= HTTPStatus.BAD_REQUEST:
        raise _ERRORS.get(answer.status, ClusterError)(
            f"{what}: {answer.status} {_message(answer.data)}"
        )
    try:
        found: Any = json.loads(answer.data)
    except ValueError as error:
        raise ClusterError(f"{what}: the answer is no JSON") from error
    if not isinstance(found, dict):
        raise ClusterError(f"{what}: the answer is no object")
    return found


def _message(data: bytes) -> str:
    try:
        return str(json.loads(data)["message"])
    except (ValueError, KeyError, TypeError):
        return "without a message"

"""What kubectl reads in kubeconfig files, and the Kubernetes client does not, or otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from kubernetes.config import kube_config

from cluster.protocols import ClusterError


def current_context(files: str) -> str | None:
    """The context of the first file that names one, as kubectl chooses it.

    The client takes the last one, and so might connect to another cluster than kubectl.
    """
    found = (content.get("current-context") for content in _contents(files))
    return next(filter(None, found), None)


def impersonation(files: str, context: str | None) -> list[tuple[str, str]]:
    """The headers with which the user of `context` acts as somebody else; most act as themselves.

    Without them a command would have other rights than kubectl. Raises ClusterError. Source:
    Kubernetes, `staging/src/k8s.io/client-go/tools/clientcmd/api/v1/types.go`, AuthInfo.
    """
    chosen = _named(files, "contexts", context).get("context") or {}
    user = _named(files, "users", chosen.get("user")).get("user") or {}
    headers = list(_headers(user))
    if not all(isinstance(value, str) and value.isprintable() for _, value in headers):
        raise ClusterError("the user in the kubeconfig file acts as somebody whose name is no text")
    return headers


def _headers(user: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    if name := user.get("as"):
        yield "Impersonate-User", name
    if uid := user.get("as-uid"):
        yield "Impersonate-Uid", uid
    for group in user.get("as-groups") or ():
        yield "Impersonate-Group", group
    for key, values in (user.get("as-user-extra") or {}).items():
        for value in values:
            yield f"Impersonate-Extra-{quote(key, safe='')}", value


def _named(files: str, field: str, name: str | None) -> dict[str, Any]:
    """The first entry of this name in the list `field` of the files; empty if there is none."""
    entries = (entry for content in _contents(files) for entry in content.get(field) or ())
    return next((entry for entry in entries if entry.get("name") == name), {})


def _contents(files: str) -> list[dict[str, Any]]:
    return [*kube_config.KubeConfigMerger(files).config_files.values()]  # type: ignore[no-untyped-call]  # the client's own code has no types

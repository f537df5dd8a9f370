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
    # The HTTP client sends text as Latin-1; API servers read UTF-8.
    return [(name, value.encode().decode("latin-1")) for name, value in _headers(user)]


def _headers(user: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for field, header in (("as", "Impersonate-User"), ("as-uid", "Impersonate-Uid")):
        if user.get(field) not in (None, ""):
            yield header, _text(user[field], field)
    for group in _texts(user, "as-groups"):
        yield "Impersonate-Group", group
    extra = user.get("as-user-extra") or {}
    if not isinstance(extra, dict):
        raise _wrong_type("as-user-extra", "a map of lists of texts")
    for key in extra:
        name = quote(_text(key, "each key of as-user-extra"), safe="")
        for value in _texts(extra, key, "as-user-extra."):
            yield f"Impersonate-Extra-{name}", value


def _texts(holder: dict[str, Any], field: str, prefix: str = "") -> list[str]:
    """The texts of the list `field`, which may be missing."""
    found = holder.get(field)
    if not isinstance(found, list | None):
        raise _wrong_type(f"{prefix}{field}", "a list of texts")
    return [_text(text, f"each of {prefix}{field}") for text in found or ()]


def _text(value: object, what: str) -> str:
    if not (isinstance(value, str) and value.isprintable()):
        raise _wrong_type(what, "a text without control characters")
    return value


def _wrong_type(what: str, expected: str) -> ClusterError:
    return ClusterError(f"the user in the kubeconfig file: {what} must be {expected}")


def _named(files: str, field: str, name: str | None) -> dict[str, Any]:
    """The first entry of this name in the list `field` of the files; empty if there is none."""
    entries = (entry for content in _contents(files) for entry in content.get(field) or ())
    return next((entry for entry in entries if entry.get("name") == name), {})


def _contents(files: str) -> list[dict[str, Any]]:
    return [*kube_config.KubeConfigMerger(files).config_files.values()]  # type: ignore[no-untyped-call]  # the client's own code has no types

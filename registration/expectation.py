"""What the webhook configurations of a release should be: the manifests that the chart renders."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from cluster.protocols import ConfigurationKind, ConfigurationRef, Object

Expectation = Mapping[ConfigurationRef, Object]
"""The manifest of each webhook configuration that the release should have."""
MAX_BYTES = 4 * 1024 * 1024  # the chart's is below 200 kB; a cluster stores at most 1.5 MB
_KINDS = {
    "MutatingWebhookConfiguration": ConfigurationKind.MUTATING,
    "ValidatingWebhookConfiguration": ConfigurationKind.VALIDATING,
}


class ExpectationError(Exception):
    """The expectation cannot be read, or contains no webhook configuration."""


def read_expectation(path: str) -> Expectation:
    """The webhook configurations in a file of manifests, YAML or JSON; `-` is standard input.

    Other objects in it are ignored. Raises ExpectationError.
    """
    try:
        documents = _parse(_read(path))
    except OSError as error:
        raise ExpectationError(f"{path}: {error.strerror}") from error
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise ExpectationError(f"{path}: {_in_one_line(error)}") from error
    manifests = [each for document in documents for each in _configurations(document)]
    if broken := [each["kind"] for each in manifests if not _is_complete(each)]:
        raise ExpectationError(f"{path}: {broken[0]}: a name or a clientConfig is missing")
    if broken := [each["kind"] for each in manifests if not _has_good_selectors(each)]:
        raise ExpectationError(f"{path}: {broken[0]}: a namespaceSelector is no label selector")
    found = {
        ConfigurationRef(_KINDS[manifest["kind"]], manifest["metadata"]["name"]): manifest
        for manifest in manifests
    }
    if not found:
        raise ExpectationError(f"{path}: it contains no webhook configuration")
    return found


def _read(path: str) -> bytes:
    if path == "-":
        content = sys.stdin.buffer.read(MAX_BYTES + 1)
    else:
        with Path(path).open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"it is longer than {MAX_BYTES} bytes")
    return content


@functools.lru_cache(maxsize=1)  # the watch reads the same content all the time
def _parse(content: bytes) -> list[Any]:
    # The quicker loader in C crashes at deep nesting.
    return list(yaml.safe_load_all(content))


def _configurations(document: Any) -> Iterator[Object]:
    """The webhook configurations in a document, which may be a list of objects."""
    if not isinstance(document, dict):
        return
    items = document.get("items")
    for item in [document, *(items if isinstance(items, list) else ())]:
        if isinstance(item, dict) and item.get("kind") in tuple(_KINDS):  # it may be unhashable
            yield item


def _is_complete(manifest: Object) -> bool:
    """Whether everything has a name, and every webhook a clientConfig."""
    try:
        webhooks = list(manifest.get("webhooks") or ())
        names = [manifest["metadata"]["name"], *(webhook["name"] for webhook in webhooks)]
        clients = [webhook["clientConfig"] for webhook in webhooks]
    except (KeyError, TypeError):
        return False
    return all(isinstance(name, str) for name in names) and all(
        isinstance(client, dict) for client in clients
    )


def _has_good_selectors(manifest: Object) -> bool:
    """Whether every namespaceSelector of a complete manifest has the form that Kubernetes reads."""
    return all(
        _is_selector(webhook.get("namespaceSelector") or {})
        for webhook in manifest.get("webhooks") or ()
    )


def _is_selector(selector: Any) -> bool:
    terms = selector.get("matchExpressions") or [] if isinstance(selector, dict) else None
    return isinstance(terms, list) and all(
        isinstance(term, dict) and _are_texts(term.get("values") or []) for term in terms
    )


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def _in_one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__

"""Compare a webhook configuration in a cluster with what the release should have.

Only fields that gpuward knows are compared, so that a new version of Kubernetes, which may fill in
new fields, is no difference. The order of the webhooks has no meaning and is not compared.
"""

from __future__ import annotations

import functools
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from cluster.api.errors import ConfigurationKind, ConfigurationRef, Object
from cluster.source.registered import PROVIDER_TERMS, excluded_names, excludes_names
from terminal import reason_of
from webhook.registration import NAME_LABEL

_FIELDS = (
    *("admissionReviewVersions", "failurePolicy", "matchConditions", "matchPolicy"),
    *("objectSelector", "reinvocationPolicy", "rules", "sideEffects", "timeoutSeconds"),
)
# Namespaces of the provider that GKE Autopilot excludes from every webhook:
# https://github.com/Dynatrace/dynatrace-operator/issues/2194.
_PROVIDER_NAMESPACE = re.compile(r"kube-system|gke-managed-.+|gke-gmp-.+")
_MAX_SHOWN = 200  # characters of two values


def differences(expected: Object, found: Object | None) -> list[str]:
    """Return how the configuration `found` differs from `expected`, a text for each difference.

    If `expected` has no caBundle, another program writes it, and any is as expected.
    """
    if found is None:
        return ["it does not exist"]
    wanted, present = _by_name(expected), _by_name(found)
    missing = [f"{name}: it is missing" for name in wanted if name not in present]
    added = [f"{name}: it is not gpuward's" for name in present if name not in wanted]
    changed = [
        f"{name}: {difference}"
        for name, webhook in wanted.items()
        if name in present
        for difference in _webhook_differences(webhook, present[name])
    ]
    return missing + added + changed


def _by_name(configuration: Object) -> dict[str, Object]:
    return {str(webhook["name"]): webhook for webhook in configuration.get("webhooks") or ()}


def _webhook_differences(expected: Object, found: Object) -> Iterator[str]:
    wanted_client, found_client = dict(expected["clientConfig"]), dict(found["clientConfig"])
    wanted_bundle = wanted_client.pop("caBundle", None)
    found_bundle = found_client.pop("caBundle", None)
    if not found_bundle:
        yield "clientConfig.caBundle is empty, so API servers do not trust the webhook"
    elif wanted_bundle and found_bundle != wanted_bundle:
        yield "clientConfig.caBundle differs"
    yield from _value_differences("clientConfig", wanted_client, found_client)
    wanted_selector = expected.get("namespaceSelector") or {}
    names = excluded_names(wanted_selector)
    yield from _value_differences(
        "namespaceSelector",
        _without_provider_terms(wanted_selector, names),
        _without_provider_terms(found.get("namespaceSelector") or {}, names),
    )
    for field in _FIELDS:
        yield from _value_differences(field, expected.get(field), found.get(field))


def _without_provider_terms(selector: Object, names: set[str]) -> Object:
    """The selector with all excluded names in one term, and without what providers add.

    `names` are those that the release excludes.
    """
    excluded = {
        name
        for name in excluded_names(selector)
        if name in names or not _PROVIDER_NAMESPACE.fullmatch(name)
    }
    terms = selector.get("matchExpressions") or []
    others = [term for term in terms if not excludes_names(term) and term not in PROVIDER_TERMS]
    first = {"key": NAME_LABEL, "operator": "NotIn", "values": sorted(excluded)}
    return {**selector, "matchExpressions": [first, *others]}


def _value_differences(path: str, expected: Any, found: Any) -> Iterator[str]:
    """The differences of two values; what is empty equals what is missing."""
    if (expected or None) == (found or None):
        return
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in sorted({*expected, *found}, key=str):
            yield from _value_differences(f"{path}.{key}", expected.get(key), found.get(key))
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for index, pair in enumerate(zip(expected, found, strict=True)):
            yield from _value_differences(f"{path}[{index}]", *pair)
    elif len(text := f"expected {_shown(expected)}, found {_shown(found)}") <= _MAX_SHOWN:
        yield f"{path}: {text}"
    else:
        yield f"{path} differs"


def _shown(value: Any) -> str:
    return "nothing" if value is None else json.dumps(value, default=str)


# The webhook configurations that a release should have, in the manifests of its chart.

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
        content = _read(path)
    except OSError as error:
        raise ExpectationError(f"{path}: {reason_of(error)}") from error
    except ValueError as error:
        raise ExpectationError(f"{path}: {error}") from error
    return parse_expectation(content, path)


def parse_expectation(content: bytes, path: str) -> Expectation:
    """The webhook configurations in the content of the file `path`. Raises ExpectationError."""
    try:
        documents = _parse(content)
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
    """Return whether everything has a name, and every webhook a clientConfig."""
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
    """Return whether the namespaceSelectors of a complete manifest have Kubernetes' form."""
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

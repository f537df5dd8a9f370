"""Compare a webhook configuration in a cluster with what the release should have.

Only fields that gpuward knows are compared, so that a new version of Kubernetes, which may fill in
new fields, is no difference. The order of the webhooks has no meaning and is not compared.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from cluster.protocols import Object

_FIELDS = (
    *("admissionReviewVersions", "failurePolicy", "matchConditions", "matchPolicy"),
    *("objectSelector", "reinvocationPolicy", "rules", "sideEffects", "timeoutSeconds"),
)
_NAME_LABEL = "kubernetes.io/metadata.name"
# What AKS adds to the namespaceSelector of every webhook, unless the annotation
# admissions.enforcer/disabled forbids it: https://github.com/Azure/AKS/issues/4002 and
# https://github.com/Azure/AKS/issues/1771.
_PROVIDER_TERMS: tuple[Object, ...] = (
    {"key": "control-plane", "operator": "DoesNotExist"},
    {"key": "control-plane", "operator": "NotIn", "values": ["true"]},
    {"key": "kubernetes.azure.com/managedby", "operator": "NotIn", "values": ["aks"]},
)
# Namespaces of the provider that GKE Autopilot excludes from every webhook:
# https://github.com/Dynatrace/dynatrace-operator/issues/2194.
_PROVIDER_NAMESPACE = re.compile(r"kube-system|gke-managed-.+|gke-gmp-.+")
_MAX_SHOWN = 200  # characters of two values


def differences(expected: Object, found: Object | None) -> list[str]:
    """How the configuration `found` differs from `expected`, a text for each difference.

    If `expected` has no caBundle, somebody else writes it, and any is as expected.
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
    names = _excluded_names(wanted_selector)
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
        for name in _excluded_names(selector)
        if name in names or not _PROVIDER_NAMESPACE.fullmatch(name)
    }
    terms = selector.get("matchExpressions") or []
    others = [term for term in terms if not _excludes_names(term) and term not in _PROVIDER_TERMS]
    first = {"key": _NAME_LABEL, "operator": "NotIn", "values": sorted(excluded)}
    return {**selector, "matchExpressions": [first, *others]}


def _excluded_names(selector: Object) -> set[str]:
    terms = selector.get("matchExpressions") or []
    return {name for term in terms if _excludes_names(term) for name in term.get("values") or ()}


def _excludes_names(term: Object) -> bool:
    return (term.get("key"), term.get("operator")) == (_NAME_LABEL, "NotIn")


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

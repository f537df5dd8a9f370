"""The requests that API servers send to gpuward, and to other webhooks, by configurations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cluster.source.objects import Object, matches
from rules.base.json_values import as_object, as_objects, as_text
from rules.finding import Action
from webhook.registration import MODE_LABEL, NAME_LABEL, WEBHOOK_NAME_SUFFIX

# What AKS adds to the namespaceSelector of every webhook, unless the annotation
# admissions.enforcer/disabled forbids it: https://github.com/Azure/AKS/issues/4002 and
# https://github.com/Azure/AKS/issues/1771.
PROVIDER_TERMS: tuple[Object, ...] = (
    {"key": "control-plane", "operator": "DoesNotExist"},
    {"key": "control-plane", "operator": "NotIn", "values": ["true"]},
    {"key": "kubernetes.azure.com/managedby", "operator": "NotIn", "values": ["aks"]},
)


def is_own(configuration: Object) -> bool:
    """Return whether a webhook configuration is gpuward's."""
    entries = as_objects(configuration.get("webhooks"))
    return bool(entries) and all(
        as_text(entry.get("name")).endswith(WEBHOOK_NAME_SUFFIX) for _, entry in entries
    )


def registered_mode(
    configurations: Iterable[Object], namespace: str, labels: Mapping[str, Any]
) -> str:
    """The mode in which objects of a namespace with `labels` are sent to gpuward.

    `configurations` are gpuward's validating ones. Empty if such objects are not sent.
    """
    with_name = {NAME_LABEL: namespace, **labels}
    for configuration in configurations:
        for _, entry in as_objects(configuration.get("webhooks")):
            if matches(as_object(entry.get("namespaceSelector")), with_name):
                return as_text(entry.get("name")).partition(".")[0]
    return ""


def excluded_names(selector: Mapping[str, Any]) -> set[str]:
    """The namespaces that a namespaceSelector excludes by their names, as the chart's do."""
    terms = (term for _, term in as_objects(selector.get("matchExpressions")))
    return {name for term in terms if excludes_names(term) for name in _texts(term, "values")}


def excludes_names(term: Mapping[str, Any]) -> bool:
    """Return whether a term of a namespaceSelector excludes namespaces by their names."""
    return (term.get("key"), term.get("operator")) == (NAME_LABEL, "NotIn")


def is_excluded(
    configurations: Iterable[Object], namespace: str, labels: Mapping[str, Any]
) -> bool:
    """Return whether objects of a namespace are not sent to gpuward, whatever mode it chooses.

    That is so if the webhooks exclude it by its name, as the chart does, or if the provider of the
    cluster has added a term that does. Another reason does not count: it may not be intended.
    """
    known = [*configurations]
    selectors = _selectors(known)
    if selectors and all(namespace in excluded_names(each) for each in selectors):
        return True
    return is_excluded_by_provider(known, namespace, {**labels, MODE_LABEL: Action.DENY.word})


def is_excluded_by_provider(
    configurations: Iterable[Object], namespace: str, labels: Mapping[str, Any]
) -> bool:
    """Return whether only a term of PROVIDER_TERMS keeps a namespace's objects from gpuward."""
    known = [*configurations]
    return not registered_mode(known, namespace, labels) and _is_sent(known, namespace, labels)


def is_unexpectedly_not_sent(
    configurations: Iterable[Object], namespace: str, labels: Mapping[str, Any]
) -> bool:
    """Return whether objects of a namespace are not sent to gpuward for no known reason.

    Its label `gpuward.io/mode` may say why, or what `is_excluded` looks at. The default mode may be
    `off`; then a namespace without a label is not sent.
    """
    known = [*configurations]
    own = as_text(labels.get(MODE_LABEL))
    if own == Action.OFF.word or is_excluded(known, namespace, labels):
        return False
    asked = [labels]
    if own not in {action.word for action in Action}:
        asked.append({**labels, MODE_LABEL: Action.DENY.word})
    return not any(_is_sent(known, namespace, each) for each in asked)


def _is_sent(configurations: Iterable[Object], namespace: str, labels: Mapping[str, Any]) -> bool:
    """Return whether a namespaceSelector, without providers' terms, selects the namespace."""
    with_name = {NAME_LABEL: namespace, **labels}
    return any(
        matches(_without_provider_terms(selector), with_name)
        for selector in _selectors(configurations)
    )


def _selectors(configurations: Iterable[Object]) -> list[Mapping[str, Any]]:
    return [
        as_object(entry.get("namespaceSelector"))
        for configuration in configurations
        for _, entry in as_objects(configuration.get("webhooks"))
    ]


def _without_provider_terms(selector: Mapping[str, Any]) -> Mapping[str, Any]:
    terms = [term for _, term in as_objects(selector.get("matchExpressions"))]
    return {**selector, "matchExpressions": [t for t in terms if t not in PROVIDER_TERMS]}


# Webhooks to which API servers send pods.


def webhooks_for_pods(configuration: Object) -> list[Mapping[str, Any]]:
    """Its webhooks to which pods are sent when they are created."""
    return [
        entry
        for _, entry in as_objects(configuration.get("webhooks"))
        if any(_selects_new_pods(rule) for _, rule in as_objects(entry.get("rules")))
    ]


def _selects_new_pods(rule: Mapping[str, Any]) -> bool:
    groups, resources, operations = (
        _texts(rule, field) for field in ("apiGroups", "resources", "operations")
    )
    return (
        not groups.isdisjoint({"", "*"})
        and not resources.isdisjoint({"pods", "*", "*/*"})
        and not operations.isdisjoint({"CREATE", "*"})
    )


def _texts(rule: Mapping[str, Any], field: str) -> set[str]:
    listed = as_object(rule).get(field)
    return {as_text(item) for item in listed} if isinstance(listed, list) else set()

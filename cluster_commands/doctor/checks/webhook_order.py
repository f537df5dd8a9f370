"""Other mutating webhooks for pods, and whether gpuward sees what they change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cluster_commands.doctor.checks.own_webhook import is_own
from cluster_commands.doctor.facts import Facts, by_name
from cluster_commands.doctor.rows import Row, ok, wrong
from cluster_commands.source.objects import Object
from cluster_commands.source.resources import MUTATING
from rules.base.json_access import as_object, as_objects, as_text

_CHECK = "webhook order"
_REMEDY = (
    "gpuward's own webhooks have reinvocationPolicy IfNeeded: run `helm upgrade` with the "
    "values of the release"
)


def check_webhook_order(facts: Facts) -> Iterator[Row]:
    """One row for each foreign configuration that changes pods.

    API servers call mutating webhooks in the order of the names of their configurations. What a
    later one changes, gpuward sees again only with reinvocationPolicy IfNeeded, and only in pods
    that its match condition let through before.
    """
    configurations = list(by_name(facts.objects(MUTATING)))
    own = [(name, item) for name, item in configurations if is_own(item)]
    if not own:
        return  # the check of the webhook says why
    last = own[-1][0]
    sees_again = all(
        entry.get("reinvocationPolicy") == "IfNeeded"
        for _, item in own
        for _, entry in as_objects(item.get("webhooks"))
    )
    for name, item in configurations:
        if is_own(item) or not _changes_pods(item):
            continue
        if name < last:
            yield ok(_CHECK, name, "is called before gpuward, which sees what it changes")
        elif sees_again:
            again = "is called again for the pods that it was sent"
            yield ok(_CHECK, name, f"is called after gpuward, which {again}")
        else:
            message = "is called after gpuward, which does not see what it changes"
            yield wrong(_CHECK, name, message, _REMEDY)


def _changes_pods(configuration: Object) -> bool:
    return any(
        _has(rule, "resources", "pods") and _has(rule, "operations", "CREATE")
        for _, entry in as_objects(configuration.get("webhooks"))
        for _, rule in as_objects(entry.get("rules"))
        if "" in _texts(rule, "apiGroups") or "*" in _texts(rule, "apiGroups")
    )


def _has(rule: Mapping[str, Any], field: str, wanted: str) -> bool:
    listed = _texts(rule, field)
    return wanted in listed or "*" in listed or "*/*" in listed


def _texts(rule: Mapping[str, Any], field: str) -> list[str]:
    listed = as_object(rule).get(field)
    return [as_text(item) for item in listed] if isinstance(listed, list) else []

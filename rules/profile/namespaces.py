"""The namespaces that the options of a rule choose, by name or by label."""

from collections.abc import Mapping
from typing import Any

from rules.base.json_values import as_text
from rules.base.text_matching import matches, matches_any
from rules.inventory.inventory import Namespace
from rules.profile.context import Context


def is_chosen(namespace: str, context: Context) -> bool | None:
    """Return whether the options `namespaces` or `labels` of the rule choose the namespace.

    None if that is not known: there is no name, or it depends on labels that are not known.
    """
    if not namespace:
        return None
    if matches_any(context.options["namespaces"], namespace):
        return True
    labels = context.options["labels"]
    if not labels:
        return False
    known = context.inventory.find(Namespace, namespace)
    return None if known is None else any(_has_label(known.labels, each) for each in labels)


def _has_label(labels: Mapping[str, Any], wanted: str) -> bool:
    """Return whether `labels` have the one that is `wanted`: `key`, or `key=pattern`."""
    key, equals, pattern = wanted.partition("=")
    return key in labels and (not equals or matches(pattern, as_text(labels[key])))

"""The namespaces that the options of a rule choose, by name or by label."""

from collections.abc import Mapping
from typing import Any

from rules.base.json_values import as_text
from rules.base.text_matching import matches, matches_any
from rules.inventory.inventory import Namespace
from rules.profile.context import Context

UNKNOWN_LABELS = "; its labels are not known"
"""What a message says of a namespace if that is why it is not chosen."""


def is_chosen(namespace: str, context: Context) -> bool | None:
    """Return whether the options `namespaces` or `labels` of the rule choose the namespace.

    None if that is not known: there is no name, or it depends on labels that are not known.
    """
    names, labels = context.options["namespaces"], context.options["labels"]
    if not (names or labels):
        return False
    if not namespace:
        return None
    if matches_any(names, namespace):
        return True
    if not labels:
        return False
    known = context.inventory.find(Namespace, namespace)
    return None if known is None else any(_has_label(known.labels, each) for each in labels)


def _has_label(labels: Mapping[str, Any], wanted: str) -> bool:
    """Return whether `labels` have `wanted`: a `key`, or `key=value` with `*` in the value."""
    key, equals, pattern = wanted.partition("=")
    return key in labels and (not equals or matches(pattern, as_text(labels[key])))


def words_of_unchosen(namespace: str, context: Context) -> str | None:
    """Words that follow the name of a namespace which the options do not choose; None if they do.

    The words are empty, or say that its labels are not known. Then it is one of them at admission,
    where its user must not gain from that. In a file, whose namespace is elsewhere, it is none.
    """
    chosen = is_chosen(namespace, context)
    if chosen is None and context.operation is not None:
        return UNKNOWN_LABELS
    return "" if chosen is False else None

"""Label selectors, as kube-scheduler reads them in affinity to pods and topology spread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cluster.source.objects import matches
from rules.base.json_values import as_object, as_objects, as_text


class LabelSelector:
    """A selector of the API: without one nothing is selected, and an empty one selects all."""

    def __init__(self, raw: object) -> None:
        self._raw: Mapping[str, Any] | None = raw if isinstance(raw, dict) else None

    @property
    def is_empty(self) -> bool:
        """Return whether it selects everything."""
        raw = self._raw
        return raw is not None and not (raw.get("matchLabels") or raw.get("matchExpressions"))

    @property
    def is_none(self) -> bool:
        """Return whether it selects nothing."""
        return self._raw is None

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether it selects an object with `labels`."""
        return self._raw is not None and matches(self._raw, labels)

    def narrowed(self, labels: Mapping[str, str]) -> LabelSelector:
        """The selector of those that also have `labels`."""
        if self._raw is None or not labels:
            return self
        own = [term for _, term in as_objects(self._raw.get("matchExpressions"))]
        terms = [{"key": key, "operator": "In", "values": [labels[key]]} for key in labels]
        return LabelSelector({**self._raw, "matchExpressions": [*own, *terms]})


def labels_of(raw: Mapping[str, Any]) -> dict[str, str]:
    """The labels of an object."""
    labels = as_object(as_object(raw.get("metadata")).get("labels"))
    return {key: as_text(value) for key, value in labels.items()}

"""Whether labels match a label selector, as API servers decide it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rules.base.json_access import as_object, as_objects, as_text


def matches(selector: Mapping[str, Any], labels: Mapping[str, Any]) -> bool:
    """Whether `labels` match every term of `selector`; an empty selector matches everything.

    Source: Kubernetes, `staging/src/k8s.io/apimachinery/pkg/labels/selector.go`, Matches.
    """
    return all(
        labels.get(key) == value for key, value in as_object(selector.get("matchLabels")).items()
    ) and all(_fits(term, labels) for _, term in as_objects(selector.get("matchExpressions")))


def _fits(term: Mapping[str, Any], labels: Mapping[str, Any]) -> bool:
    key, values = as_text(term.get("key")), term.get("values")
    values = values if isinstance(values, list) else []
    match term.get("operator"):
        case "In":
            return key in labels and labels[key] in values
        case "NotIn":
            return key not in labels or labels[key] not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
    return False

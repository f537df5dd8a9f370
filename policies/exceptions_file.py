"""The file by which accepted GpuExceptions reach the webhook, as JSON."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from policies.checked_content import format_time, parse_checked
from policies.gpu_exceptions import APPROVAL_LABEL, MAX_ACCEPTED
from rules.base.json_access import as_object, as_objects

EXCEPTIONS_FILE = "exceptions.json"
"""The name of the file, also as the key of the chart's ConfigMap."""
MAX_BYTES = 1 << 20  # the most that a ConfigMap can have
_METADATA = ("namespace", "name", "creationTimestamp")


class ExceptionsFile(NamedTuple):
    """GpuExceptions, and when the controller last compared them with the cluster, in UTC."""

    checked_at: datetime.datetime
    objects: tuple[Mapping[str, Any], ...]


def format_exceptions(file: ExceptionsFile) -> str:
    """The text of the file: of each object only what decides whether it is accepted."""
    content = {
        "checkedAt": format_time(file.checked_at),
        "items": [deciding_fields(raw) for raw in file.objects],
    }
    return json.dumps(content, separators=(",", ":"))


def deciding_fields(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a GpuException that decide whether it is accepted, and its name."""
    metadata = as_object(raw.get("metadata"))
    kept = {key: metadata[key] for key in _METADATA if key in metadata}
    approval = as_object(metadata.get("labels")).get(APPROVAL_LABEL)
    labels = {} if approval is None else {"labels": {APPROVAL_LABEL: approval}}
    return {"metadata": {**kept, **labels}, "spec": raw.get("spec")}


def parse_exceptions(content: bytes) -> ExceptionsFile:
    """The file in `content`; nobody has checked its objects. ValueError says what is wrong."""
    checked, raw = parse_checked(content, MAX_BYTES)
    items = raw.get("items")
    if isinstance(items, list) and len(items) > MAX_ACCEPTED:
        raise ValueError(f"it has {len(items)} items; the controller writes at most {MAX_ACCEPTED}")
    return ExceptionsFile(checked, tuple(item for _, item in as_objects(items)))

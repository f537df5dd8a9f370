"""The file by which accepted GpuExceptions reach the webhook, as JSON."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from policies.gpu_exceptions import APPROVAL_LABEL, MAX_ACCEPTED
from rules.base.json_access import as_object, as_objects, as_text

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
    checked = file.checked_at.astimezone(datetime.UTC).isoformat(timespec="seconds")
    content = {"checkedAt": checked, "items": [deciding_fields(raw) for raw in file.objects]}
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
    if len(content) > MAX_BYTES:
        raise ValueError(f"it has more than {MAX_BYTES} bytes")
    try:
        raw = as_object(json.loads(content))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is no JSON: {error}") from error
    try:
        checked = datetime.datetime.fromisoformat(as_text(raw.get("checkedAt")))
    except ValueError as error:
        raise ValueError("checkedAt is no time") from error
    if checked.tzinfo is None:
        raise ValueError("checkedAt has no time zone")
    items = raw.get("items")
    if isinstance(items, list) and len(items) > MAX_ACCEPTED:
        raise ValueError(f"it has {len(items)} items; the controller writes at most {MAX_ACCEPTED}")
    return ExceptionsFile(checked, tuple(item for _, item in as_objects(items)))

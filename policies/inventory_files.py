"""The files by which an inventory of the cluster reaches the webhook, as JSON.

A ConfigMap holds a megabyte, so an inventory has several parts, each in a file of its own.
"""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from rules.base.json_access import as_object, as_text
from rules.inventory.inventory import Inventory
from rules.inventory.serialization import VERSION, from_json, to_json

MAX_BYTES = 1_000_000  # of a part: a ConfigMap holds little more
MAX_PARTS = 16
_LEVELS = 3  # of objects around a record: kind, namespace and name


class CheckedInventory(NamedTuple):
    """An inventory, and when it was last compared with the cluster, in UTC."""

    checked_at: datetime.datetime
    inventory: Inventory


def file_name(part: int) -> str:
    """The name of the file with a part of an inventory, counted from 0."""
    return f"inventory-{part}.json"


def format_inventory(checked: CheckedInventory, parts: int) -> list[str]:
    """The texts of all files. Raises ValueError if an inventory is too large for so many."""
    shares: list[dict[str, Any]] = [{} for _ in range(parts)]
    for kind, homes in to_json(checked.inventory).items():
        for home, names in homes.items():
            for name, record in names.items():
                share = shares[_part_of(f"{kind}/{home}/{name}", parts)]
                share.setdefault(kind, {}).setdefault(home, {})[name] = record
    time = checked.checked_at.astimezone(datetime.UTC).isoformat(timespec="seconds")
    texts = []
    for number, share in enumerate(shares):
        head = {"version": VERSION, "checkedAt": time, "part": number, "parts": parts}
        texts.append(json.dumps({**head, "records": share}, separators=(",", ":")))
    largest = max(len(text.encode()) for text in texts)
    if largest > MAX_BYTES:
        raise ValueError(f"a part of the inventory has {largest:,} bytes, of {MAX_BYTES:,} allowed")
    return texts


def parse_inventory(contents: Sequence[bytes]) -> CheckedInventory:
    """The inventory in the files, as old as the oldest. ValueError says what is wrong."""
    files = [_parse(content) for content in contents]
    if sorted(number for number, _, _ in files) != list(range(len(files))) or not files:
        raise ValueError("parts of it are missing")
    records: dict[str, Any] = {}
    for _, _, share in files:
        _add(share, records, _LEVELS)
    return CheckedInventory(min(time for _, time, _ in files), from_json(records))


def _parse(content: bytes) -> tuple[int, datetime.datetime, Any]:
    if len(content) > MAX_BYTES:
        raise ValueError(f"a part has more than {MAX_BYTES:,} bytes")
    try:
        raw = as_object(json.loads(content))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is no JSON: {error}") from error
    if raw.get("version") != VERSION:
        raise ValueError(f"its version is {raw.get('version')!r}, and not {VERSION}")
    try:
        time = datetime.datetime.fromisoformat(as_text(raw.get("checkedAt")))
    except ValueError as error:
        raise ValueError("checkedAt is no time") from error
    if time.tzinfo is None:
        raise ValueError("checkedAt has no time zone")
    number = raw.get("part")
    if type(number) is not int:
        raise ValueError("part is no number")  # of JSON
    return number, time, raw.get("records")


def _part_of(place: str, parts: int) -> int:
    """The part in which a record stays while the number of parts does."""
    return int.from_bytes(hashlib.sha256(place.encode()).digest()[:8]) % parts


def _add(share: Any, records: dict[str, Any], levels: int) -> None:
    if not isinstance(share, dict):
        raise ValueError("records is no object of objects")  # noqa: TRY004  # of JSON
    for key, value in share.items():
        if levels == 1 or key not in records:
            records[key] = value
        else:
            _add(value, records[key], levels - 1)

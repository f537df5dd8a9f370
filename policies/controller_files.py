"""The files by which controllers tell the webhook what they have found in the cluster, as JSON."""

from __future__ import annotations

import datetime
import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from policies.gpu_exceptions import APPROVAL_LABEL, MAX_ACCEPTED
from rules.base.json_values import as_object, as_objects, as_text
from rules.inventory.inventory import FORMAT_VERSION, Inventory, Namespace, from_json, to_json


class CheckedContent(NamedTuple):
    """The object in a file, and when a controller last compared it with the cluster, in UTC."""

    checked_at: datetime.datetime
    raw: Mapping[str, Any]


def parse_checked_content(content: bytes, most: int) -> CheckedContent:
    """The object in `content`, which may have `most` bytes. ValueError says what is wrong."""
    if len(content) > most:
        raise ValueError(f"it has more than {most:,} bytes")
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
    return CheckedContent(checked, raw)


def format_time(checked_at: datetime.datetime) -> str:
    """The time as files have it under `checkedAt`."""
    return checked_at.astimezone(datetime.UTC).isoformat(timespec="seconds")


# The files by which an inventory of the cluster reaches the webhook, as JSON.
#
# A ConfigMap holds a megabyte, so an inventory has several parts, each in a file of its own.

MAX_PART_BYTES = 1_000_000  # of a part: a ConfigMap holds little more
MAX_PARTS = 16
_FILLED_SHARE = 0.8  # of all parts: they are not filled alike
_RECORD_LEVELS = 3  # of objects around a record: kind, namespace and name


class CheckedInventory(NamedTuple):
    """An inventory, and when it was last compared with the cluster, in UTC."""

    checked_at: datetime.datetime
    inventory: Inventory


def inventory_file_name(part: int) -> str:
    """The name of the file with a part of an inventory, counted from 0."""
    return f"inventory-{part}.json"


class TooLargeError(ValueError):
    """An inventory does not fit into its files."""


def format_inventory(checked: CheckedInventory, parts: int) -> list[str]:
    """The texts of all files. Raises TooLargeError if an inventory is too large for so many."""
    shares: list[dict[str, Any]] = [{} for _ in range(parts)]
    for kind, homes in to_json(checked.inventory).items():
        for home, names in homes.items():
            for name, record in names.items():
                share = shares[_part_number(f"{kind}/{home}/{name}", parts)]
                share.setdefault(kind, {}).setdefault(home, {})[name] = record
    time = format_time(checked.checked_at)
    texts = []
    for number, share in enumerate(shares):
        head = {"version": FORMAT_VERSION, "checkedAt": time, "part": number, "parts": parts}
        texts.append(json.dumps({**head, "records": share}, separators=(",", ":")))
    largest = max(len(text.encode()) for text in texts)
    if largest > MAX_PART_BYTES:
        raise TooLargeError(
            f"a part of the inventory has {largest:,} bytes, of {MAX_PART_BYTES:,} allowed"
        )
    return texts


def without_largest_namespaces(inventory: Inventory, parts: int) -> tuple[Inventory, list[str]]:
    """As much of an inventory as fits into so many parts, and the namespaces that are left out.

    These are the largest, so that no tenant can make the webhook forget what others have. The
    record of a namespace itself counts apart from what is in it.
    """
    sizes = _sizes_by_place(inventory)
    excess = sum(sizes.values()) - _FILLED_SHARE * parts * MAX_PART_BYTES
    dropped: list[_Place] = []
    for place, size in sizes.most_common():
        if excess <= 0:
            break
        if place.namespace:  # objects of the cluster are in none
            dropped.append(place)
            excess -= size
    names = dict.fromkeys(place.namespace for place in dropped)
    return _without_places(inventory, frozenset(dropped)), list(names)


class _Place(NamedTuple):
    """A namespace, for its own record or for what is in it."""

    namespace: str
    is_own_record: bool


def _place(kind: str, home: str, name: str) -> _Place:
    is_namespace = kind == Namespace.__name__
    return _Place(name if is_namespace else home, is_namespace)


def _sizes_by_place(inventory: Inventory) -> Counter[_Place]:
    sizes: Counter[_Place] = Counter()
    for kind, homes in to_json(inventory).items():
        for home, names in homes.items():
            for name, record in names.items():
                sizes[_place(kind, home, name)] += len(json.dumps({name: record}).encode())
    return sizes


def _without_places(inventory: Inventory, dropped: frozenset[_Place]) -> Inventory:
    kept: dict[type, dict[str, dict[str, Any]]] = {}
    for kind, homes in inventory.records.items():
        for home, names in homes.items():
            for name, record in names.items():
                if _place(kind.__name__, home, name) not in dropped:
                    kept.setdefault(kind, {}).setdefault(home, {})[name] = record
    return Inventory(kept)


def parse_inventory(contents: Sequence[bytes]) -> CheckedInventory:
    """The inventory in the files, as old as the oldest. ValueError says what is wrong."""
    files = [_parse(content) for content in contents]
    if sorted(file.part for file in files) != list(range(len(files))) or not files:
        raise ValueError("parts of it are missing")
    if any(file.parts != len(files) for file in files):
        raise ValueError("parts of it are missing, or are of another inventory")
    records: dict[str, Any] = {}
    for file in files:
        _add_records(file.records, records, _RECORD_LEVELS)
    return CheckedInventory(min(file.checked_at for file in files), from_json(records))


class _InventoryPart(NamedTuple):
    part: int
    parts: int
    checked_at: datetime.datetime
    records: Any


def _parse(content: bytes) -> _InventoryPart:
    time, raw = parse_checked_content(content, MAX_PART_BYTES)
    if raw.get("version") != FORMAT_VERSION:
        raise ValueError(f"its version is {raw.get('version')!r}, and not {FORMAT_VERSION}")
    part, parts = raw.get("part"), raw.get("parts")
    if type(part) is not int or type(parts) is not int:
        raise ValueError("part or parts is no number")
    return _InventoryPart(part, parts, time, raw.get("records"))


def _part_number(place: str, parts: int) -> int:
    """The part in which a record stays while the number of parts does."""
    return int.from_bytes(hashlib.sha256(place.encode()).digest()[:8]) % parts


def _add_records(share: Any, records: dict[str, Any], levels: int) -> None:
    if not isinstance(share, dict):
        raise ValueError("records is no object of objects")  # noqa: TRY004  # of JSON
    for key, value in share.items():
        if levels == 1 or key not in records:
            records[key] = value
        else:
            _add_records(value, records[key], levels - 1)


EXCEPTIONS_FILE = "exceptions.json"
"""The name of the file, also as the key of the chart's ConfigMap."""
MAX_EXCEPTIONS_BYTES = 1 << 20  # the most that a ConfigMap can have
_DECIDING_METADATA = ("namespace", "name", "creationTimestamp")


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
    kept = {key: metadata[key] for key in _DECIDING_METADATA if key in metadata}
    approval = as_object(metadata.get("labels")).get(APPROVAL_LABEL)
    labels = {} if approval is None else {"labels": {APPROVAL_LABEL: approval}}
    return {"metadata": {**kept, **labels}, "spec": raw.get("spec")}


def parse_exceptions(content: bytes) -> ExceptionsFile:
    """The file in `content`, with unchecked objects. ValueError says what is wrong."""
    checked, raw = parse_checked_content(content, MAX_EXCEPTIONS_BYTES)
    items = raw.get("items")
    if isinstance(items, list) and len(items) > MAX_ACCEPTED:
        raise ValueError(f"it has {len(items)} items; the controller writes at most {MAX_ACCEPTED}")
    return ExceptionsFile(checked, tuple(item for _, item in as_objects(items)))

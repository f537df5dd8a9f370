"""The webhook knows other objects by the files of the inventory, if they can be used."""

from __future__ import annotations

import datetime
import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pytest
import pytest_asyncio

from policies.controller_files import (
    MAX_PART_BYTES,
    MAX_PARTS,
    CheckedInventory,
    format_inventory,
    inventory_file_name,
    parse_inventory,
)
from rules.inventory.inventory import (
    EMPTY_INVENTORY,
    RECORD_TYPES,
    ConfigMap,
    Inventory,
    RuntimeClass,
    from_json,
    to_json,
)
from tests.testkit.admission.reviews import container, pod, review_body
from tests.testkit.admission.server import PATIENT, RunningServer, Serve, serving
from webhook.reload.exceptions_and_inventory import STALE_SECONDS, InventoryFiles
from webhook.reload.policy import PolicyReloader

NOW = datetime.datetime.now(tz=datetime.UTC)
NAMESPACE = "team-vision"
GPUS = ConfigMap({"NVIDIA_VISIBLE_DEVICES": "all"})
KNOWN = Inventory(
    {
        ConfigMap: {NAMESPACE: {"gpus": GPUS, "two": None}},
        RuntimeClass: {"": {"fast": RuntimeClass("nvidia")}},
    }
)


class Mounted:
    """A folder with an inventory, and a webhook's policy that reads it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.now = folder, NOW.timestamp()
        self.files = InventoryFiles(str(folder), clock=lambda: self.now)
        self.policy = PolicyReloader(None, inventory=self.files)
        self.policy.load()

    def write(self, inventory: Inventory, parts: int = 2, checked: datetime.datetime = NOW) -> None:
        """Replace the files, and reload."""
        for part, text in enumerate(format_inventory(CheckedInventory(checked, inventory), parts)):
            (self.folder / inventory_file_name(part)).write_text(text)
        self.policy.reload()


@pytest.fixture
def mounted(tmp_path: Path) -> Mounted:
    return Mounted(tmp_path)


@pytest_asyncio.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    """Starts servers."""
    async with serving(tmp_path) as start:
        yield start


def taking_all(name: str = "gpus") -> dict[str, Any]:
    return container("main", envFrom=[{"configMapRef": {"name": name}}])


def with_records(records: Any) -> bytes:
    head = {"version": 1, "checkedAt": "2030-01-01T00:00:00Z", "part": 0, "parts": 1}
    return json.dumps({**head, "records": records}).encode()


@pytest.mark.parametrize("parts", [1, 2, MAX_PARTS])
def test_an_inventory_survives_its_files(parts: int) -> None:
    texts = format_inventory(CheckedInventory(NOW, KNOWN), parts)
    found = parse_inventory([text.encode() for text in texts])
    assert found.inventory == KNOWN
    assert abs((found.checked_at - NOW).total_seconds()) < 1


def test_every_kind_of_record_survives_json() -> None:
    """A new kind may have fields of types that JSON does not have."""
    for kind in RECORD_TYPES:
        record = kind(*(_example(hint) for hint in get_type_hints(kind).values()))
        inventory = Inventory({kind: {"a": {"b": record}}})
        assert from_json(json.loads(json.dumps(to_json(inventory)))) == inventory


def _example(hint: Any) -> Any:
    """A value of the type `hint`, with an element in each collection."""
    if hasattr(hint, "_fields"):
        return hint(*map(_example, get_type_hints(hint).values()))
    parts = [part for part in get_args(hint) if part is not Ellipsis]
    if get_origin(hint) is UnionType:
        return _example(parts[0])
    if not parts:
        return 7 if hint in (Any, int) else True if hint is bool else str(hint)
    if get_origin(hint) in {tuple, frozenset}:
        return get_origin(hint)([_example(parts[0])])
    return {"key": _example(parts[1])}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"{}", "checkedAt is no time"),
        (b'{"checkedAt": "2030-01-01T00:00:00Z"}', "its version is None"),
        (b'{"version": 2, "checkedAt": "2030-01-01T00:00:00Z"}', "its version is 2"),
        (b'{"version": 1, "checkedAt": "x"}', "checkedAt is no time"),
        (b'{"version": 1, "checkedAt": "2030-01-01"}', "no time zone"),
        (b'{"version": 1, "checkedAt": "2030-01-01T00:00:00Z"}', "part or parts is no number"),
        (b'{"version": 1, "checkedAt": "2030-01-01T00:00:00Z", "part": 0}', "part or parts is no"),
        (with_records([]), "no object of objects"),
        (with_records({"ConfigMap": {"a": {"b": {"variables": []}}}}), "ConfigMap b has the wrong"),
        (with_records({"Pod": {}}), "unknown kind, 'Pod'"),
        (b" " * (MAX_PART_BYTES + 1), "more than 1,000,000 bytes"),
    ],
)
def test_files_that_cannot_be_used_are_refused(content: bytes, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_inventory([content])


@pytest.mark.parametrize("part", [0, 1])
def test_a_part_that_is_missing_makes_nothing_known(mounted: Mounted, part: int) -> None:
    mounted.write(KNOWN)
    assert mounted.policy.active.source.inventory == KNOWN
    (mounted.folder / inventory_file_name(part)).unlink()
    mounted.policy.reload()
    assert mounted.policy.active.source.inventory == EMPTY_INVENTORY
    assert not mounted.files.is_valid


def test_what_was_checked_too_long_ago_is_not_known(mounted: Mounted) -> None:
    mounted.write(KNOWN)
    mounted.now += STALE_SECONDS - 1
    mounted.policy.reload()
    assert mounted.files.inventory == KNOWN
    assert not mounted.files.is_valid
    mounted.now += 2
    mounted.policy.reload()
    assert mounted.files.inventory == EMPTY_INVENTORY


def test_a_new_decider_is_made_only_for_another_inventory(mounted: Mounted) -> None:
    """It forgets the decisions that were kept."""
    mounted.write(KNOWN)
    before = mounted.policy.active
    mounted.write(KNOWN, checked=NOW + datetime.timedelta(minutes=10))
    assert mounted.policy.active is before
    mounted.write(Inventory({ConfigMap: {NAMESPACE: {"gpus": GPUS}}}))
    assert mounted.policy.active.decider is not before.decider


def test_parts_of_two_inventories_are_not_used() -> None:
    two, three = (format_inventory(CheckedInventory(NOW, KNOWN), parts) for parts in (2, 3))
    with pytest.raises(ValueError, match="or are of another inventory"):
        parse_inventory([three[0].encode(), two[1].encode()])


def test_an_inventory_that_is_too_large_is_not_cut() -> None:
    value = "x" * 4000
    many = {f"c{n}": ConfigMap({"NVIDIA_VISIBLE_DEVICES": value}) for n in range(600)}
    with pytest.raises(ValueError, match=r"a part of the inventory has [\d,]+ bytes"):
        format_inventory(CheckedInventory(NOW, Inventory({ConfigMap: {"a": many}})), 1)
    assert len(format_inventory(CheckedInventory(NOW, Inventory({ConfigMap: {"a": many}})), 4)) == 4


async def is_allowed(
    server: RunningServer, name: str = "gpus", namespace: str = NAMESPACE, size: int = 0
) -> bool:
    """Return whether the webhook allows a pod that takes all variables of a ConfigMap.

    Two replicas are sent, of which the second meets a kept decision. A large pod is for the second
    process.
    """
    caller, found = await server.connect(), set()
    for replica in ("a", "b"):
        manifest = pod(taking_all(name), container("other", command=["x" * size]))
        manifest["metadata"] |= {"name": replica, "namespace": namespace}
        body = json.dumps(review_body(manifest, namespace=namespace), separators=(",", ":"))
        found.add((await caller.post(PATIENT, body.encode())).response["allowed"])
    (allowed,) = found
    return bool(allowed)


async def test_pods_are_evaluated_by_what_is_known(
    mounted: Mounted, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "webhook.evaluator.evaluator.MAX_EVALUATION_SECONDS", 60.0
    )  # on a busy machine
    server = await serve(mounted.policy)
    for size in (0, 70_000):
        mounted.write(KNOWN)
        assert not await is_allowed(server, size=size)
        assert await is_allowed(server, namespace="team-speech", size=size)
        assert await is_allowed(server, "other", size=size)
        mounted.write(EMPTY_INVENTORY)
        assert await is_allowed(server, size=size)


async def test_metrics_and_log_say_whether_the_files_are_used(
    serve: Serve, mounted: Mounted
) -> None:
    server = await serve(mounted.policy)
    await server.service.reload()
    samples = await server.metrics()
    assert (samples("inventory_objects"), samples("inventory_valid")) == (0, 0)
    mounted.write(KNOWN)
    await server.service.reload()
    samples = await server.metrics()
    assert (samples("inventory_objects"), samples("inventory_valid")) == (3, 1)
    lines = [line for line in server.logged() if "inventory" in line["event"]]
    assert [line["event"] for line in lines] == ["inventory not used", "inventory loaded"]
    assert (lines[0]["error"], lines[1]["objects"]) == ("no such file or directory", 3)

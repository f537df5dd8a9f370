"""Properties of what rules know about other objects."""

from __future__ import annotations

from typing import Any

import pytest

from policies.loading import load_policy
from rules.engine.fixing import check
from rules.inventory import builder as building
from rules.inventory.builder import InventoryBuilder, VariableNames
from rules.inventory.records import KINDS, ConfigMap, RuntimeClass
from rules.profile.context import Context
from rules.profile.profile import Profile
from rules.traits.bits import INVENTORY
from tests.testkit.cases import TODAY, cases, inventory_of

GPU = "nvidia.com/gpu"
GPUS = {GPU: 0}
DEVICES = {"devices": {"requests": [{"exactly": {"deviceClassName": "gpu.nvidia.com"}}]}}
# Of every kind an object whose name is in the cases, with what would be worst.
OTHERS: tuple[dict[str, Any], ...] = tuple(
    {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "ml"}} | content
    for version, kind, content in (
        ("v1", "ConfigMap", {"data": {"NVIDIA_VISIBLE_DEVICES": "all"}}),
        ("resource.k8s.io/v1", "DeviceClass", {"spec": {"extendedResourceName": GPU}}),
        ("resource.k8s.io/v1", "ResourceClaim", {"spec": DEVICES}),
        ("resource.k8s.io/v1", "ResourceClaimTemplate", {"spec": {"spec": DEVICES}}),
        ("v1", "Namespace", {}),
        ("v1", "LimitRange", {"spec": {"limits": [{"type": "Container", "max": GPUS}]}}),
        ("v1", "ResourceQuota", {"spec": {"hard": {"requests.cpu": 0, f"requests.{GPU}": 0}}}),
        ("node.k8s.io/v1", "RuntimeClass", {"handler": "nvidia"}),
    )
    for name in ("settings", "accelerated", "nvidia", "gpu.nvidia.com", "one-gpu")
)


def config_map(name: str, value: str, namespace: str = "ml") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": {"NVIDIA_VISIBLE_DEVICES": value, "LOG_LEVEL": "info"},
    }


def test_an_inventory_only_adds_findings() -> None:
    policy = load_policy("apiVersion: gpuward.io/v1\nkind: Policy\n", "default")
    rules, inventory = policy.rule_set(), inventory_of(OTHERS, policy.profile)
    for case in cases():
        given = case.circumstances
        without = Context(TODAY, given.get("namespace"), given.get("user"), given.get("operation"))
        known = without._replace(inventory=inventory)
        few = {f.identity: f.rule for f in check(case.manifest, rules, without).findings}
        many = {f.identity for f in check(case.manifest, rules, known).findings}
        assert few.keys() <= many, case.name
        offline = {active.rule.name for active in rules.rules if INVENTORY in active.needs}
        assert offline.isdisjoint(few.values()), case.name


def test_every_kind_is_in_the_worst_inventory() -> None:
    assert {other["kind"] for other in OTHERS} == set(KINDS)


def test_two_contents_are_no_content() -> None:
    profile = Profile("test", alternative_variables=("NVIDIA_VISIBLE_DEVICES",))
    known = inventory_of([config_map("a", "all"), config_map("b", "all")], profile)
    found = known.find(ConfigMap, "a", "ml")
    assert found == ConfigMap({"NVIDIA_VISIBLE_DEVICES": "all"})
    assert known.find(ConfigMap, "a", "other") is None
    assert known.find(RuntimeClass, "a") is None
    changed = inventory_of([config_map("a", "all"), config_map("a", "void")], profile)
    assert changed.find(ConfigMap, "a", "ml") is None


def test_an_inventory_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "MAX_OBJECTS", 2)
    builder = InventoryBuilder(VariableNames(["*"]))
    for name in ("a", "b", "b", "c"):
        builder.add("ConfigMap", "", "ml", name, config_map(name, "all"))
    assert builder.is_full
    known = builder.inventory()
    assert known.find(ConfigMap, "b", "ml")
    assert known.find(ConfigMap, "c", "ml") is None

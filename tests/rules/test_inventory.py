"""Properties of what rules know about other objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from policies.loading import load_policy
from rules.base.caching import MAX_ENTRIES
from rules.engine.fixing import check
from rules.gpu.devices import DEVICE_CLASS_PREFIX, Device, devices
from rules.inventory import builder as building
from rules.inventory import collectors
from rules.inventory.builder import InventoryBuilder, VariableNames
from rules.inventory.collectors import NodeCollector
from rules.inventory.inventory import (
    KINDS,
    SURVEY_NAME,
    ConfigMap,
    DeviceClass,
    Inventory,
    Namespace,
    NodeGroup,
    NodeSurvey,
    RuntimeClass,
    from_json,
)
from rules.objects.container import Container
from rules.profile.context import Context
from rules.profile.profile import Profile
from rules.relevance.traits import inventory_traits
from tests.testkit.cases import TODAY, cases, inventory_of

GPU = "nvidia.com/gpu"
GPUS = {GPU: 0}
DEVICES = {"devices": {"requests": [{"exactly": {"deviceClassName": "gpu.nvidia.com"}}]}}
RUNTIME = {
    "spec": {
        "template": {
            "spec": {
                "replicatedJobs": [
                    {"name": "n", "template": {"spec": {"template": {"spec": {"hostPID": True}}}}}
                ]
            }
        }
    }
}
# Of every kind an object whose name is in the cases, with what would be worst.
OTHERS: tuple[dict[str, Any], ...] = tuple(
    {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "ml"}} | content
    for version, kind, content in (
        ("v1", "ConfigMap", {"data": {"NVIDIA_VISIBLE_DEVICES": "all"}}),
        ("v1", "Secret", {"stringData": {"NVIDIA_VISIBLE_DEVICES": "all"}}),
        ("resource.k8s.io/v1", "DeviceClass", {"spec": {"extendedResourceName": GPU}}),
        ("resource.k8s.io/v1", "ResourceClaim", {"spec": DEVICES}),
        ("resource.k8s.io/v1", "ResourceClaimTemplate", {"spec": {"spec": DEVICES}}),
        ("kueue.x-k8s.io/v1beta2", "ClusterQueue", {}),
        ("kueue.x-k8s.io/v1beta2", "LocalQueue", {"spec": {"clusterQueue": "nvidia"}}),
        ("kueue.x-k8s.io/v1beta2", "ResourceFlavor", {"spec": {"nodeTaints": [{"key": "gpu"}]}}),
        ("kueue.x-k8s.io/v1beta2", "Topology", {"spec": {"levels": [{"nodeLabel": "rack"}]}}),
        ("trainer.kubeflow.org/v1alpha1", "TrainingRuntime", RUNTIME),
        ("trainer.kubeflow.org/v1alpha1", "ClusterTrainingRuntime", RUNTIME),
        ("scheduling.volcano.sh/v1beta1", "Queue", {"spec": {"capability": GPUS}}),
        ("scheduling.run.ai/v2", "Queue", {"spec": {"parentQueue": "other"}}),
        ("nvidia.com/v1alpha1", "NVIDIADriver", {}),
        ("v1", "Namespace", {}),
        ("v1", "LimitRange", {"spec": {"limits": [{"type": "Container", "max": GPUS}]}}),
        ("v1", "ResourceQuota", {"spec": {"hard": {"requests.cpu": 0, f"requests.{GPU}": 0}}}),
        ("node.k8s.io/v1", "RuntimeClass", {"handler": "nvidia"}),
        ("v1", "Node", {"status": {"capacity": {"nvidia.com/mig-1g.5gb": "7"}}}),
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
    rules = policy.rule_set()
    inventory = inventory_of(OTHERS, policy.profile, has_all_nodes=True)
    for case in cases():
        given = case.circumstances
        without = Context(TODAY, given.get("namespace"), given.get("user"), given.get("operation"))
        known = without._replace(inventory=inventory)
        few = {f.identity: f.rule for f in check(case.manifest, rules, without).findings}
        many = {f.identity for f in check(case.manifest, rules, known).findings}
        assert few.keys() <= many, case.name
        offline = {
            active.rule.name
            for active in rules.rules
            if any(not entry & ~inventory_traits(inventory) for entry in active.needs)
        }
        assert offline, "no rule needs an inventory"
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
    assert builder.message_about_missing_objects().endswith("too many: in namespace ml")
    known = builder.inventory()
    assert known.find(ConfigMap, "b", "ml")
    assert known.find(ConfigMap, "c", "ml") is None


def test_no_namespace_takes_the_room_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "MAX_CHARACTERS_IN_NAMESPACE", 5_000)
    builder = InventoryBuilder(VariableNames(["*"]))
    for number in range(100):
        builder.add("ConfigMap", "", "flood", f"c{number}", config_map("c", "x" * 50))
    builder.add("ConfigMap", "", "ml", "settings", config_map("settings", "all"))
    assert builder.message_about_missing_objects().endswith("in namespace flood")
    known = builder.inventory()
    assert 1 < len(known.all_in(ConfigMap, "flood")) < 30
    assert known.find(ConfigMap, "settings", "ml")


def test_many_namespaces_leave_room_for_other_objects_of_the_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(building, "MAX_CHARACTERS_IN_NAMESPACE", 5_000)
    builder = InventoryBuilder(VariableNames(["*"]))
    allowed = {"resource.kubernetes.io/admin-access": "true"}
    for number in range(100):
        labels = allowed | {"team": f"t{number}"}
        builder.add("Namespace", "", "", f"ns{number}", {"metadata": {"labels": labels}})
    builder.add("RuntimeClass", "node.k8s.io", "", "gpus", {"handler": "nvidia"})
    assert not builder.message_about_missing_objects()
    known = builder.inventory()
    assert known.find(Namespace, "ns99") == Namespace(allowed | {"team": "t99"})
    assert known.find(RuntimeClass, "gpus")


def node(labels: dict[str, str], **capacity: Any) -> dict[str, Any]:
    return {"metadata": {"labels": labels}, "status": {"capacity": capacity}}


def test_nodes_are_known_by_groups_that_look_alike_to_rules() -> None:
    collector = NodeCollector(["pool", "nvidia.com/gpu.*"], ["nvidia.com/*"])
    for number in range(5000):
        labels = {"kubernetes.io/hostname": f"n{number}", "pool": "train" if number % 2 else "web"}
        gpus = {"nvidia.com/gpu": str(number % 8), "cpu": "64"} if number % 2 else {"cpu": "8"}
        collector.add(node(labels, **gpus))
    assert collector.records()[NodeGroup][""] == {
        "pool=train": NodeGroup({"pool": "train"}, {"nvidia.com/gpu": 7}),
        "pool=web": NodeGroup({"pool": "web"}, {}),
    }
    for has_all in (False, True):
        collector.has_all = has_all
        (survey,) = collector.records()[NodeSurvey][""].values()
        assert survey == NodeSurvey(
            frozenset({"pool", "nvidia.com/gpu.*"}), frozenset({"nvidia.com/*"}), has_all
        )


@pytest.mark.parametrize(
    ("nodes", "per_card"),
    [
        ([("60", "4")], {"mem": 15}),
        ([("60", "4"), ("48", "2"), ("15", "1")], {"mem": 24}),
        ([("47", "2")], {}),  # its cards differ
        ([("60", None)], {}),
        ([("60", "0")], {}),
        ([("60", "4"), ("16", None)], {}),
        ([("16", None), ("60", "4")], {}),
        ([("60", "-4")], {}),
    ],
)
def test_what_a_card_has_is_known_if_every_node_says_how_many_it_has(
    nodes: list[tuple[str, str | None]], per_card: dict[str, int]
) -> None:
    collector = NodeCollector(["pool"], ["mem"], {"mem": "cards"})
    for memory, cards in nodes:
        collector.add(node({}, mem=memory, cards=cards))
    (group,) = collector.records()[NodeGroup][""].values()
    assert group.per_card == per_card


def test_inventories_of_the_release_before_are_read() -> None:
    older = {
        "NodeGroup": {"": {"a": {"labels": {}, "resources": {"mem": 1}}}},
        "NodeSurvey": {"": {SURVEY_NAME: {"labels": [], "resources": []}}},
    }
    known = from_json(older)
    assert known.find(NodeGroup, "a") == NodeGroup({}, {"mem": 1})
    assert known.find(NodeSurvey, SURVEY_NAME) == NodeSurvey(frozenset(), frozenset())


@pytest.mark.parametrize(("bound", "most"), [("MAX_NODE_GROUPS", 1), ("MAX_LABEL_CHARACTERS", 10)])
def test_too_many_kinds_of_nodes_are_not_all_nodes(
    bound: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collectors, bound, most)
    collector = NodeCollector(["pool"])
    collector.has_all = True
    for pool in ("a", "a", "b"):
        collector.add(node({"pool": pool}))
    assert collector.is_full
    assert NodeSurvey not in collector.records()
    assert list(collector.records()[NodeGroup][""]) == ["pool=a"]


def test_a_group_has_a_bound_of_resources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collectors, "MAX_RESOURCES_PER_GROUP", 2)
    collector = NodeCollector(["pool"], ["nvidia.com/*"])
    collector.has_all = True
    for name, amount in (("b", 1), ("a", 1), ("b", 2)):
        collector.add(node({}, **{f"nvidia.com/{name}": amount}))
    assert NodeSurvey in collector.records()
    collector.add(node({}, **{"nvidia.com/c": 1, "nvidia.com/a": 3}))
    assert collector.is_full
    assert NodeSurvey not in collector.records()
    (group,) = collector.records()[NodeGroup][""].values()
    assert list(group.resources.items()) == [("nvidia.com/a", 3), ("nvidia.com/b", 2)]


class CountedReads(dict[str, Any]):
    """A dictionary that counts how often all of it is read."""

    reads = 0

    def values(self) -> Any:
        self.reads += 1
        return super().values()


@pytest.mark.parametrize(("classes", "found"), [(300, 20), (301, 0)])
def test_what_a_cluster_offers_is_read_once_for_all_quotas(classes: int, found: int) -> None:
    policy = load_policy("apiVersion: gpuward.io/v1\nkind: Policy\n", "default")
    quotas = [
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "gpus", "namespace": f"team-{number}"},
            "spec": {"hard": {f"requests.{GPU}": "4"}},
        }
        for number in range(20)
    ]
    known = inventory_of(quotas, policy.profile)
    offered = CountedReads((f"c{n}", DeviceClass("nvidia.com/mig-1g.5gb")) for n in range(classes))
    inventory = Inventory({**known.records, DeviceClass: {"": offered}})
    findings, reads = [], []
    for number, quota in enumerate(quotas):
        context = Context(TODAY, inventory=inventory.for_unnamed_namespace(f"{number}"))
        findings += check(quota, policy.rule_set(), context).findings
        reads.append(offered.reads)
    said = [finding for finding in findings if "the cluster offers as well" in finding.message]
    assert (len(said), reads[-1]) == (found, reads[0])


def test_containers_are_read_once_for_all_their_resources(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = load_policy("apiVersion: gpuward.io/v1\nkind: Policy\n", "default")
    containers = [
        {"name": f"c{n}", "resources": {"limits": {f"{DEVICE_CLASS_PREFIX}c{n}": "2"}}}
        for n in range(100)
    ]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "many", "namespace": "ml"},
        "spec": {"containers": containers},
    }
    reads: list[str] = []

    def counted(container: Container) -> Mapping[str, Device]:
        reads.append(container.name)
        return devices(container)

    monkeypatch.setattr("rules.gpu.devices.devices", counted)
    inventory = inventory_of(OTHERS, policy.profile, has_all_nodes=True)
    check(pod, policy.rule_set(), Context(TODAY, operation="CREATE", inventory=inventory))
    assert 100 <= len(reads) < 6 * 100


def test_amounts_of_no_use_are_left_out() -> None:
    collector = NodeCollector(["pool"], ["nvidia.com/*"])
    odd = {"nvidia.com/gpu": "many", "nvidia.com/mig-1g.5gb": "0", "nvidia.com/gpumem": -1}
    statuses: tuple[Any, ...] = (None, [], {"capacity": odd, "allocatable": 3})
    for status in statuses:
        collector.add({"metadata": {"labels": ["pool"]}, "status": status})
    (group,) = collector.records()[NodeGroup][""].values()
    assert group == NodeGroup({}, {})


def test_what_is_derived_from_an_inventory_is_computed_once_also_after_many_others() -> None:
    inventory = Inventory()
    computed: list[int] = []

    def derive(_inventory: Inventory, number: int) -> int:
        computed.append(number)
        return number

    for number in range(MAX_ENTRIES):
        inventory.compute_once(derive, number)
    computed.clear()
    assert [inventory.compute_once(derive, -1) for _ in range(3)] == [-1, -1, -1]
    assert computed == [-1]


def test_few_labels_of_a_namespace_are_kept() -> None:
    labels = {f"example.com/{number:05}": "" for number in range(building.MAX_NAMESPACE_LABELS + 1)}
    raw = {"metadata": {"name": "ml", "labels": labels}}
    builder = InventoryBuilder(VariableNames([]))
    builder.add("Namespace", "", "", "ml", raw)
    found = builder.inventory().find(Namespace, "ml")
    assert found is not None
    assert len(found.labels) == building.MAX_NAMESPACE_LABELS

"""The controller for the webhook's inventory: what it writes, and when, for a cluster in memory."""

from __future__ import annotations

import copy
import datetime
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from structlog.testing import capture_logs

from cluster.api.errors import ConflictError
from cluster.controllers.inventory import RENEW_SECONDS, InventoryController, Scope
from cluster.source.objects import (
    MissingRightError,
    NotServedError,
    Object,
    Resource,
    ResourceNames,
    SourceError,
)
from policies.controller_files import (
    CheckedInventory,
    format_inventory,
    inventory_file_name,
    parse_inventory,
    without_largest_namespaces,
)
from policies.loading import default_policy, load_policy
from policies.policy import Policy
from rules.inventory.inventory import (
    SURVEY_NAME,
    ConfigMap,
    DeviceClass,
    GpuNodes,
    Inventory,
    KaiQueue,
    LocalQueue,
    Namespace,
    NodeGroup,
    NodeSurvey,
    Queue,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceFlavor,
    RuntimeClass,
)

ALL = {"NVIDIA_VISIBLE_DEVICES": "all"}
NOW = datetime.datetime(2030, 6, 15, 12, tzinfo=datetime.UTC)


class StoredInMemory:
    """A ConfigMap that counts its updates."""

    def __init__(self) -> None:
        self.body: Object = {"metadata": {"name": "x"}}
        self.updates = 0
        self.conflict = False

    def get(self) -> Object:
        return copy.deepcopy(self.body)

    def update(self, config_map: Object) -> None:
        if self.conflict:
            raise ConflictError("written by somebody else")
        self.body, self.updates = config_map, self.updates + 1


BY_LABEL = load_policy(
    "apiVersion: gpuward.io/v1\nkind: Policy\n"
    "rules: {gpu-namespace: {action: deny, options: {labels: [gpus=allow*]}}}\n",
    "a test",
)
WITH_CONFIG_MAPS = Scope(config_maps=True)


class FakeCluster:
    """Objects in memory, a clock, two ConfigMaps, and the controller for them."""

    def __init__(self, scope: Scope = WITH_CONFIG_MAPS, policy: Policy | None = None) -> None:
        self.objects: defaultdict[str, list[Object]] = defaultdict(list)
        self.missing: dict[str, type[Exception]] = {}
        self.now = NOW.timestamp()
        self.parts = [StoredInMemory(), StoredInMemory()]
        used = policy or default_policy()
        self.controller = InventoryController(
            self,
            self.parts,
            lambda: used,
            scope,
            now=lambda: self.now,
            monotonic=lambda: self.now,
        )

    def list(self, resource: Resource, namespace: str | None = None) -> Iterator[Object]:
        error = self.missing.get(resource.name)
        if error is MissingRightError:
            raise MissingRightError(resource, namespace)
        if error is NotServedError:
            raise NotServedError(resource)
        yield from self.objects[resource.name]
        if error is SourceError:
            raise SourceError("broken off")

    def list_all(
        self,
        names: ResourceNames,
        namespace: str | None,
        on_error: Callable[[SourceError], object],
    ) -> Iterator[Object]:
        for group, listed in names.items():
            for name in listed:
                try:
                    yield from self.list(Resource(name, "", group), namespace)
                except SourceError as error:
                    on_error(error)

    def written(self) -> CheckedInventory:
        """Return what the webhook would read."""
        texts = [
            part.body["data"][inventory_file_name(number)] for number, part in enumerate(self.parts)
        ]
        return parse_inventory([text.encode() for text in texts])


def config_map(name: str, data: Any) -> Object:
    metadata = {"namespace": "team", "name": name}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def runtime_class(name: str, handler: str) -> Object:
    return {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": name},
        "handler": handler,
    }


def test_only_what_rules_read_is_written() -> None:
    cluster = FakeCluster()
    cluster.objects["runtimeclasses"] = [runtime_class("fast", "nvidia")]
    cluster.objects["configmaps"] = [
        config_map("gpus", {"NVIDIA_VISIBLE_DEVICES": "all", "PASSWORD": "hunter2"}),
        config_map("plain", {"PASSWORD": "hunter2"}),
        config_map("empty", None),
    ]
    cluster.controller.reconcile()
    inventory = cluster.written().inventory
    assert inventory.find(RuntimeClass, "fast") == RuntimeClass("nvidia")
    assert inventory.find(ConfigMap, "gpus", "team") == ConfigMap({"NVIDIA_VISIBLE_DEVICES": "all"})
    assert len(inventory) == 2
    assert "hunter2" not in str([part.body for part in cluster.parts])


def test_config_maps_and_nodes_are_read_only_if_asked_for() -> None:
    cluster = FakeCluster(Scope())
    cluster.missing["configmaps"] = cluster.missing["nodes"] = MissingRightError
    cluster.objects["runtimeclasses"] = [runtime_class("fast", "nvidia")]
    with capture_logs() as logs:
        cluster.controller.reconcile()
    assert not logs
    assert len(cluster.written().inventory) == 1


KUEUE = "kueue.x-k8s.io/v1beta2"
LOCAL_QUEUE = {
    "apiVersion": KUEUE,
    "kind": "LocalQueue",
    "metadata": {"namespace": "team", "name": "gpus"},
    "spec": {"clusterQueue": "shared"},
}
FLAVOR = {
    "apiVersion": KUEUE,
    "kind": "ResourceFlavor",
    "metadata": {"name": "a100"},
    "spec": {"nodeTaints": [{"key": "a", "effect": "NoSchedule"}]},
}


def test_labels_of_namespaces_are_known_if_asked_for() -> None:
    read = {"gpus": "allowed", "resource.kubernetes.io/admin-access": "true"}
    labels = {**read, "team": "vision"}
    raw = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml", "labels": labels}}
    for scope, expected in ((Scope(namespaces=True), Namespace(read)), (Scope(), None)):
        cluster = FakeCluster(scope, BY_LABEL)
        cluster.objects["namespaces"] = [raw]
        cluster.controller.reconcile()
        assert cluster.written().inventory.find(Namespace, "ml") == expected


def test_labels_of_namespaces_cannot_make_the_inventory_too_large() -> None:
    many = {f"example.com/{number:060}": "x" * 63 for number in range(4_000)}
    cluster = FakeCluster(Scope(namespaces=True), BY_LABEL)
    cluster.objects["namespaces"] = [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": f"ns-{number}", "labels": {**many, "gpus": "allowed"}},
        }
        for number in range(8)
    ]
    with capture_logs() as logs:
        cluster.controller.reconcile()
    assert not logs
    for number in range(8):
        found = cluster.written().inventory.find(Namespace, f"ns-{number}")
        assert found == Namespace({"gpus": "allowed"})


def test_namespaces_with_many_labels_are_left_out_first_and_what_is_in_them_stays() -> None:
    large = Namespace({f"example.com/{number:060}": "x" * 63 for number in range(200)})
    small = Namespace({"gpus": "allowed"})
    queue = {"gpus": LocalQueue("shared")}
    named = {f"ns-{number}": large for number in range(100)} | {"ml": small}
    inventory = Inventory({Namespace: {"": named}, LocalQueue: {"ns-0": queue, "ml": queue}})
    kept, left_out = without_largest_namespaces(inventory, 2)
    assert kept.find(Namespace, "ml") == small
    assert kept.find(LocalQueue, "gpus", "ns-0") == LocalQueue("shared")
    assert left_out
    assert set(left_out) <= {f"ns-{number}" for number in range(100)}
    assert all(kept.find(Namespace, name) is None for name in left_out)
    format_inventory(CheckedInventory(NOW, kept), 2)


def test_queues_and_flavors_are_known_if_asked_for() -> None:
    for scope, expected in ((Scope(queues=True), LocalQueue("shared")), (Scope(), None)):
        cluster = FakeCluster(scope)
        cluster.objects |= {"localqueues": [LOCAL_QUEUE], "resourceflavors": [FLAVOR]}
        cluster.controller.reconcile()
        inventory = cluster.written().inventory
        assert inventory.find(LocalQueue, "gpus", "team") == expected
        flavor = inventory.find(ResourceFlavor, "a100")
        assert (flavor is not None) == scope.queues


def test_the_queues_of_kai_and_volcano_are_two_kinds() -> None:
    cluster = FakeCluster(Scope(queues=True))
    cluster.objects["queues"] = [
        {
            "apiVersion": "scheduling.run.ai/v2",
            "kind": "Queue",
            "metadata": {"name": "team"},
            "spec": {"parentQueue": "research", "resources": {"gpu": {"limit": 0.5}}},
        },
        {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "Queue",
            "metadata": {"name": "team"},
            "spec": {"capability": {"nvidia.com/gpu": 8}},
        },
    ]
    cluster.controller.reconcile()
    inventory = cluster.written().inventory
    assert inventory.find(KaiQueue, "team") == KaiQueue("research", 500_000_000)
    assert inventory.find(Queue, "team") == Queue({"nvidia.com/gpu": 8})


def test_queues_that_may_not_be_listed_are_left_out_and_half_a_list_is_not_used() -> None:
    cluster = FakeCluster(Scope(queues=True))
    cluster.objects |= {"localqueues": [LOCAL_QUEUE], "resourceflavors": [FLAVOR]}
    cluster.missing["resourceflavors"] = MissingRightError
    with capture_logs() as logs:
        cluster.controller.reconcile()
    assert "the right to list resourceflavors.kueue.x-k8s.io" in str(logs)
    assert len(cluster.written().inventory) == 1
    cluster.objects["localqueues"] = []
    cluster.missing["localqueues"] = SourceError
    with capture_logs() as logs:
        cluster.controller.reconcile()
    assert "broken off" in str(logs)
    assert len(cluster.written().inventory) == 1


def test_files_are_written_for_changes_and_to_stay_fresh() -> None:
    cluster = FakeCluster()
    cluster.controller.reconcile()
    cluster.now += RENEW_SECONDS - 1
    cluster.controller.reconcile()
    assert [part.updates for part in cluster.parts] == [1, 1]
    cluster.now += 2
    cluster.controller.reconcile()
    assert [part.updates for part in cluster.parts] == [2, 2]
    cluster.objects["runtimeclasses"] = [runtime_class("fast", "nvidia")]
    cluster.controller.reconcile()
    assert len(cluster.written().inventory) == 1


def test_a_resource_that_must_not_be_listed_is_named_once_and_left_out() -> None:
    cluster = FakeCluster()
    cluster.missing["configmaps"] = MissingRightError
    cluster.objects["runtimeclasses"] = [runtime_class("fast", "nvidia")]
    with capture_logs() as logs:
        cluster.controller.reconcile()
        cluster.controller.reconcile()
    (entry,) = logs
    assert "needs the right to list configmaps in all namespaces" in entry["error"]
    assert len(cluster.written().inventory) == 1
    assert b"gpuward_inventory_failures_total 2.0" in cluster.controller.metrics()
    assert b"gpuward_inventory_listed_objects 1.0" in cluster.controller.metrics()
    cluster.missing["configmaps"] = NotServedError
    with capture_logs() as logs:
        cluster.controller.reconcile()
    assert not logs


def test_no_tenant_makes_the_webhook_forget_what_others_have() -> None:
    """Neither by one ConfigMap of any content, nor by many."""
    cluster = FakeCluster()
    odd = {f"DOCKER_RESOURCE_{number}": "\x01" * 4096 for number in range(200)}
    attack = [config_map(f"{number:0>250}", odd | ALL) for number in range(400)]
    other = config_map("gpus", ALL)
    other["metadata"]["namespace"] = "victim"
    cluster.objects["configmaps"] = [*attack[:1], other]
    cluster.controller.reconcile()
    written = cluster.written().inventory
    assert written.find(ConfigMap, "gpus", "victim") == ConfigMap(ALL)
    evil = written.find(ConfigMap, attack[0]["metadata"]["name"], "team")
    assert evil is not None
    assert evil.variables["NVIDIA_VISIBLE_DEVICES"] == "all"
    cluster.objects["configmaps"] = [*attack, other]
    with capture_logs() as logs:
        cluster.controller.reconcile()
    many, large = (entry["error"] for entry in logs)
    assert many.endswith("there are too many: in namespace team")
    assert "raise clusterInventory.parts; left out: namespaces team" in large
    assert cluster.written().inventory.find(ConfigMap, "gpus", "victim") == ConfigMap(ALL)


def test_a_list_that_breaks_off_changes_nothing() -> None:
    cluster = FakeCluster()
    cluster.objects["configmaps"] = [config_map("gpus", ALL)]
    cluster.controller.reconcile()
    cluster.missing["configmaps"] = SourceError
    cluster.objects["configmaps"] = []
    with capture_logs() as logs:
        cluster.controller.reconcile()
    assert [entry["error"] for entry in logs] == ["broken off"]
    assert len(cluster.written().inventory) == 1


def test_a_conflict_is_made_up_for_by_the_next_pass() -> None:
    cluster = FakeCluster()
    cluster.parts[1].conflict = True
    cluster.controller.reconcile()
    assert b"gpuward_inventory_checked_timestamp_seconds 0.0" in cluster.controller.metrics()
    cluster.parts[1].conflict = False
    cluster.controller.reconcile()
    assert not cluster.written().inventory
    assert cluster.controller.alive
    cluster.now += 3600
    assert not cluster.controller.alive


def allocation(kind: str, name: str, **content: Any) -> Object:
    metadata = {"name": name, "namespace": "team", **content.pop("metadata", {})}
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": metadata, **content}


def test_claims_are_known_with_their_classes_whoever_made_them() -> None:
    cluster = FakeCluster()
    spec = {"devices": {"requests": [{"exactly": {"deviceClassName": "gpu.nvidia.com"}}]}}
    named = {"extendedResourceName": "nvidia.com/gpu"}
    cluster.objects["deviceclasses"] = [allocation("DeviceClass", "gpu.nvidia.com", spec=named)]
    made = {
        "annotations": {"resource.kubernetes.io/pod-claim-name": "gpu"},
        "generateName": "x-gpu-",
        "ownerReferences": [{"kind": "Pod", "name": "x", "controller": True}],
    }
    cluster.objects["resourceclaims"] = [
        allocation("ResourceClaim", "shared", spec=spec),
        allocation("ResourceClaim", "x-gpu-7kq2m", spec=spec, metadata=made),
    ]
    templates = [allocation("ResourceClaimTemplate", "one", spec={"spec": spec})]
    cluster.objects["resourceclaimtemplates"] = templates
    cluster.controller.reconcile()
    inventory = cluster.written().inventory
    assert inventory.find(DeviceClass, "gpu.nvidia.com") == DeviceClass("nvidia.com/gpu")
    for name in ("shared", "x-gpu-7kq2m"):
        assert inventory.find(ResourceClaim, name, "team") is not None
    assert inventory.find(ResourceClaimTemplate, "one", "team") is not None


def node(number: int) -> Object:
    labels = {
        "kubernetes.io/hostname": f"node-{number}",
        "nvidia.com/gpu.product": f"card-{number % 4}",
        "secret": "hunter2",
    }
    status = {"capacity": {"nvidia.com/gpu": "8", "cpu": "96"}, "images": [{"names": ["x"] * 50}]}
    metadata = {"name": f"node-{number}", "labels": labels}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}


def test_five_thousand_nodes_of_four_kinds_are_small() -> None:
    cluster = FakeCluster(WITH_CONFIG_MAPS._replace(nodes=True))
    cluster.objects["nodes"] = [node(number) for number in range(5000)]
    cluster.controller.reconcile()
    inventory = cluster.written().inventory
    assert inventory.find(NodeSurvey, SURVEY_NAME) is not None
    groups = inventory.all_in(NodeGroup, None).values()
    assert sorted(group.labels["nvidia.com/gpu.product"] for group in groups) == [
        f"card-{number}" for number in range(4)
    ]
    assert all(group.resources == {"nvidia.com/gpu": 8} for group in groups)
    assert sum(len(str(part.body)) for part in cluster.parts) < 20_000
    assert "hunter2" not in str([part.body for part in cluster.parts])
    cluster.now += 60
    cluster.objects["nodes"].append(node(5000))  # the same kind of node is no change
    cluster.controller.reconcile()
    assert [part.updates for part in cluster.parts] == [1, 1]


def test_the_labels_of_gpu_nodes_that_the_policy_lists_are_kept() -> None:
    """By these a pod is told that no node is left to it: the profile knows none of them."""
    options = "{action: deny, options: {nodes: [pool=gpu, dedicated]}}"
    policy = load_policy(
        "apiVersion: gpuward.io/v1\nkind: Policy\n"
        f"rules: {{gpu-node-without-request: {options}}}\n",
        "a test",
    )
    cluster = FakeCluster(Scope(nodes=True), policy)
    labelled = node(0)
    labelled["metadata"]["labels"] |= {"pool": "gpu", "other": "x"}
    cluster.objects["nodes"] = [labelled]
    cluster.controller.reconcile()
    (group,) = cluster.written().inventory.all_in(NodeGroup, None).values()
    assert group.labels["pool"] == "gpu"
    assert "other" not in group.labels


def test_nodes_are_all_nodes_only_if_everything_about_them_is_known() -> None:
    def survey(resource: str, error: type[SourceError]) -> NodeSurvey | None:
        cluster = FakeCluster(WITH_CONFIG_MAPS._replace(nodes=True))
        cluster.objects["nodes"] = [node(0)]
        cluster.missing[resource] = error
        cluster.controller.reconcile()
        return cluster.written().inventory.find(NodeSurvey, SURVEY_NAME)

    assert survey("nodes", MissingRightError) is None
    for error, has_all in ((MissingRightError, False), (NotServedError, True)):
        known = survey("deviceclasses", error)
        assert known is not None
        assert known.has_all is has_all


def test_nodes_of_too_many_kinds_are_reported() -> None:
    cluster = FakeCluster(WITH_CONFIG_MAPS._replace(nodes=True))
    cluster.objects["nodes"] = [node(number) for number in range(300)]
    for number, raw in enumerate(cluster.objects["nodes"]):
        raw["metadata"]["labels"]["nvidia.com/gpu.product"] = f"card-{number}"
    with capture_logs() as logs:
        cluster.controller.reconcile()
    (entry,) = logs
    assert (
        "nodes have more labels about GPUs, or GPU resources, than an inventory holds"
        in entry["error"]
    )
    assert cluster.written().inventory.find(NodeSurvey, SURVEY_NAME) is None
    assert b"gpuward_inventory_failures_total 1.0" in cluster.controller.metrics()


def test_names_of_nodes_are_kept_only_of_those_with_gpus() -> None:
    cluster = FakeCluster(Scope(node_names=True))
    without = node(2)
    without["metadata"]["labels"] = {"kubernetes.io/hostname": "node-2"}
    without["status"] = {"capacity": {"cpu": "96", "nvidia.com/gpu": "0"}}
    by_claims = node(3)
    by_claims["metadata"]["labels"]["kubernetes.io/hostname"] = "machine-3"
    by_claims["status"] = {}
    cluster.objects["nodes"] = [node(0), node(1), without, by_claims]
    cluster.controller.reconcile()
    inventory = cluster.written().inventory
    assert inventory.all_in(GpuNodes, None) == {
        "nvidia.com/gpu": GpuNodes(frozenset({"node-0", "node-1"})),
        "nvidia.com/gpu.product": GpuNodes(frozenset({"node-3", "machine-3"})),
    }
    assert not inventory.all_in(NodeGroup, None)
    assert inventory.find(NodeSurvey, SURVEY_NAME) is None


def test_more_names_of_nodes_than_there_is_room_for_are_reported() -> None:
    cluster = FakeCluster(Scope(node_names=True))
    cluster.objects["nodes"] = [node(number) for number in range(3000)]
    for number, raw in enumerate(cluster.objects["nodes"]):
        raw["metadata"]["name"] = f"{number:0>100}"
    with capture_logs() as logs:
        cluster.controller.reconcile()
    (entry,) = logs
    assert "more GPU nodes than an inventory holds the names of" in entry["error"]
    (known,) = cluster.written().inventory.all_in(GpuNodes, None).values()
    assert 2500 < len(known.names) < 6000
    assert max(len(str(part.body)) for part in cluster.parts) < 500_000

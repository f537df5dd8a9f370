"""The answers of `gpuward why` about pods that stand in the way of others."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.testkit.why_command import CAN, CANNOT, GPU, NOT_KNOWN, Asked, node, pod

HOSTNAME = "kubernetes.io/hostname"
SERVER = {"metadata": {"name": "q", "namespace": "ml", "labels": {"app": "server"}}}


@pytest.fixture
def why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Asked:
    return Asked(tmp_path, capsys)


def host(name: str, **labels: str) -> dict[str, Any]:
    return node(name, labels={HOSTNAME: name, **labels})


def running(name: str, where: str, **spec: Any) -> dict[str, Any]:
    metadata = {"labels": {"app": "server"}}
    status = {"phase": "Running"}
    return pod(name, metadata=metadata, status=status, nodeName=where, **spec)


def of_servers(field: str, key: str = HOSTNAME, **term: Any) -> dict[str, Any]:
    selector = {"matchLabels": {"app": "server"}}
    terms = [{"topologyKey": key, "labelSelector": selector, **term}]
    return {field: {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def exporter(name: str = "dcgm") -> list[dict[str, Any]]:
    return [{"name": name, "image": "i", "ports": [{"containerPort": 9400, "hostPort": 9400}]}]


def replicas(count: int, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "ml"},
        "spec": {
            "replicas": count,
            "selector": {"matchLabels": {"app": "server"}},
            "template": {
                "metadata": {"labels": {"app": "server"}},
                "spec": {"containers": [{"name": "main", "image": "i"}], **spec},
            },
        },
    }


def test_the_pod_that_has_the_port_is_named(why: Asked) -> None:
    status, out = why(
        host("a"), running("q", "a", containers=exporter()), manifest=pod(containers=exporter())
    )
    assert status == CANNOT
    assert "the port 9400/TCP of the node is taken, as by ml/q" in out


@pytest.mark.parametrize(
    ("own", "other", "expected"),
    [
        ("10.0.0.1", "10.0.0.1", CANNOT),
        ("10.0.0.1", "10.0.0.2", CAN),
        ("", "10.0.0.2", CANNOT),
        ("10.0.0.1", "", CANNOT),
    ],
)
def test_a_port_is_taken_at_an_address_or_at_all(
    why: Asked, own: str, other: str, expected: int
) -> None:
    mine, theirs = exporter(), exporter()
    mine[0]["ports"][0]["hostIP"], theirs[0]["ports"][0]["hostIP"] = own, other
    there = running("q", "a", containers=theirs)
    assert why(host("a"), there, manifest=pod(containers=mine))[0] == expected


def test_thousands_of_ports_and_disks_are_not_compared_pairwise(why: Asked) -> None:
    def many(group: int) -> dict[str, Any]:
        numbers = range(20_000)
        ports = [
            {"containerPort": 80, "hostPort": 80, "hostIP": f"10.{group}.{n >> 8}.{n & 255}"}
            for n in numbers
        ]
        disks = [
            {"name": f"d{n}", "rbd": {"image": "i", "monitors": [f"{group}-{n}"]}} for n in numbers
        ]
        return {"containers": [{"name": "c", "image": "i", "ports": ports}], "volumes": disks}

    started = time.process_time()
    status, _ = why(host("a"), running("q", "a", **many(1)), manifest=pod(**many(2)))
    assert status == CAN
    assert time.process_time() - started < 60  # pairwise it is many minutes


def test_affinity_names_the_label_and_the_pod(why: Asked) -> None:
    cluster = [host("a"), running("q", "a")]
    status, out = why(*cluster, manifest=pod(affinity=of_servers("podAntiAffinity")))
    assert status == CANNOT
    assert f"its anti-affinity keeps it from a pod with the same {HOSTNAME}, as from ml/q" in out
    status, out = why(*cluster, manifest=pod(affinity=of_servers("podAffinity")))
    assert status == CAN
    status, out = why(cluster[0], manifest=pod(affinity=of_servers("podAffinity")))
    assert status == CANNOT
    assert "no pod that its affinity asks for is on a node with the same" in out


def test_a_pod_that_keeps_others_away_is_named(why: Asked) -> None:
    guard = running("q", "a", affinity=of_servers("podAntiAffinity"))
    server = pod(metadata={"labels": {"app": "server"}})
    status, out = why(host("a"), guard, manifest=server)
    assert status == CANNOT
    assert "the anti-affinity of a pod with the same" in out
    assert "keeps it away, as of ml/q" in out
    assert why(host("a"), guard, manifest=pod())[0] == CAN


def test_preferred_affinity_keeps_no_pod_away(why: Asked) -> None:
    term = {"weight": 1, "podAffinityTerm": {"topologyKey": HOSTNAME}}
    affinity = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
    assert why(host("a"), manifest=pod(affinity=affinity))[0] == CAN


def test_namespaces_that_are_selected_by_labels_must_be_known(why: Asked) -> None:
    affinity = of_servers("podAntiAffinity", namespaceSelector={"matchLabels": {"team": "a"}})
    cluster = [host("a"), running("q", "a")]
    status, out = why(*cluster, manifest=pod(affinity=affinity))
    assert status == NOT_KNOWN
    assert out.endswith("the labels of namespaces, by which an affinity to pods selects them")
    for team, expected in (("a", CANNOT), ("b", CAN)):
        namespace = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": "ml", "labels": {"team": team}},
        }
        assert why(*cluster, namespace, manifest=pod(affinity=affinity))[0] == expected


def spread(**more: Any) -> list[dict[str, Any]]:
    selector = {"matchLabels": {"app": "server"}}
    constraint = {"topologyKey": "zone", "maxSkew": 1, "labelSelector": selector, **more}
    return [{"whenUnsatisfiable": "DoNotSchedule", **constraint}]


def test_pods_are_spread(why: Asked) -> None:
    cluster = [host("a", zone="1"), running("q", "a")]
    server = pod(
        metadata={"labels": {"app": "server"}},
        topologySpreadConstraints=spread(nodeAffinityPolicy="Ignore"),
        nodeSelector={"zone": "1"},
    )
    status, out = why(*cluster, host("b", zone="2"), manifest=server)
    assert status == CANNOT
    assert "the values of zone would differ by more than 1 pods" in out
    assert why(*cluster, manifest=server)[0] == CAN
    status, out = why(host("a"), manifest=pod(topologySpreadConstraints=spread()))
    assert status == CANNOT
    assert "a topology spread constraint counts by zone, which the nodes lack" in out
    anyway = spread(whenUnsatisfiable="ScheduleAnyway")
    assert why(host("a"), manifest=pod(topologySpreadConstraints=anyway))[0] == CAN


def test_equal_pods_keep_each_other_from_a_node(why: Asked) -> None:
    cluster = [host("a"), host("b")]
    for spec in ({"affinity": of_servers("podAntiAffinity")}, {"containers": exporter()}):
        assert why(*cluster, manifest=replicas(2, **spec))[0] == CAN
        status, out = why(*cluster, manifest=replicas(3, **spec))
        assert status == CANNOT
        assert "2 of its 3 pods have room" in out


def test_pods_that_decide_about_the_next_ones_are_not_counted_for_sure(why: Asked) -> None:
    cluster = [host("a", zone="1"), host("b", zone="2")]
    zoned = of_servers("podAntiAffinity", "zone")
    for spec in ({"affinity": zoned}, {"topologySpreadConstraints": spread()}):
        status, out = why(*cluster, manifest=replicas(3, **spec))
        assert status == NOT_KNOWN
        assert "3 of its 3 pods may have room" in out
        assert out.endswith("where its pods are, which decides about the next ones")


# What the API server adds to a new pod.


RUNTIME_CLASS = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "kata"},
    "handler": "kata",
    "overhead": {"podFixed": {"cpu": "60"}},
    "scheduling": {
        "nodeSelector": {"kata": "true"},
        "tolerations": [{"key": "kata", "operator": "Exists"}],
    },
}


def test_a_runtime_class_adds_its_overhead_and_its_nodes(why: Asked) -> None:
    containers = [{"name": "main", "resources": {"requests": {"cpu": "8"}}}]
    new = pod(containers=containers, runtimeClassName="kata")
    status, out = why(node("a"), RUNTIME_CLASS, manifest=new)
    assert status == CANNOT
    assert "the pod selects kata=true" in out
    status, out = why(node("a", labels={"kata": "true"}), RUNTIME_CLASS, manifest=new)
    assert status == CANNOT
    assert "the pod asks for 68 cpu, and a node has at most 64" in out
    status, out = why(node("a"), manifest=new)
    assert status == NOT_KNOWN
    assert "Not known: what the RuntimeClass kata adds, and whether it exists" in out


def test_keys_of_labels_narrow_an_affinity(why: Asked) -> None:
    affinity = of_servers("podAntiAffinity", matchLabelKeys=["rev"])
    for revision, expected in (("1", CANNOT), ("2", CAN)):
        other = running("q", "a")
        other["metadata"]["labels"]["rev"] = "1"
        new = pod(affinity=affinity, metadata={"labels": {"rev": revision}})
        assert why(host("a"), other, manifest=new)[0] == expected


# Priority.


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"priority": 5}, NOT_KNOWN),
        ({"priority": 1}, CANNOT),
        ({"priority": 5, "preemptionPolicy": "Never"}, CANNOT),
        ({"priorityClassName": "system-node-critical"}, NOT_KNOWN),
        ({"priorityClassName": "unknown"}, NOT_KNOWN),
        ({}, CANNOT),
    ],
)
def test_pods_of_lower_priority_may_be_evicted(
    why: Asked, spec: dict[str, Any], expected: int
) -> None:
    taken = running("q", "a", containers=[{"name": "m", "resources": {"limits": {GPU: 8}}}])
    taken["spec"]["priority"] = 1
    status, out = why(host("a"), taken, manifest=pod(limits={GPU: 4}, **spec))
    assert status == expected
    evicts = "kube-scheduler may evict pods of lower priority for it from 1 node: a"
    assert (evicts in out) == (expected == NOT_KNOWN)


def test_nothing_is_evicted_for_more_than_a_node_has(why: Asked) -> None:
    taken = running("q", "a", containers=[{"name": "m", "resources": {"limits": {GPU: 8}}}])
    assert why(host("a"), taken, manifest=pod(limits={GPU: 9}, priority=5))[0] == CANNOT
    class_of_all = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "normal"},
        "value": 10,
        "globalDefault": True,
    }
    assert why(host("a"), taken, class_of_all, manifest=pod(limits={GPU: 4}))[0] == NOT_KNOWN


def nominated(priority: int, gpus: int = 8, **spec: Any) -> dict[str, Any]:
    status = {"phase": "Pending", "nominatedNodeName": "a"}
    return pod("first", {GPU: gpus}, status=status, priority=priority, **spec)


def test_room_that_is_kept_for_another_pod_is_none(why: Asked) -> None:
    """kube-scheduler has evicted others for it, and it starts as soon as they have ended."""
    asks = pod("p", {GPU: 4}, priority=5)
    status, out = why(host("a"), nominated(9), asks, name="p")
    assert status == CANNOT
    assert "the pod asks for 4 nvidia.com/gpu, and at most 0 of 8 are free on one node" in out
    assert "kube-scheduler keeps room there for ml/first" in out
    assert "wait until 4 more nvidia.com/gpu is released there" in out
    assert why(host("a"), nominated(5), asks, name="p")[0] == CANNOT
    assert why(host("a"), nominated(4), asks, name="p")[0] == CAN  # it has to wait itself
    assert why(host("a"), nominated(9, gpus=4), asks, name="p")[0] == CAN  # room for both
    assert why(host("a"), host("b"), nominated(9), asks, name="p")[0] == CAN
    assert why(host("a"), nominated(9), name="first")[0] == CAN
    has_port = nominated(9, gpus=1, containers=exporter())
    status, out = why(host("a"), has_port, pod("p", priority=5, containers=exporter()), name="p")
    assert status == CANNOT
    assert "the port 9400/TCP of the node is taken, as by ml/first" in out


def test_new_pods_get_what_is_left_beside_nominated_ones(why: Asked) -> None:
    status, out = why(host("a"), nominated(0, gpus=4), manifest=replicas(5))
    assert status == CAN
    containers = [{"name": "m", "image": "i", "resources": {"limits": {GPU: 2}}}]
    status, out = why(host("a"), nominated(0, gpus=4), manifest=replicas(3, containers=containers))
    assert status == CANNOT
    assert "2 of its 3 pods have room" in out


def test_a_list_tells_the_pod_for_which_room_is_kept_from_its_like(why: Asked) -> None:
    other = pod("p", {GPU: 8}, priority=9)
    status, out = why(host("a"), nominated(9), other)
    assert status == CANNOT
    assert "1 pod, can: ml/first" in out
    assert "1 pod, cannot: ml/p" in out

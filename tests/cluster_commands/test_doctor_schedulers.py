"""The answers of `gpuward doctor` about schedulers that pods name, and about the cluster's age."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.doctor.rows import State
from policies.loading import load_policy
from policies.policy import Policy
from tests.testkit.cluster_commands.doctor_rows import rows
from tests.testkit.cluster_commands.gpu_objects import Object, node, pod

GPU, SHARE = "nvidia.com/gpu", "aliyun.com/gpu-mem"


def profile(name: str) -> Policy:
    return load_policy(f"apiVersion: gpuward.io/v1\nkind: Policy\nprofiles: [{name}]\n", "a test")


def waiting(scheduler: str, name: str = "waits") -> Object:
    made = pod(name, {GPU: 1})
    made["spec"]["schedulerName"] = scheduler
    return made


def program(of_pod: str, **container: Any) -> Object:
    made = pod(of_pod, {}, on="n1")
    made["spec"]["containers"] = [{"name": "main", "image": "x", **container}]
    return made


def test_a_scheduler_that_no_pod_runs_is_not_known() -> None:
    (row,) = rows(waiting("nobody", "a"), waiting("nobody", "b"))["schedulers"]
    assert row.state is State.NOT_KNOWN
    assert row.subject == "nobody"
    assert row.message == "2 pods wait for it, and no pod seems to run it"
    assert len(row.names) == 2


@pytest.mark.parametrize(
    "running",
    [
        program("own-sched-5f6d-abcde"),
        program("x", image="registry.example.com/own-sched:1"),
        program("x", name="own-sched"),
        program("our-scheduler-1", args=["--scheduler-name=own-sched"]),
        program("our-scheduler-1", command=["run", "--other=1", "--scheduler-name=own-sched"]),
    ],
    ids=["pod", "image", "container", "argument", "command"],
)
def test_a_scheduler_that_a_pod_runs_is_found(running: Object) -> None:
    (row,) = rows(waiting("own-sched"), running)["schedulers"]
    assert row.state is State.OK


def test_a_scheduler_that_has_placed_a_pod_is_there() -> None:
    placed = pod("placed", {GPU: 1}, on="n1")
    placed["spec"]["schedulerName"] = "of-the-provider"
    (row,) = rows(waiting("of-the-provider"), placed)["schedulers"]
    assert row.state is State.OK


def test_pods_of_the_default_scheduler_need_no_row() -> None:
    assert "schedulers" not in rows(waiting("default-scheduler"), waiting(""), pod("a", {GPU: 1}))


def test_a_scheduler_that_a_platform_needs_is_missed_without_any_pod() -> None:
    shared = node("n1", {SHARE: 15})
    (row,) = rows(shared, policy=profile("ack-registered"))["schedulers"]
    assert row.state is State.WRONG
    assert row.subject == "ack-co-scheduler"
    assert row.message == f"{SHARE} needs it, and no pod seems to run it"
    assert "schedulers" not in rows(shared, policy=profile("ack"))
    running = program("ack-co-scheduler-77d-x")
    (row,) = rows(shared, running, policy=profile("ack-registered"))["schedulers"]
    assert row.state is State.OK


def cluster_of(date: str) -> list[Object]:
    shared = node("n1", {SHARE: 15})
    shared["metadata"]["labels"] = {"ack.node.gpu.schedule": "core_mem"}
    made = {"name": "kube-system", "creationTimestamp": date}
    return [shared, {"kind": "Namespace", "metadata": made}]


def about_age(*objects: Object) -> list[Any]:
    found = rows(*objects, policy=profile("ack"))["requirements"]
    return [row for row in found if "age of the cluster" in row.subject]


def test_the_scheduler_of_an_old_cluster_had_to_be_updated_by_hand() -> None:
    (row,) = about_age(*cluster_of("2022-02-28T23:59:59Z"))
    assert row.state is State.NOT_KNOWN
    assert "the cluster is of 2022-02-28" in row.message
    assert list(row.names) == ["n1"]


def test_the_age_does_not_matter_where_the_scheduler_shows_or_the_cluster_is_newer() -> None:
    image = "registry.example.com/kube-scheduler:v1.28.1-aliyun-5.6-998282b9"
    assert not about_age(*cluster_of("2021-01-01T00:00:00Z"), program("s", image=image))
    assert not about_age(*cluster_of("2022-03-01T00:00:00Z"))
    nodes_alone = cluster_of("2021-01-01T00:00:00Z")[:1]
    assert not about_age(*nodes_alone)

"""`gpuward gpus`, `why`, `doctor`, `audit` and `no-fitting-node` say the same of one file."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest

from cluster.accounting.usage import ResourceUsage
from cluster.audit.cli import main as audit
from cluster.doctor.cli import main as doctor
from cluster.gpus.cli import main as gpus
from cluster.snapshot.snapshot import Snapshot
from cluster.source.files import FileSource
from cluster.why.explainer import Explainer, Workload
from cluster.why.explanation import Answer
from policies.loading import load_policy
from rules.engine.fixing import check
from rules.profile.context import Context
from tests.testkit.cases import TODAY, inventory_of
from tests.testkit.cluster_commands.gpu_objects import Object, node, pod

POLICY = load_policy("apiVersion: gpuward.io/v1\nkind: Policy\n", "default")
PROFILE = POLICY.profile
HOST = "kubernetes.io/hostname"
RESOURCES = ("nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "amd.com/gpu")
PHASES = ("Running", "Running", "Running", "Pending", "Succeeded", "Failed")


def random_cluster(random: Random) -> list[Object]:
    """Nodes with healthy and sick devices, some cordoned, and pods in all phases."""
    nodes = []
    for number in range(random.randint(1, 4)):
        capacity = {name: random.randint(0, 8) for name in RESOURCES if random.random() < 0.6}
        allocatable = {
            name: random.choice((count, count, count, random.randint(0, count)))
            for name, count in capacity.items()
        }
        name = f"node-{number}"
        nodes.append(
            node(
                name,
                {key: str(count) for key, count in allocatable.items()},
                capacity={key: str(count) for key, count in capacity.items()},
                labels={HOST: name},
                spec={"unschedulable": True} if random.random() < 0.2 else {},
                cpu=random.choice(("1", "64")),
            )
        )
    pods = [random_pod(random, f"pod-{number}", nodes) for number in range(random.randint(0, 12))]
    return [*nodes, *pods]


def random_pod(random: Random, name: str, nodes: list[Object]) -> Object:
    amounts: dict[str, Any] = {each: random.randint(0, 4) for each in random.sample(RESOURCES, 2)}
    amounts["cpu"] = random.choice(("100m", "1"))
    more: dict[str, Any] = {}
    if random.random() < 0.3:
        restarts = {"restartPolicy": "Always"} if random.random() < 0.5 else {}
        resources = {"limits": {random.choice(RESOURCES): random.randint(0, 4)}}
        more["initContainers"] = [{"name": "init", "resources": resources, **restarts}]
    on = random.choice(nodes)["metadata"]["name"] if random.random() < 0.8 else ""
    return pod(name, amounts, on=on, phase=random.choice(PHASES), **more)


def asking(resource: str, count: int, selector: Mapping[str, str]) -> Object:
    """A new pod that asks for devices, and for nothing else."""
    made = pod("new", {resource: str(count)}, nodeSelector=dict(selector))
    del made["status"]
    return made


def written(folder: Path, objects: list[Object]) -> str:
    file = folder / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    return str(file)


def has_no_fitting_node(made: Object, objects: list[Object]) -> bool:
    """Return whether the rule says that no node can ever run the pod."""
    nodes = [raw for raw in objects if raw["kind"] == "Node"]
    inventory = inventory_of(nodes, PROFILE, has_all_nodes=True)
    context = Context(TODAY, "team-a")._replace(inventory=inventory)
    found = check(made, POLICY.rule_set(), context).findings
    return any(finding.rule == "no-fitting-node" for finding in found)


@pytest.mark.parametrize("seed", range(40))
def test_gpus_why_and_the_rule_agree_on_what_nodes_offer(seed: int, tmp_path: Path) -> None:
    objects = random_cluster(Random(seed))  # noqa: S311  # not a secret
    source = FileSource([written(tmp_path, objects)], io.BytesIO())
    snapshot = Snapshot(source, PROFILE)
    usage = snapshot.usage(snapshot.count())
    explainer = Explainer(snapshot)

    def can(resource: str, count: int, selector: Mapping[str, str]) -> bool:
        workload = Workload(asking(resource, count, selector), 1)
        return explainer.explain_workload(workload).answer is Answer.CAN

    by_node = {one.name: {used.resource: used for used in one.resources} for one in usage.nodes}
    for raw in objects:
        if raw["kind"] != "Node":
            continue
        name = raw["metadata"]["name"]
        for resource in RESOURCES:
            used = by_node.get(name, {}).get(resource) or ResourceUsage(resource, 0, 0)
            free = used.free + used.stranded
            assert not can(resource, int(free) + 1, {HOST: name}), (name, used)
            assert free == 0 or can(resource, int(free), {HOST: name}), (name, used)
    for resource in RESOURCES:
        most = max(
            (here[resource].total or 0 for here in by_node.values() if resource in here), default=0
        )
        if most:
            assert not has_no_fitting_node(asking(resource, int(most), {}), objects)
            assert has_no_fitting_node(asking(resource, int(most) + 1, {}), objects)
            assert not can(resource, int(most) + 1, {})


def given(name: str, device: str) -> Object:
    made = pod(name, {"nvidia.com/gpu": 1}, on="n")
    resources = [{"resourceID": device, "health": "Healthy"}]
    allocated = [{"name": "nvidia.com/gpu", "resources": resources}]
    made["status"]["containerStatuses"] = [{"name": "main", "allocatedResourcesStatus": allocated}]
    return made


def claim(name: str, device: str, driver: str = "gpu.nvidia.com") -> Object:
    result = {"driver": driver, "pool": "n", "device": device}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "team-a"},
        "spec": {},
        "status": {"allocation": {"devices": {"results": [result]}}},
    }


def test_all_commands_name_a_device_that_several_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    objects = [
        node("n", {"nvidia.com/gpu": "4"}),
        *(given("one", "GPU-1"), given("two", "GPU-1"), given("three", "GPU-2")),
        *(claim("first", "gpu-0"), claim("second", "gpu-0"), claim("third", "gpu-1")),
        *(claim("left", "nic-0", "nic.example.com"), claim("right", "nic-0", "nic.example.com")),
    ]
    file = written(tmp_path, objects)
    claims = "claim team-a/first, claim team-a/second have the same device gpu-0 of n as gpu.nvidia"
    pods = "pod team-a/one, pod team-a/two have the same device GPU-1 of n as nvidia.com/gpu"
    assert gpus(["-f", file]) == 3
    said = capsys.readouterr().err
    assert claims in said
    assert pods in said
    assert said.count("have the same device") == 2  # a network card is none of its business
    audit(["-f", file, "--isolated"])
    said = capsys.readouterr().out
    assert claims in said
    assert pods in said
    doctor(["-f", file, "-o", "json"])
    rows = json.loads(capsys.readouterr().out)["rows"]
    found = [row["subject"] for row in rows if row["check"] == "cards given twice"]
    assert found == [
        "resourceclaim/first in team-a, resourceclaim/second in team-a",
        "resourceclaim/left in team-a, resourceclaim/right in team-a",
        "pod/one in team-a, pod/two in team-a",
    ]

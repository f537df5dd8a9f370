"""`gpuward gpus` agrees with what the real scheduler still places and what it refuses."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

import pytest

from cluster.gpus.cli import main
from tests.testkit.control_plane.objects import gpu_node
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually
from tests.testkit.control_plane.rights import await_rights

GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb"
DRIVER, PART = "gpu.nvidia.com", "mig.nvidia.com"
# Classes of devices, by how their memory compares with that of a whole card.
CLASSES = {DRIVER: ">= 0", PART: "< 0"}
ONLY_HERE = {"gpuward.test/gpus-of-a-cluster": "true"}
# Keeps pods away that other tests have left pending; they would take devices of these nodes.
TAINT = {"key": "gpuward.test/gpus-of-a-cluster", "effect": "NoSchedule"}
# Name -> CPU, and devices of each resource. Of some nodes CPU runs out first, of others devices.
NODES = {"cards-few-cpu": (8, {GPU: 12}), "cards": (64, {GPU: 4}), "parts": (9, {GPU: 2, MIG: 12})}
SCHEDULED = "PodScheduled"
FIELDS = ("requests", "limits")


class Pods:
    """Pods of one namespace that ask for GPUs of the nodes above."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self.namespace = plane.namespace()
        self._path = f"/api/v1/namespaces/{self.namespace}/pods"
        self._count = 0

    def create(self, containers: list[Any], init: list[Any] | None = None, **spec: Any) -> None:
        self._count += 1
        named = [
            [
                {"name": f"{prefix}{number}", "image": "example/x", **c}
                for number, c in enumerate(cs)
            ]
            for prefix, cs in (("main-", containers), ("init-", init or []))
        ]
        full = {
            "containers": named[0],
            "initContainers": named[1],
            "nodeSelector": ONLY_HERE,
            "tolerations": [{**TAINT, "operator": "Exists"}],
            "terminationGracePeriodSeconds": 0,
            **spec,
        }
        metadata = {"name": f"pod-{self._count}"}
        self._plane.create(self._path, {"metadata": metadata, "spec": full})

    def decided(self) -> list[Any]:
        """All pods, once the scheduler has tried each, and each that has a node runs."""

        def found() -> list[Any]:
            pods: list[Any] = self._plane.request("GET", self._path).body["items"]
            return pods if all(map(_is_decided, pods)) else []

        return eventually(found, what="the scheduler has tried every pod")

    def placed(self, least: int = 0) -> int:
        """The number of pods with a node, once the scheduler has tried all, and `least` have one.

        It tries a pod again when it hears of a node, a device or a claim later than of the pod.
        """

        def found() -> list[bool]:
            have = ["nodeName" in pod["spec"] for pod in self.decided()]
            return have if sum(have) >= least else []

        return sum(eventually(found, what=f"{least} pods have a node"))

    def complete_one(self) -> None:
        """Let one pod that has GPUs terminate; its devices are free again."""
        done = next(pod for pod in self.decided() if "nodeName" in pod["spec"])
        path = f"{self._path}/{done['metadata']['name']}/status"
        patch = {"status": {"phase": "Succeeded"}}
        self._patch(path, patch)

    def resize(self, chance: random.Random) -> None:
        """Resize running pods in place; what kubelets have granted of it differs."""
        resources = self._plane.request("GET", "/api/v1").body["resources"]
        if "pods/resize" not in {resource["name"] for resource in resources}:
            return  # this release resizes no pods
        for pod in self.decided():
            if pod["status"]["phase"] != "Running":
                continue
            path = f"{self._path}/{pod['metadata']['name']}"
            asked, granted, has = (str(chance.randint(1, 3)) for _ in range(3))
            first, *rest = pod["spec"]["containers"]
            amounts = {field: {**first["resources"][field], "cpu": asked} for field in FIELDS}
            spec = {"containers": [{**first, "resources": amounts}, *rest]}
            status, *others = pod["status"]["containerStatuses"]
            assert status["name"] == first["name"]
            status["allocatedResources"] = {"cpu": granted}
            status["resources"] = {"requests": {**first["resources"]["requests"], "cpu": has}}
            pending = {"type": "PodResizePending", "status": "True"}
            pending["reason"] = chance.choice(("Infeasible", "Deferred"))
            conditions = [*pod["status"]["conditions"], pending]
            patched = {"containerStatuses": [status, *others], "conditions": conditions}
            self._patch(f"{path}/status", {"status": patched})
            self._patch(f"{path}/resize", {"spec": spec})

    def _patch(self, path: str, patch: Any) -> None:
        answer = self._plane.request(
            "PATCH", path, patch, content_type="application/merge-patch+json"
        )
        assert answer.status == HTTPStatus.OK, answer


def _is_decided(pod: Any) -> bool:
    tried = any(c["type"] == SCHEDULED for c in pod["status"].get("conditions", []))
    return tried and ("nodeName" not in pod["spec"] or pod["status"]["phase"] != "Pending")


@pytest.fixture
def nodes(plane: ControlPlane) -> Iterator[None]:
    for name, (cpu, devices) in NODES.items():
        node = gpu_node(name, GPU, 0, ONLY_HERE, taint=False)
        node["spec"]["taints"] = [TAINT]
        amounts = {"cpu": str(cpu), **{key: str(count) for key, count in devices.items()}}
        for field in ("capacity", "allocatable"):
            node["status"][field] |= amounts
        plane.create("/api/v1/nodes", node)
    yield
    for name in NODES:
        plane.request("DELETE", f"/api/v1/nodes/{name}")


@pytest.fixture
def pods(plane: ControlPlane, nodes: None) -> Iterator[Pods]:  # noqa: ARG001  # they are there
    # Until the scheduler knows that the nodes are ready.
    probes = Pods(plane)
    for name in NODES:
        probes.create([{}], nodeSelector={"kubernetes.io/hostname": name})
    probes.placed(len(NODES))
    plane.kubectl("delete", "pods", "--all", "-n", probes.namespace)
    created = Pods(plane)
    yield created
    plane.kubectl("delete", "pods", "--all", "-n", created.namespace)


def random_pod(chance: random.Random) -> dict[str, Any]:
    def container(most: int, **more: Any) -> dict[str, Any]:
        limits = {chance.choice((GPU, GPU, MIG)): chance.randint(0, most), "cpu": 1}
        return {"resources": {"limits": limits}, **more}

    init = [
        container(2, **chance.choice(({}, {"restartPolicy": "Always"})))
        for _ in range(chance.randint(0, 2))
    ]
    return {"containers": [container(2) for _ in range(chance.randint(1, 2))], "init": init}


def counted(
    plane: ControlPlane, capsys: pytest.CaptureFixture[str], *nodes: str, status: int = 0
) -> dict[str, Any]:
    options = ["--kubeconfig", str(plane.kubeconfig), "-o", "json", "--pod-memory", "1"]
    assert main([*options, *(nodes or NODES)]) == status
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def free(document: dict[str, Any]) -> dict[str, int]:
    return {total["resource"]: total["free"] for total in document["totals"]}


def test_free_is_what_the_scheduler_still_places(
    plane: ControlPlane, pods: Pods, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random(20)  # noqa: S311  # no secret
    for _ in range(10):
        pods.create(**random_pod(chance))
    pods.decided()
    pods.complete_one()
    pods.resize(chance)
    before = counted(plane, capsys)
    assert sum(free(before).values()) > 0
    for resource in (MIG, GPU):
        expected = free(counted(plane, capsys))[resource]
        placed = pods.placed()
        for _ in range(expected + 2):
            pods.create([{"resources": {"limits": {resource: 1, "cpu": 1}}}])
        assert pods.placed(placed + expected) == placed + expected
    after = counted(plane, capsys)
    assert set(free(after).values()) == {0}
    # What is left is stranded: the scheduler refused two more pods of each resource.
    assert sum(total["stranded"] for total in after["totals"]) > 0


def offer_devices(plane: ControlPlane, api: str) -> None:
    """Offer two whole cards, one that is also there as two halves, and one that is not healthy.

    The slices of two more pools are not all there, as while a driver replaces them: of one there is
    the first of two, and of the other one slice of the newest generation, and one of that before.
    """
    pool = {"name": "cards", "generation": 2, "resourceSliceCount": 2}
    spec = {"driver": DRIVER, "nodeName": "cards", "pool": pool}

    def device(name: str, memory: str, counter_set: str = "", **more: Any) -> dict[str, Any]:
        amount = {"memory": {"value": memory}}
        drawn = [{"counterSet": counter_set, "counters": amount}] if counter_set else []
        return {"name": name, "capacity": amount, "consumesCounters": drawn, **more}

    devices = [
        device("gpu-0", "80Gi"),
        device("gpu-1", "80Gi"),
        device("gpu-2", "80Gi", "card-2"),
        device("gpu-2-a", "40Gi", "card-2"),
        device("gpu-2-b", "40Gi", "card-2"),
        device("gpu-3", "80Gi", taints=[{"key": f"{DRIVER}/broken", "effect": "NoSchedule"}]),
    ]
    counters = [{"name": "card-2", "counters": {"memory": {"value": "80Gi"}}}]
    other = {"devices": [device("gpu-0", "80Gi")]}
    begun, replaced = ({"pool": {**pool, "name": name}} for name in ("begun", "replaced"))
    old = {"pool": {**pool, "name": "replaced", "generation": 1, "resourceSliceCount": 1}}
    for name, content in (
        ("devices", {"devices": devices}),
        ("cards", {"sharedCounters": counters}),
        ("begun", {**other, **begun}),
        ("new", {**other, **replaced}),
        ("old", {**other, **old}),
    ):
        metadata = {"name": f"{DRIVER}-{name}"}
        plane.create(f"{api}/resourceslices", {"metadata": metadata, "spec": {**spec, **content}})
    for name, condition in CLASSES.items():
        memory = f"device.capacity['{DRIVER}'].memory.compareTo(quantity('80Gi'))"
        expression = f"device.driver == '{DRIVER}' && {memory} {condition}"
        selectors = [{"cel": {"expression": expression}}]
        metadata = {"name": name}
        plane.create(
            f"{api}/deviceclasses", {"metadata": metadata, "spec": {"selectors": selectors}}
        )


def test_devices_that_the_scheduler_allocates_to_claims(
    plane: ControlPlane, pods: Pods, capsys: pytest.CaptureFixture[str]
) -> None:
    api = "/apis/resource.k8s.io/v1"
    if plane.request("GET", api).status != HTTPStatus.OK:
        return  # this release allocates no devices
    offer_devices(plane, api)
    for name in CLASSES:
        request = {"name": "gpu", "exactly": {"deviceClassName": name}}
        spec = {"spec": {"devices": {"requests": [request]}}}
        template = {"metadata": {"name": name}, "spec": spec}
        plane.create(f"{api}/namespaces/{pods.namespace}/resourceclaimtemplates", template)

    def create(device_class: str) -> None:
        pods.create(
            [{"resources": {"claims": [{"name": "gpu"}]}}],
            resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": device_class}],
        )

    for number, name in enumerate((PART, PART, DRIVER), start=1):
        create(name)
        pods.placed(number)
    document = counted(plane, capsys, "cards", status=3)
    for _ in range(free(document)[DRIVER] + 1):
        create(DRIVER)
    placed = pods.placed(3 + free(document)[DRIVER])
    after = counted(plane, capsys, "cards", status=3)
    for name in ("devices", "cards", "begun", "new", "old"):
        plane.request("DELETE", f"{api}/resourceslices/{DRIVER}-{name}")
    for name in CLASSES:
        plane.request("DELETE", f"{api}/deviceclasses/{name}")
    total = next(total for total in document["totals"] if total["resource"] == DRIVER)
    assert [total[key] for key in ("total", "allocated", "free", "unavailable")] == [6, 2, 1, 3]
    assert placed == 3 + total["free"]
    assert free(after)[DRIVER] == 0
    amounts = {consumer["owner"]: consumer["amounts"] for consumer in document["consumers"]}
    assert amounts == {
        "pod/pod-1": {DRIVER: 0.5},
        "pod/pod-2": {DRIVER: 0.5},
        "pod/pod-3": {DRIVER: 1},
    }


def test_the_scheduler_gives_a_card_away_twice_that_is_offered_twice(
    plane: ControlPlane, pods: Pods, capsys: pytest.CaptureFixture[str]
) -> None:
    api = "/apis/resource.k8s.io/v1"
    if plane.request("GET", api).status != HTTPStatus.OK:
        return  # this release allocates no devices
    pool = {"name": "parts", "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": f"gpu-{number}"} for number in range(2)]
    spec = {"driver": DRIVER, "nodeName": "parts", "pool": pool, "devices": devices}
    plane.create(f"{api}/resourceslices", {"metadata": {"name": "twice"}, "spec": spec})
    expression = f"device.driver == '{DRIVER}'"
    selectors = {"selectors": [{"cel": {"expression": expression}}]}
    plane.create(f"{api}/deviceclasses", {"metadata": {"name": DRIVER}, "spec": selectors})
    request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER}}
    template = {
        "metadata": {"name": "card"},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }
    plane.create(f"{api}/namespaces/{pods.namespace}/resourceclaimtemplates", template)
    place = {**ONLY_HERE, "kubernetes.io/hostname": "parts"}
    try:
        for _ in range(2):
            pods.create([{"resources": {"limits": {GPU: "1"}}}], nodeSelector=place)
            claim = {"name": "gpu", "resourceClaimTemplateName": "card"}
            using = {"resources": {"claims": [{"name": "gpu"}]}}
            pods.create([using], resourceClaims=[claim], nodeSelector=place)
        assert pods.placed(4) == 4
        document = counted(plane, capsys, "parts", status=3)
    finally:
        plane.request("DELETE", f"{api}/resourceslices/twice")
        plane.request("DELETE", f"{api}/deviceclasses/{DRIVER}")
    (node,) = document["nodes"]
    assert node["offeredTwice"] == [{"driver": DRIVER, "resources": [GPU, MIG]}]
    (row,) = node["resources"]
    fields = ("resource", "total", "allocated", "free", "overcommitted")
    assert [row[key] for key in fields] == [DRIVER, 2, 4, 0, 2]


def test_rights_for_one_namespace_are_enough_to_see_who_has_gpus(
    plane: ControlPlane, pods: Pods, capsys: pytest.CaptureFixture[str]
) -> None:
    pods.create([{"resources": {"limits": {GPU: 1}}}])
    pods.placed(1)
    where = ("-n", pods.namespace)
    plane.kubectl("create", "role", "see-pods", "--verb=list", "--resource=pods", *where)
    account = f"--serviceaccount={pods.namespace}:default"
    plane.kubectl("create", "rolebinding", "see-pods", "--role=see-pods", account, *where)
    await_rights(plane)
    kubeconfig = str(plane.kubeconfig_for(plane.token("default", pods.namespace)))
    assert main(["--kubeconfig", kubeconfig, *where]) == 3
    captured = capsys.readouterr()
    row = captured.out.splitlines()[1].split()
    assert row == [pods.namespace, "pod/pod-1", GPU, "1", "0", "1"]
    assert "it needs the right to list resourceslices.resource.k8s.io" in captured.err
    assert main(["--kubeconfig", kubeconfig]) == 2
    assert "the right to list pods in all namespaces" in capsys.readouterr().err

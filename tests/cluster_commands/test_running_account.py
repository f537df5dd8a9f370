"""An account that follows changes is the one that counts everything anew."""

from __future__ import annotations

import random
from typing import Any

import pytest

from cluster.accounting.account import Account
from cluster.accounting.running_account import RunningAccount
from cluster.accounting.usage import Usage
from policies.loading import default_policy

PROFILE = default_policy(["kai", "dra"]).profile
GPU, DRIVER = "nvidia.com/gpu", "gpu.nvidia.com"
NODES, PODS, CLAIMS = ("n0", "n1", "n2", "n3"), range(12), range(4)


class World:
    """Objects that change at random, and the account that is told of each change."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311  # no secret
        self.objects: dict[tuple[str, str], Any] = {}
        self.running = RunningAccount(PROFILE)

    def change(self) -> None:
        self.chance.choice(
            (self._node, self._pod, self._pod, self._pod, self._claim, self._slice)
        )()

    def of(self, kind: str) -> list[Any]:
        return [raw for (own, _), raw in self.objects.items() if own == kind]

    def _keep(self, kind: str, name: str, raw: Any) -> None:
        if raw is None:
            self.objects.pop((kind, name), None)
        else:
            self.objects[kind, name] = raw

    def _is_gone(self) -> bool:
        return self.chance.random() < 0.25

    def _node(self) -> None:
        name = self.chance.choice(NODES)
        if self._is_gone():
            self._keep("Node", name, None)
            must_put = self.running.drop_node(name)
            self._put_pods(must=must_put)
            return
        amounts = {"cpu": "8", "memory": "32Gi", "pods": "20", GPU: str(self.chance.randint(0, 8))}
        memory = self.chance.choice(("", "40000", "80000"))
        raw = {
            "metadata": {"name": name, "labels": {"nvidia.com/gpu.memory": memory}},
            "spec": {
                "unschedulable": self.chance.random() < 0.2,
                "taints": [{"key": GPU, "effect": "NoSchedule"}] * self.chance.randint(0, 1),
            },
            "status": {"capacity": {**amounts, GPU: "8"}, "allocatable": amounts},
        }
        self._keep("Node", name, raw)
        self._put_pods(must=self.running.put_node(raw))

    def _put_pods(self, *, must: bool) -> None:
        for pod in self.of("Pod") if must else ():
            self.running.put_pod(pod)

    def _pod(self) -> None:
        name = f"pod-{self.chance.choice(PODS)}"
        if self._is_gone():
            self._keep("Pod", name, None)
            self.running.drop_pod(("ml", name))
            return
        limits = {"cpu": str(self.chance.randint(1, 3))}
        if self.chance.random() < 0.7:
            limits[GPU] = str(self.chance.randint(1, 4))
        spec: dict[str, Any] = {"containers": [{"name": "main", "resources": {"limits": limits}}]}
        if self.chance.random() < 0.7:
            spec["nodeName"] = self.chance.choice(NODES)
        if self.chance.random() < 0.3:
            claim = f"claim-{self.chance.choice(CLAIMS)}"
            spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": claim}]
            if self.chance.random() < 0.5:
                spec["schedulingGroup"] = {"podGroupName": "train"}
        metadata: dict[str, Any] = {"name": name, "namespace": "ml", "uid": name}
        if self.chance.random() < 0.3:
            metadata["annotations"] = {"gpu-memory": "20000"}
            metadata["labels"] = {"runai-gpu-group": "card-1"}
        phase = self.chance.choice(("Running", "Pending", "Succeeded"))
        if self.chance.random() < 0.3:
            spec["tolerations"] = [{"operator": "Exists"}]
        raw = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": spec,
            "status": {"phase": phase},
        }
        self._keep("Pod", name, raw)
        self.running.put_pod(raw)

    def _claim(self) -> None:
        name = f"claim-{self.chance.choice(CLAIMS)}"
        raw = None
        if not self._is_gone():
            node = self.chance.choice(NODES)
            result = {"driver": DRIVER, "pool": node, "device": "gpu-0", "request": "gpu"}
            users = [{"resource": "pods", "name": f"pod-{n}"} for n in self.chance.sample(PODS, 2)]
            if self.chance.random() < 0.3:
                group = {"resource": "podgroups", "apiGroup": "scheduling.k8s.io", "name": "train"}
                users = [group]
            allocated = {"allocation": {"devices": {"results": [result]}}, "reservedFor": users}
            requests = [{"name": "gpu", "exactly": {"deviceClassName": DRIVER}}]
            raw = {
                "metadata": {"name": name, "namespace": "ml"},
                "spec": {"devices": {"requests": requests}},
                "status": allocated if self.chance.random() < 0.7 else {},
            }
        self._keep("Claim", name, raw)
        self.running.put_claim(("ml", name), raw)

    def _slice(self) -> None:
        node = self.chance.choice(NODES)
        raw = None
        if not self._is_gone():
            devices = [{"name": f"gpu-{n}"} for n in range(self.chance.randint(1, 3))]
            pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
            spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
            raw = {"metadata": {"name": node}, "spec": spec}
        self._keep("Slice", node, raw)
        self.running.put_slice(node, raw)


def in_order(usage: Usage) -> Usage:
    """Consumers come in the order of lists, which changes do not keep."""
    return usage._replace(consumers=tuple(sorted(usage.consumers, key=repr)))


@pytest.mark.parametrize("seed", range(30))
def test_it_is_the_account_of_the_objects_that_are_left(seed: int) -> None:
    world = World(seed)
    for step in range(120):
        world.change()
        if step % 3:  # several changes at once, too
            continue
        account = Account(world.of("Node"), PROFILE)
        for raw in world.of("Pod"):
            account.add_pod(raw)
        expected = account.usage(world.of("Slice"), world.of("Claim"))
        assert in_order(world.running.usage()) == in_order(expected)

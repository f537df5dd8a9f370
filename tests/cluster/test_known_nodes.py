"""The rule about pods for which no node fits, against the real scheduler."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.testkit.cases import Case, cases
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually

RULE = "no-fitting-node"
# Selects the nodes of the test; no profile names it, so that the rule does not know it.
LABEL = "example.com/nodes-of"
# Cases about what is not compared: the rule says nothing, whatever the scheduler does.
NOT_COMPARED = {
    *("clean-daemon", "clean-device-class", "clean-gated", "clean-no-gpu"),
    *("some-nodes", "clean-some-nodes", "clean-unknown"),
    # The scheduler of ACK counts single cards, that of Kubernetes the sum of a node.
    *("card", "clean-card", "clean-two-cards", "clean-unknown-card", "clean-mebibytes"),
    *("clean-larger-card", "clean-cards-differ"),
}
COMPARED = [c for c in cases() if c.rule == RULE and c.file.stem not in NOT_COMPARED]


@pytest.fixture
def namespace(plane: ControlPlane) -> Iterator[str]:
    """A namespace, beside the nodes of the cases, which only its pods select."""
    name = plane.namespace()
    made = [_node(raw, name) for raw in COMPARED[0].circumstances["inventory"]]
    for node in made:
        plane.create("/api/v1/nodes", node)
    yield name
    for node in made:
        plane.request("DELETE", f"/api/v1/nodes/{node['metadata']['name']}")


def _node(raw: Any, namespace: str) -> Any:
    metadata, capacity = raw["metadata"], raw["status"]["capacity"] | {"pods": "110"}
    return raw | {
        "metadata": {
            "name": f"{namespace}-{metadata['name']}",
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": metadata.get("labels", {}) | {LABEL: namespace, "disktype": "nvme"},
        },
        "status": {"capacity": capacity, "allocatable": capacity},
    }


def _pod(case: Case, namespace: str) -> Any:
    pod = case.manifest
    pod["metadata"] = {"name": case.file.stem, "namespace": namespace}
    pod["spec"].setdefault("nodeSelector", {})[LABEL] = namespace
    return pod


def test_the_scheduler_places_the_pods_of_which_the_rule_says_nothing(
    plane: ControlPlane, namespace: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    for case in COMPARED:
        plane.create(path, _pod(case, namespace))
    expected = {c.file.stem: not c.check(c.manifest, c.alone).findings for c in COMPARED}
    assert set(expected.values()) == {True, False}

    def placed() -> dict[str, bool | None]:
        return {
            pod["metadata"]["name"]: next(
                (
                    condition["status"] == "True"
                    for condition in pod["status"].get("conditions", ())
                    if condition["type"] == "PodScheduled"
                ),
                None,
            )
            for pod in plane.request("GET", path).body["items"]
        }

    eventually(lambda: placed() == expected, what=f"the scheduler agrees: {expected}")

"""The answers of `gpuward why` about pods with persistent volumes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.testkit.why_command import CAN, CANNOT, NOT_KNOWN, Asked, node, pod

ZONE = "topology.kubernetes.io/zone"
NODES = (node("a", labels={ZONE: "1"}), node("b", labels={ZONE: "2"}))
MOUNT = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]


@pytest.fixture
def why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Asked:
    return Asked(tmp_path, capsys)


def claim(*, volume: str = "", **spec: Any) -> dict[str, Any]:
    bound = {"pv.kubernetes.io/bind-completed": "yes"} if volume else {}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "ml", "annotations": bound},
        "spec": {"volumeName": volume, "storageClassName": "fast", **spec},
    }


def volume(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "pv-1"},
        "spec": {"storageClassName": "fast", **spec},
    }


def storage_class(**fields: Any) -> dict[str, Any]:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "fast"},
        "provisioner": "csi.example.com",
        "volumeBindingMode": "WaitForFirstConsumer",
        **fields,
    }


def driver(**spec: Any) -> dict[str, Any]:
    metadata = {"name": "csi.example.com"}
    made = {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": metadata}
    return {**made, "spec": spec}


def in_zone(zone: str) -> dict[str, Any]:
    expression = {"key": ZONE, "operator": "In", "values": [zone]}
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}


def test_a_pod_runs_where_its_volume_is(why: Asked) -> None:
    bound = [*NODES, claim(volume="pv-1"), volume(nodeAffinity=in_zone("2"))]
    status, out = why(*bound, manifest=pod(volumes=MOUNT))
    assert (status, "1 node can take it: b" in out) == (CAN, True)
    status, out = why(*bound, manifest=pod(volumes=MOUNT, nodeSelector={ZONE: "1"}))
    assert status == CANNOT
    assert f"its volume pv-1 can only be used where {ZONE}=2" in out


def test_a_volume_that_is_not_known_makes_no_answer(why: Asked) -> None:
    for known in ((), (claim(volume="pv-1"),), (claim(volume="pv-1"), volume(cinder={}))):
        status, out = why(*NODES, *known, manifest=pod(volumes=MOUNT))
        assert status == NOT_KNOWN
        assert "Not known: where the volume" in out


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({**claim(), "status": {"phase": "Lost"}}, "the claim data has lost its volume"),
        (claim(volume="pv-1", storageClassName=""), ""),
        (claim(storageClassName=""), "the claim data has no volume yet, and does not wait"),
    ],
)
def test_a_claim_can_keep_a_pod_from_all_nodes(
    why: Asked, found: dict[str, Any], said: str
) -> None:
    status, out = why(*NODES, found, volume(), manifest=pod(volumes=MOUNT))
    assert status == (CANNOT if said else CAN)
    assert said in out


def test_a_claim_of_a_pod_that_waits_must_exist(why: Asked) -> None:
    other = claim()
    other["metadata"]["name"] = "other"
    status, out = why(*NODES, other, pod(volumes=MOUNT), name="p")
    assert status == CANNOT
    assert "the PersistentVolumeClaim data does not exist" in out


@pytest.mark.parametrize(
    ("others", "expected", "said"),
    [
        ([storage_class(), driver()], CAN, "2 nodes can take it"),
        ([storage_class(), driver(storageCapacity=True)], NOT_KNOWN, "whether there is space"),
        ([storage_class()], NOT_KNOWN, "where a volume for the claim data can be"),
        (
            [storage_class(provisioner="kubernetes.io/no-provisioner"), driver()],
            NOT_KNOWN,
            "whether a free volume of the class fast suits data",
        ),
        (
            [
                storage_class(provisioner="kubernetes.io/no-provisioner"),
                driver(),
                volume(claimRef={"name": "other"}),
            ],
            CANNOT,
            "no volume is free for its claim data, and none can be made there",
        ),
        (
            [
                storage_class(
                    allowedTopologies=[{"matchLabelExpressions": [{"key": ZONE, "values": ["2"]}]}]
                ),
                driver(),
                volume(claimRef={"name": "other"}),
            ],
            CAN,
            "1 node can take it: b",
        ),
    ],
)
def test_a_volume_is_made_where_its_class_allows(
    why: Asked, others: list[dict[str, Any]], expected: int, said: str
) -> None:
    status, out = why(*NODES, claim(), *others, manifest=pod(volumes=MOUNT))
    assert status == expected
    assert said in out


def test_a_claim_for_one_pod_names_the_pod_that_has_it(why: Asked) -> None:
    single = claim(volume="pv-1", accessModes=["ReadWriteOncePod"])
    user = pod("q", nodeName="a", status={"phase": "Running"}, volumes=MOUNT)
    status, out = why(*NODES, single, volume(), user, manifest=pod(volumes=MOUNT))
    assert status == CANNOT
    assert "only one pod at a time can have its claim data, and ml/q has it" in out


def test_a_claim_that_is_made_for_a_new_pod_is_read_from_its_template(why: Asked) -> None:
    template = {"spec": {"storageClassName": "fast"}}
    volumes = [{"name": "v", "ephemeral": {"volumeClaimTemplate": template}}]
    known = (*NODES, storage_class(), driver())
    assert why(*known, manifest=pod(volumes=volumes))[0] == CAN

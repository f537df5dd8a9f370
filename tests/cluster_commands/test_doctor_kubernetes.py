"""The answers of `gpuward doctor` about faults of the running version of Kubernetes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cluster.doctor.rows import State
from cluster.kubernetes_faults import FAULTS
from rules.profile.platforms.records import parse_version
from tests.testkit.cluster_commands.doctor_rows import NO_METRICS, rows
from tests.testkit.cluster_commands.gpu_objects import Object, node, pod

GPU = "nvidia.com/gpu"


def found(version: str, *objects: Object) -> dict[str, list[Any]]:
    def request(path: str) -> str:
        return json.dumps({"gitVersion": version}) if path == "/version" else NO_METRICS

    return rows(*objects, request=request)


def claim(name: str, **annotations: str) -> Object:
    metadata = {"name": name, "namespace": "ml", "annotations": annotations}
    return {"kind": "ResourceClaim", "metadata": metadata, "spec": {}, "status": {}}


def rule(effect: str = "NoSchedule", **spec: Any) -> Object:
    taint = {"key": "sick", "effect": effect}
    return {
        "kind": "DeviceTaintRule",
        "metadata": {"name": "all"},
        "spec": {"taint": taint, **spec},
    }


def shared_slice(**device: Any) -> Object:
    spec = {"driver": "d", "devices": [{"name": "p", **device}]}
    return {"kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": spec}


def with_device(name: str) -> Object:
    made = pod(name, {GPU: 1}, on="n1")
    given = [{"name": GPU, "resources": [{"resourceID": "GPU-x", "health": "Healthy"}]}]
    made["status"]["containerStatuses"] = [{"name": "main", "allocatedResourcesStatus": given}]
    return made


def distinct(count: int) -> Object:
    """A claim for devices that differ in an attribute."""
    made = claim("c")
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
    devices = {"requests": [{"name": "r", "exactly": exactly}]}
    devices["constraints"] = [{"distinctAttribute": "gpu.example.com/model"}]
    return {**made, "spec": {"devices": devices}}


BOTH = {"allowMultipleAllocations": True, "consumesCounters": [{"counterSet": "c"}]}
MADE = {"resource.kubernetes.io/extended-resource-claim": "true"}
SELECTED: dict[str, Any] = {"deviceSelector": {"driver": "d"}}


@pytest.mark.parametrize(
    ("objects", "number", "affected", "fixed"),
    [
        ([claim("c")], 136269, ["v1.34.3", "v1.35.0", "1.33.7"], ["v1.34.4", "v1.35.1", "v1.36.0"]),
        ([shared_slice(**BOTH)], 139040, ["v1.36.1", "v1.35.10"], ["v1.36.2", "v1.37.0"]),
        ([distinct(3)], 140600, ["v1.35.10", "v1.36.6"], ["v1.37.0"]),
        ([distinct(1)], 135022, ["v1.34.13"], ["v1.35.2"]),
        ([rule()], 141648, ["v1.36.6", "v1.37.0"], ["v1.37.1", "v1.38.0"]),
        (
            [rule("NoExecute", **SELECTED), claim("c", **MADE)],
            142289,
            ["v1.37.0", "v1.37.1"],
            ["v1.37.2"],
        ),
        ([with_device("a"), with_device("b")], 137534, ["v1.34.4", "v1.37.2"], ["v1.38.0"]),
    ],
)
def test_a_fault_is_named_where_the_version_has_it(
    objects: list[Object], number: int, affected: list[str], fixed: list[str]
) -> None:
    for version in affected:
        (row,) = (r for r in found(version, *objects)["Kubernetes"] if str(number) in r.message)
        assert row.state is State.WRONG
        assert f"pull/{number}" in row.remedy
    for version in fixed:
        (row,) = found(version, *objects)["Kubernetes"]
        assert row.state is State.OK


@pytest.mark.parametrize(
    "objects",
    [
        [node("n", {GPU: 8}), pod("p", {GPU: 1}, on="n")],
        [rule(**SELECTED)],
        [rule(deviceSelector={})],
        [shared_slice(allowMultipleAllocations=True), shared_slice(consumesCounters=[{}])],
        [with_device("a")],
    ],
)
def test_a_cluster_that_does_not_use_it_has_no_row(objects: list[Object]) -> None:
    assert "Kubernetes" not in found("v1.34.0", *objects)


def test_claims_for_extended_resources_matter_only_with_a_taint_that_ends_pods() -> None:
    for objects in ([claim("c", **MADE)], [rule(**SELECTED), claim("c", **MADE)]):
        (row,) = found("v1.37.0", *objects)["Kubernetes"]
        assert row.state is State.OK
    tainted = shared_slice(taints=[{"key": "sick", "effect": "NoExecute"}])
    (row,) = found("v1.37.0", tainted, claim("c", **MADE), claim("other"))["Kubernetes"]
    assert (row.state, row.names) == (State.WRONG, ("resourceclaim/c in ml",))


def test_the_row_has_all_that_it_is_about_and_where_to_upgrade_to() -> None:
    (row,) = found("v1.34.1-eks-1a2b3c4", *(claim(f"c{n}") for n in range(5)))["Kubernetes"]
    assert row.subject.endswith(" and 2 more")
    assert row.names == tuple(f"resourceclaim/c{n} in ml" for n in range(5))
    assert "(1.34.1, kubernetes#136269)" in row.message
    assert row.remedy.startswith("upgrade Kubernetes to 1.34.4 or newer; until then ")


@pytest.mark.parametrize("version", ["", "v1", "unversioned"])
def test_without_a_version_it_is_not_known(version: str) -> None:
    (row,) = found(version, claim("c"))["Kubernetes"]
    assert row.state is State.NOT_KNOWN


def test_in_files_it_is_not_known() -> None:
    (row,) = rows(claim("c"), request=None)["Kubernetes"]
    assert (row.subject, row.state) == ("kubernetes#136269", State.NOT_KNOWN)


def test_the_table_is_in_order() -> None:
    for fault in FAULTS:
        versions = [parse_version(text) for text in (fault.first_version, *fault.fixed_versions)]
        assert all(versions)
        numbers = [version.numbers for version in versions if version]
        assert numbers == sorted(numbers)
        oldest = parse_version("1.0.0")
        assert oldest is not None
        assert fault.affects(oldest) is False  # nothing is known of it

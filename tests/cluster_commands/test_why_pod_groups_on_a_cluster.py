"""`gpuward why` says of pods in PodGroups what kube-scheduler does with them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any

import pytest

from cluster.api.connection import Connection
from cluster.snapshot.snapshot import Snapshot
from cluster.source.api_server import ApiServerSource
from cluster.source.files import FileSource
from cluster.source.objects import CLAIMS, NODES, POD_GROUPS, PODS, Object, name_of
from cluster.why.explainer import Explainer
from cluster.why.explanation import Answer, Explanation
from gpuward.__main__ import main
from policies.loading import default_policy
from tests.testkit.control_plane.build import Programs
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.control_plane.processes import eventually

pytestmark = pytest.mark.control_plane

PROFILE = default_policy().profile
GPU = "nvidia.com/gpu"
SINCE = 37
"""The first minor version with PodGroups of this form."""
GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
PODS_PATH = "/api/v1/namespaces/default/pods"
SCENARIOS = 24


@pytest.fixture(scope="module")
def grouping(control_plane_programs: Programs) -> Iterator[ControlPlane]:
    if control_plane_programs.minor_version < SINCE:
        pytest.skip("this release has no PodGroups of this form")
    gates = ("GenericWorkload", "DRAWorkloadResourceClaims")
    flags = ("--runtime-config=scheduling.k8s.io/v1beta1=true",)
    with ControlPlane(control_plane_programs, feature_gates=gates, api_server_flags=flags) as plane:
        yield plane


def member(group: str, name: str, gpus: int, where: str, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {
            "schedulingGroup": {"podGroupName": group},
            "nodeSelector": {"gpuward.test/scenario": where},
            "containers": [
                {"name": "main", "image": "i", "resources": {"limits": {GPU: str(gpus)}}}
            ],
            **spec,
        },
    }


def gang(name: str, least: int, **spec: Any) -> dict[str, Any]:
    policy = {"gang": {"minCount": least}} if least else {"basic": {}}
    return {"metadata": {"name": name}, "spec": {"schedulingPolicy": policy, **spec}}


def explainer_of(plane: ControlPlane) -> Explainer:
    connection = Connection.like_kubectl(str(plane.kubeconfig))
    return Explainer(Snapshot(ApiServerSource(connection), PROFILE))


def explained(plane: ControlPlane) -> dict[str, Explanation]:
    return {found.name: found for found in explainer_of(plane).explain_pending()}


def has_node(plane: ControlPlane, name: str) -> bool:
    return "nodeName" in plane.request("GET", f"{PODS_PATH}/{name}").body["spec"]


def is_refused(plane: ControlPlane, group: str) -> bool:
    """Return whether kube-scheduler has tried a group, and has not found room for it."""
    status = plane.request("GET", f"{GROUPS}/{group}").body.get("status", {})
    found = (c["status"] for c in status.get("conditions", []) if c["reason"] == "Unschedulable")
    return "False" in found


def test_random_groups(grouping: ControlPlane, tmp_path: Path) -> None:
    """Pods wait for their groups, so that `why` can be asked before kube-scheduler acts."""
    plane, random = grouping, Random(54)  # noqa: S311  # not a secret
    groups = {}
    for number in range(SCENARIOS):
        where = f"s{number}"
        for node in range(random.randint(1, 3)):
            labels = {"gpuward.test/scenario": where}
            plane.gpu_node(f"{where}-{node}", gpus=random.randint(1, 6), labels=labels, taint=False)
        count, gpus = random.randint(1, 4), random.randint(1, 3)
        groups[where] = gang(where, random.randint(0, count))
        for pod in range(count):
            plane.create(PODS_PATH, member(where, f"{where}-{pod}", gpus, where))
    verdicts = {found.verdict for found in explained(plane).values()}
    assert verdicts == {
        f"kube-scheduler waits for its PodGroup {name}, which does not exist" for name in groups
    }
    expected = answers_with(plane, [*groups.values()], tmp_path)
    for group in groups.values():
        plane.create(GROUPS, group)
    assert {*expected.values()} == {Answer.CAN, Answer.CANNOT}
    for name, answer in expected.items():
        least = groups[name]["spec"]["schedulingPolicy"].get("gang", {}).get("minCount", 1)
        if answer is Answer.CAN:
            eventually(partial(has_bound, plane, name, least), what=name)
        else:
            eventually(partial(is_refused, plane, name), what=name)
            assert not has_bound(plane, name, 1)
    assert {found.answer for found in explained(plane).values()} == {Answer.CANNOT}


def has_bound(plane: ControlPlane, group: str, count: int) -> bool:
    """Return whether so many pods of a group have a node."""
    specs = (pod["spec"] for pod in plane.request("GET", PODS_PATH).body["items"])
    own = (spec for spec in specs if spec["schedulingGroup"]["podGroupName"] == group)
    return sum("nodeName" in spec for spec in own) >= count


def answers_with(
    plane: ControlPlane, groups: list[dict[str, Any]], folder: Path
) -> dict[str, Answer]:
    """Return the answer about the first pod of each group, if the groups existed."""
    source = ApiServerSource(Connection.like_kubectl(str(plane.kubeconfig)))
    objects: list[Object] = [raw for kind in (NODES, PODS) for raw in source.list(kind)]
    api = f"{POD_GROUPS.group}/{POD_GROUPS.versions[0]}"
    for group in groups:
        metadata = {**group["metadata"], "namespace": "default"}
        objects.append({**group, "apiVersion": api, "kind": "PodGroup", "metadata": metadata})
    file = folder / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    explainer = Explainer(Snapshot(FileSource([str(file)], BytesIO()), PROFILE))
    found = {one.name: one.answer for one in explainer.explain_pending()}
    return {name_of(group): found[f"{name_of(group)}-0"] for group in groups}


def test_too_few_pods_and_pods_that_are_not_alike(grouping: ControlPlane) -> None:
    where = "few"
    labels = {"gpuward.test/scenario": where}
    grouping.gpu_node(where, gpus=8, labels=labels, taint=False)
    grouping.create(GROUPS, gang("few", 3))
    for number in range(2):
        grouping.create(PODS_PATH, member("few", f"few-{number}", 1, where))
    (verdict,) = {one.verdict for name, one in explained(grouping).items() if name[:4] == "few-"}
    assert verdict == "its PodGroup few starts with at least 3 pods, and 2 exist"
    grouping.create(PODS_PATH, member("few", "few-2", 7, where))
    eventually(partial(is_refused, grouping, "few"), what="there is room for two")
    answers = {one.answer for name, one in explained(grouping).items() if name[:4] == "few-"}
    assert answers == {Answer.NOT_KNOWN}


def test_a_claim_of_a_group(grouping: ControlPlane, capsys: pytest.CaptureFixture[str]) -> None:
    where = "claims"
    labels = {"gpuward.test/scenario": where}
    grouping.gpu_node(where, gpus=0, labels=labels, taint=False)
    device_class = {"metadata": {"name": "gpu.nvidia.com"}, "spec": {}}
    grouping.create("/apis/resource.k8s.io/v1/deviceclasses", device_class)
    pool = {"name": where, "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": "gpu-0"}]
    content = {"driver": "gpu.nvidia.com", "nodeName": where, "pool": pool, "devices": devices}
    grouping.create(
        "/apis/resource.k8s.io/v1/resourceslices", {"metadata": {"name": where}, "spec": content}
    )
    request = {"name": "card", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    template = {"spec": {"devices": {"requests": [request]}}}
    path = "/apis/resource.k8s.io/v1/namespaces/default"
    made = {"metadata": {"name": "card"}, "spec": template}
    grouping.create(f"{path}/resourceclaimtemplates", made)
    claims = [{"name": "card", "resourceClaimTemplateName": "card"}]
    grouping.create(GROUPS, gang("claims", 2, resourceClaims=claims))
    container = {"name": "main", "image": "i", "resources": {"claims": [{"name": "card"}]}}
    for number in range(2):
        pod = member(
            "claims", f"claims-{number}", 0, where, containers=[container], resourceClaims=claims
        )
        grouping.create(PODS_PATH, pod)
    for number in range(2):
        eventually(partial(has_node, grouping, f"claims-{number}"), what=f"claims-{number}")
    source = ApiServerSource(Connection.like_kubectl(str(grouping.kubeconfig)))
    (claim,) = source.list(CLAIMS, "default")
    assert [one["resource"] for one in claim["status"]["reservedFor"]] == ["podgroups"]
    assert main(["gpus", "--detail", "--kubeconfig", str(grouping.kubeconfig)]) == 0
    assert f"resourceclaim/{name_of(claim)} (2 pods)" in capsys.readouterr().out

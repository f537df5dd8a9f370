"""What `gpuward why` and `gpuward gpus` say of pods in PodGroups of Kubernetes.

test_why_pod_groups_on_a_cluster.py asks kube-scheduler the same.
"""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from cluster.accounting.account import Account
from cluster.snapshot.snapshot import Snapshot
from cluster.source.files import FileSource
from cluster.why import explainer
from cluster.why.explainer import Explainer
from cluster.why.explanation import Answer, Explanation, to_document
from cluster.why.run import lines
from policies.loading import default_policy

PROFILE = default_policy().profile
GPU = "nvidia.com/gpu"


def node(name: str, gpus: int) -> dict[str, Any]:
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", GPU: str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def pod(name: str, gpus: int = 1, group: str = "train", **spec: Any) -> dict[str, Any]:
    limits = {GPU: str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ml", "uid": name},
        "spec": {
            "schedulerName": "default-scheduler",
            "schedulingGroup": {"podGroupName": group},
            "containers": [{"name": "main", "resources": {"limits": limits, "requests": limits}}],
            **spec,
        },
    }


def gang(least: int, name: str = "train", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "ml"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": least}}, **spec},
    }


def explain(folder: Path, name: str, *objects: dict[str, Any]) -> Explanation:
    file = folder / "cluster.json"
    file.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": objects}))
    source = FileSource([str(file)], BytesIO())
    made = Explainer(Snapshot(source, PROFILE), name=name)
    (found,) = made.named
    return made.explain(found)


OTHER_GROUP = gang(2, "other")


def test_a_group_that_does_not_exist(tmp_path: Path) -> None:
    found = explain(tmp_path, "a", node("n", 8), pod("a"), OTHER_GROUP)
    assert found.answer is Answer.CANNOT
    assert found.verdict == "kube-scheduler waits for its PodGroup train, which does not exist"


def test_files_without_any_group_need_not_have_all(tmp_path: Path) -> None:
    found = explain(tmp_path, "a", node("n", 8), pod("a"))
    assert found.answer is Answer.NOT_KNOWN
    assert found.unchecked == ("whether its PodGroup train keeps it waiting",)


def test_too_few_pods(tmp_path: Path) -> None:
    ended = {**pod("c"), "status": {"phase": "Succeeded"}}
    found = explain(tmp_path, "a", node("n", 8), pod("a"), pod("b", group="other"), ended, gang(2))
    assert found.answer is Answer.CANNOT
    assert found.verdict == "its PodGroup train starts with at least 2 pods, and 1 exists"


def test_room_for_some_pods_of_the_group(tmp_path: Path) -> None:
    found = explain(tmp_path, "b", node("n", 8), pod("a", 4), pod("b", 4), pod("c", 4), gang(3))
    assert (found.answer, found.placed, found.wanted) == (Answer.CANNOT, 2, 3)
    assert found.verdict == (
        "its PodGroup train needs room for 3 pods at the same time, and there is some for 2; about "
        "the next: the only node cannot take it: the pod asks for 4 nvidia.com/gpu, and at most 0 "
        "of 8 are free on one node"
    )
    assert not any("of its 3 pods" in line for line in lines(found))
    assert to_document(found)["group"] == "train"


@pytest.mark.parametrize("least", [0, 1, 2])
def test_room_for_as_many_as_the_group_needs(tmp_path: Path, least: int) -> None:
    found = explain(tmp_path, "c", node("n", 8), pod("a", 4), pod("b", 4), pod("c", 4), gang(least))
    assert found.answer is Answer.CAN


def test_pods_that_have_a_node_count(tmp_path: Path) -> None:
    bound = pod("a", 4, nodeName="n")
    found = explain(tmp_path, "b", node("n", 8), bound, pod("b", 4), pod("c", 4), gang(2))
    assert found.answer is Answer.CAN


def test_pods_that_are_not_alike(tmp_path: Path) -> None:
    found = explain(tmp_path, "b", node("n", 8), pod("a", 8), pod("b", 1), gang(2))
    assert found.answer is Answer.NOT_KNOWN
    assert found.unchecked == (
        "whether 2 pods of its PodGroup train, which are not alike, find room at the same time",
    )


def test_the_pods_of_a_group_are_compared_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys: list[str] = []
    real_key = explainer._key  # noqa: SLF001  # its calls are counted

    def counted_key(*arguments: Any) -> str:
        keys.append(real_key(*arguments))
        return keys[-1]

    monkeypatch.setattr(explainer, "_key", counted_key)
    pods = [pod(f"p{number}", number + 1) for number in range(50)]
    file = tmp_path / "cluster.json"
    items = [node("n", 500), *pods, gang(2)]
    file.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": items}))
    found = Explainer(Snapshot(FileSource([str(file)], BytesIO()), PROFILE))
    assert {each.answer for each in found.explain_pending()} == {Answer.NOT_KNOWN}
    assert len(keys) <= 3 * len(pods)


@pytest.mark.parametrize(
    ("spec", "doubt"),
    [
        (
            {"parentCompositePodGroupName": "all"},
            "what the CompositePodGroup all of its PodGroup train needs",
        ),
        (
            {"schedulingConstraints": {"topology": [{"key": "rack"}]}},
            "where the pods of its PodGroup train may run together",
        ),
    ],
)
def test_what_is_not_looked_at(tmp_path: Path, spec: dict[str, Any], doubt: str) -> None:
    found = explain(tmp_path, "a", node("n", 8), pod("a"), gang(1, **spec))
    assert (found.answer, found.unchecked) == (Answer.NOT_KNOWN, (doubt,))


def test_groups_of_other_schedulers_are_theirs(tmp_path: Path) -> None:
    other = pod("a", schedulerName="kai-scheduler")
    found = explain(tmp_path, "a", node("n", 8), other, OTHER_GROUP)
    assert not found.hurdles
    assert found.other_scheduler == "kai-scheduler"


CLAIM = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"name": "shared", "namespace": "ml"},
    "spec": {"devices": {"requests": [{"name": "r"}]}},
    "status": {
        "allocation": {
            "devices": {
                "results": [
                    {"driver": "gpu.nvidia.com", "pool": "n", "device": "gpu-0", "request": "r"}
                ]
            }
        },
        "reservedFor": [
            {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "train", "uid": "g"}
        ],
    },
}
SLICE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceSlice",
    "metadata": {"name": "n-gpus"},
    "spec": {
        "driver": "gpu.nvidia.com",
        "nodeName": "n",
        "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0"}],
    },
}


def member(name: str, owner: str = "", group: str = "train") -> dict[str, Any]:
    claims = [{"name": "g", "resourceClaimTemplateName": "t"}]
    made = pod(name, group=group, nodeName="n", resourceClaims=claims)
    made["spec"]["containers"] = [{"name": "main", "resources": {"claims": [{"name": "g"}]}}]
    made["status"] = {"resourceClaimStatuses": [{"name": "g", "resourceClaimName": "shared"}]}
    if owner:
        owned = {"apiVersion": "batch/v1", "kind": "Job", "name": owner, "controller": True}
        made["metadata"]["ownerReferences"] = [owned]
    return made


def test_a_claim_of_a_group_is_that_of_its_pods() -> None:
    account = Account([node("n", 0)], PROFILE)
    for name in ("a", "b"):
        account.add_pod(member(name, owner="train"))
    (consumer,) = account.usage([SLICE], [CLAIM]).consumers
    assert (consumer.owner, consumer.pods, consumer.is_idle) == ("job/train", ("a", "b"), False)


def test_a_claim_of_a_group_is_not_that_of_pods_of_another_group() -> None:
    account = Account([node("n", 0)], PROFILE)
    account.add_pod(member("a"))
    account.add_pod(member("b", group="other"))
    (consumer,) = account.usage([SLICE], [CLAIM]).consumers
    assert (consumer.name, consumer.pods) == ("a", ())


def test_a_claim_of_a_group_without_pods_is_idle() -> None:
    account = Account([node("n", 0)], PROFILE)
    account.add_pod(member("a") | {"status": {"phase": "Succeeded"}})
    (consumer,) = account.usage([SLICE], [CLAIM]).consumers
    assert consumer.is_idle

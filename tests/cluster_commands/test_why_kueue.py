"""The answers of `gpuward why` about jobs and pods that Kueue holds back."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from rules.engine.fixing import check
from rules.workloads.referred_objects import new_builder
from tests.testkit.why_command import CAN, CANNOT, GPU, NOT_KNOWN, WRONG_USAGE, Asked, node, pod

NODES = (node("a-1", labels={"pool": "a100"}), node("l-1", labels={"pool": "l4"}))
UNUSED = (
    "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in "
    "flavor a100, 2 more needed"
)


@pytest.fixture
def why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Asked:
    return Asked(tmp_path, capsys)


def owner(kind: str = "Job", name: str = "train", uid: str = "u1") -> dict[str, Any]:
    return {"apiVersion": "batch/v1", "kind": kind, "name": name, "uid": uid, "controller": True}


def condition(kind: str, status: str, message: str = "") -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": "Pending", "message": message}


def workload(
    *conditions: dict[str, Any],
    of: dict[str, Any] | None = None,
    gpus: int = 4,
    count: int = 1,
    spec: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
) -> dict[str, Any]:
    container = {"name": "main", "image": "i", "resources": {"limits": {GPU: str(gpus)}}}
    template = {"spec": {"containers": [container]}}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "job-train", "namespace": "ml", "ownerReferences": [of or owner()]},
        "spec": {
            "queueName": "research",
            "podSets": [{"name": "main", "count": count, "template": template}],
            **(spec or {}),
        },
        "status": {"conditions": [*conditions], **(status or {})},
    }


def flavor(name: str = "a100", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ResourceFlavor",
        "metadata": {"name": name},
        "spec": {"nodeLabels": {"pool": name}, **spec},
    }


def cluster_queue(gpus: int = 8, **spec: Any) -> dict[str, Any]:
    quota = {"name": "a100", "resources": [{"name": GPU, "nominalQuota": gpus}]}
    groups = [{"coveredResources": [GPU], "flavors": [quota]}]
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": "gpus"},
        "spec": {"resourceGroups": groups, **spec},
    }


QUEUE = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "LocalQueue",
    "metadata": {"name": "research", "namespace": "ml"},
    "spec": {"clusterQueue": "gpus"},
}


QUEUED = {"kueue.x-k8s.io/queue-name": "research"}


def job(
    *,
    suspend: bool = True,
    labels: dict[str, str] | None = None,
    metadata: dict[str, Any] | None = None,
    pods: int = 1,
) -> dict[str, Any]:
    container = {"name": "main", "image": "i", "resources": {"limits": {GPU: "4"}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "train",
            "namespace": "ml",
            "uid": "u1",
            "labels": labels or {},
            **(metadata or {}),
        },
        "spec": {
            "suspend": suspend,
            "parallelism": pods,
            "template": {"spec": {"containers": [container], "restartPolicy": "Never"}},
        },
    }


def gated(**metadata: Any) -> dict[str, Any]:
    gates = [{"name": "kueue.x-k8s.io/admission"}]
    own = {"name": "p", "namespace": "ml", "uid": "p", **metadata}
    return pod("p", {GPU: 4}, metadata=own, schedulingGates=gates)


@pytest.mark.parametrize("name", ["job/train", "train", "jobs.batch/train", "workload/job-train"])
def test_a_suspended_job_says_what_kueue_says(why: Asked, name: str) -> None:
    waiting = workload(condition("QuotaReserved", "False", UNUSED))
    status, out = why(*NODES, job(), waiting, flavor(), QUEUE, name=name)
    assert status == CANNOT
    assert f"Kueue has not admitted its Workload job-train: {UNUSED}" in out
    assert "(the flavor a100 is a-1)" in out
    assert (
        "wait until 2 nvidia.com/gpu of the flavor a100 is given back, or raise the quota of the "
        "ClusterQueue gpus" in out
    )


@pytest.mark.parametrize(
    ("message", "remedy"),
    [
        (
            "untolerated taint {gpu true NoSchedule <nil>} in flavor a100",
            "to the template of the job, or to the flavor a100",
        ),
        (
            "insufficient quota for nvidia.com/gpu in flavor a100, previously considered podsets",
            "ask for less nvidia.com/gpu, or raise the quota of the flavor a100 in its queue",
        ),
        (
            "flavor a100 doesn't match node affinity",
            "select nodes of the flavor a100 in the template of the job, or none",
        ),
        ("LocalQueue research doesn't exist", "create the LocalQueue research, or correct"),
        ("ClusterQueue gpus is inactive", "kubectl describe clusterqueue gpus"),
        ("", "kubectl describe workload job-train -n ml"),
    ],
)
def test_what_kueue_says_has_a_remedy(why: Asked, message: str, remedy: str) -> None:
    waiting = workload(condition("QuotaReserved", "False", message))
    status, out = why(*NODES, waiting, name="job/train")
    assert status == CANNOT
    assert remedy in out


def test_a_deactivated_workload_and_an_admission_check_are_named(why: Asked) -> None:
    evicted = condition("Evicted", "True", "exceeded the maximum number of re-queues")
    off = workload(evicted, spec={"active": False})
    status, out = why(*NODES, off, name="job/train")
    assert status == CANNOT
    assert "Kueue's Workload job-train is deactivated: exceeded the maximum number" in out
    checks = [{"name": "prov", "state": "Pending", "message": "no capacity yet"}]
    reserved = workload(condition("QuotaReserved", "True"), status={"admissionChecks": checks})
    status, out = why(*NODES, reserved, name="job/train")
    assert status == CANNOT
    assert "the admission check prov is Pending: no capacity yet" in out


def test_the_pods_of_an_assigned_flavor_are_asked_about_on_its_nodes(why: Asked) -> None:
    assigned = {"podSetAssignments": [{"name": "main", "flavors": {GPU: "a100"}}]}
    reserved = workload(
        condition("QuotaReserved", "True"), status={"admission": assigned}, gpus=8, count=2
    )
    status, out = why(*NODES, reserved, flavor(), name="job/train")
    assert status == CANNOT
    assert "1 of its 2 pods have room" in out
    assert "the pod selects pool=a100" in out


def test_a_pod_behind_a_gate_of_kueue_says_why(why: Asked) -> None:
    waiting = workload(condition("QuotaReserved", "False", UNUSED), of=owner("Pod", "p", uid="p"))
    status, out = why(*NODES, waiting, gated(), name="p")
    assert status == CANNOT
    assert "2 more needed" in out
    assert "scheduling gates" not in out
    status, out = why(*NODES, waiting, gated())
    assert "1 pod, cannot: ml/p" in out
    assert "2 more needed" in out


def test_a_workload_that_is_not_there_is_no_error(why: Asked) -> None:
    status, out = why(*NODES, gated(), name="p")
    assert status == CANNOT
    assert "it waits for the scheduling gates kueue.x-k8s.io/admission" in out
    assert "the Workload that says why is not known here" in out
    other = workload(of=owner("Pod", "q", uid="q"))
    status, out = why(*NODES, other, gated(), name="p")
    assert "Kueue has made no Workload of it" in out
    done = workload(condition("Admitted", "True"), of=owner("Pod", "p", uid="p"))
    status, out = why(*NODES, done, gated(), name="p")
    assert "Kueue has admitted its Workload job-train" in out


def test_a_suspended_job_without_a_workload_is_named(why: Asked) -> None:
    status, out = why(*NODES, job(), name="job/train")
    assert status == CANNOT
    assert "the Job train is suspended: it has no pods" in out
    queued = job(labels={"kueue.x-k8s.io/queue-name": "research"})
    status, out = why(*NODES, queued, name="job/train")
    assert "it waits in the queue research of Kueue, whose Workload is not known here" in out
    assert why(*NODES, job(suspend=False), name="job/train")[0] == CAN


def test_the_pods_of_a_job_are_asked_about_once_there_are_some(why: Asked) -> None:
    own = {"namespace": "ml", "ownerReferences": [owner()]}
    waiting = [pod(n, {GPU: 9}, metadata={**own, "name": n, "uid": n}) for n in ("p1", "p2")]
    running = pod("p3", metadata={**own, "name": "p3", "uid": "p3"}, nodeName="a-1")
    done = workload(condition("Admitted", "True"))
    status, out = why(*NODES, job(suspend=False), done, *waiting, running, name="job/train")
    assert status == CANNOT
    assert "2 pods, cannot: ml/p1, ml/p2" in out
    status, out = why(*NODES, job(suspend=False), done, running, name="job/train")
    assert (status, "it has the node a-1" in out.lower()) == (CAN, True)


def test_the_same_name_in_two_namespaces_is_asked_about_by_one(why: Asked) -> None:
    other = workload()
    other["metadata"] = {**other["metadata"], "namespace": "web"}
    assert why(*NODES, workload(), other, name="job/train")[0] == WRONG_USAGE
    assert why(*NODES, name="job/train")[0] == WRONG_USAGE


def test_a_new_job_with_a_queue_must_be_admitted(why: Asked) -> None:
    queued = job(labels={"kueue.x-k8s.io/queue-name": "research"})
    status, out = why(*NODES, manifest=queued)
    assert status == NOT_KNOWN
    assert "whether Kueue admits it from the queue research" in out
    assert why(*NODES, manifest=job())[0] == CAN


def test_a_uid_of_another_namespace_does_not_count(why: Asked) -> None:
    """Any user may write an owner with the UID of a pod elsewhere, or one without a UID."""
    own = workload(condition("QuotaReserved", "False", UNUSED), of=owner("Pod", "p", "p"))
    evicted = condition("Evicted", "True", "run this")
    foreign = workload(evicted, of=owner("Pod", "p", "p"), spec={"active": False})
    foreign["metadata"] |= {"name": "evil", "namespace": "zz"}
    without = workload(evicted, of=owner("Pod", "p", ""), spec={"active": False})
    without["metadata"]["name"] = "without-uid"
    status, out = why(*NODES, own, foreign, without, gated(), flavor(), QUEUE, name="p")
    assert status == CANNOT
    assert "job-train" in out
    assert "evil" not in out
    assert "without-uid" not in out


def test_pods_that_kueue_has_admitted_exist_and_are_not_looked_for_again(why: Asked) -> None:
    admitted = workload(condition("Admitted", "True"), of=owner("JobSet"), count=2)
    full = pod("worker", {GPU: 8}, nodeName="a-1", status={"phase": "Running"})
    status, out = why(NODES[0], admitted, full, name="jobset/train")
    assert status == NOT_KNOWN
    assert "Kueue has admitted it: its pods exist, or are being made" in out
    assert "Not known: where its pods are: ask for one by its name, or for all that wait" in out
    assert "cannot" not in out
    assert "nodes" not in out


def test_no_quota_refuses_what_kueue_has_admitted(why: Asked) -> None:
    """Its own pods may be what fills the quota."""
    hard = {f"requests.{GPU}": "8"}
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "team", "namespace": "ml"},
        "spec": {"hard": hard},
        "status": {"hard": hard, "used": hard},
    }
    waiting = workload(condition("QuotaReserved", "False", UNUSED))
    status, out = why(*NODES, quota, waiting, name="workload/job-train")
    assert (status, "team" in out) == (CANNOT, True)
    admitted = workload(condition("Admitted", "True"))
    status, out = why(*NODES, quota, admitted, name="workload/job-train")
    assert status == NOT_KNOWN
    assert "Kueue has admitted it: its pods exist, or are being made" in out
    assert "team" not in out


def test_what_has_ended_is_not_called_possible(why: Asked) -> None:
    done = workload(condition("Finished", "True", "Job finished"), of=owner("JobSet"))
    status, out = why(*NODES, done, name="jobset/train")
    assert (status, "has ended: Job finished" in out) == (CANNOT, True)
    complete = {**job(suspend=False), "status": {"conditions": [condition("Complete", "True")]}}
    status, out = why(*NODES, complete, name="job/train")
    assert (status, "the Job train has ended: Complete" in out.replace("The", "the")) == (
        CANNOT,
        True,
    )


@pytest.mark.parametrize("spec", [None, {"template": []}])
def test_a_job_without_a_template_is_none(why: Asked, spec: Any) -> None:
    status, _ = why(*NODES, {**job(), "spec": spec}, name="job/train")
    assert status == WRONG_USAGE


@pytest.mark.parametrize("suspend", [False, True])
@pytest.mark.parametrize(
    ("pods", "queue", "why_not"),
    [
        (1, cluster_queue(2), 'no flavor of the ClusterQueue "gpus" has more than 2'),
        (3, cluster_queue(), "its 3 pods ask for 12 nvidia.com/gpu together, and no flavor of the"),
        (1, cluster_queue(stopPolicy="Hold"), "the ClusterQueue gpus is stopped"),
        (1, cluster_queue(0), "has no quota of nvidia.com/gpu"),
    ],
)
def test_a_queue_that_never_admits_a_job_comes_before_its_nodes(
    why: Asked, pods: int, queue: dict[str, Any], why_not: str, *, suspend: bool
) -> None:
    queued = job(suspend=suspend, labels=QUEUED, pods=pods)
    status, out = why(*NODES, queued, queue, QUEUE, flavor(), name="job/train")
    assert status == CANNOT
    verdict = out.partition("nvidia.com/gpu ")[2]
    assert why_not in verdict[:200]
    assert "can take it" not in out
    assert "nodes are available" not in out
    assert why(*NODES, queue, QUEUE, flavor(), manifest=queued)[0] == CANNOT


def test_a_job_that_selects_nodes_of_no_flavor_is_never_admitted(why: Asked) -> None:
    queued = job(suspend=False, labels=QUEUED)
    queued["spec"]["template"]["spec"]["nodeSelector"] = {"pool": "l4"}
    status, out = why(*NODES, queued, cluster_queue(), QUEUE, flavor(), name="job/train")
    assert status == CANNOT
    assert 'The pod template selects "pool=l4", and the flavor "a100"' in out


@pytest.mark.parametrize(
    "queues",
    [
        (),
        (QUEUE,),
        (QUEUE, cluster_queue()),
        (QUEUE, cluster_queue(2, cohortName="all")),
        (QUEUE, {**cluster_queue(), "spec": "broken"}),
    ],
)
def test_a_job_in_a_queue_can_run_for_certain_only_when_kueue_says_so(
    why: Asked, queues: tuple[dict[str, Any], ...]
) -> None:
    status, out = why(*NODES, job(suspend=False, labels=QUEUED), *queues, name="job/train")
    assert status == NOT_KNOWN
    assert "Not known: whether Kueue admits it from the queue research" in out


def test_a_job_that_starts_with_fewer_pods_is_not_called_too_large(why: Asked) -> None:
    fewer = {"annotations": {"kueue.x-k8s.io/job-min-parallelism": "1"}}
    queued = job(labels=QUEUED, pods=3, suspend=False, metadata=fewer)
    status, _ = why(*NODES, queued, cluster_queue(), QUEUE, name="job/train")
    assert status == NOT_KNOWN


def test_a_job_of_a_job_set_says_what_kueue_says_of_the_job_set(why: Asked) -> None:
    waiting = workload(
        condition("QuotaReserved", "False", UNUSED), of=owner("JobSet", "all", "set")
    )
    child = job(metadata={"ownerReferences": [owner("JobSet", "all", "set")]})
    status, out = why(*NODES, waiting, child, flavor(), QUEUE, name="job/train")
    assert status == CANNOT
    assert "2 more needed" in out
    assert "kubectl patch job" not in out


def leader_worker_set(*, replicas: int, size: int, has_leader: bool = False) -> dict[str, Any]:
    group: dict[str, Any] = {"size": size, "workerTemplate": template(1)}
    if has_leader:
        group["leaderTemplate"] = template(0)
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "serve", "namespace": "ml", "labels": QUEUED},
        "spec": {"replicas": replicas, "leaderWorkerTemplate": group},
    }


def template(gpus: int) -> dict[str, Any]:
    limits = {GPU: str(gpus)} if gpus else {}
    container = {"name": "main", "image": "i", "resources": {"limits": limits}}
    return {"spec": {"containers": [container]}}


@pytest.mark.parametrize(
    ("size", "has_leader", "expected"),
    [(4, False, NOT_KNOWN), (5, False, CANNOT), (5, True, NOT_KNOWN), (6, True, CANNOT)],
)
def test_kueue_admits_each_group_of_a_leader_worker_set_by_itself(
    why: Asked, size: int, expected: int, *, has_leader: bool
) -> None:
    queued = leader_worker_set(replicas=3, size=size, has_leader=has_leader)
    status, out = why(*NODES, cluster_queue(4), QUEUE, flavor(), manifest=queued)
    assert status == expected
    assert ("5 pods ask for 5 nvidia.com/gpu together" in out) == (expected == CANNOT)


def ray_cluster(*groups: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "ray", "namespace": "ml", "labels": QUEUED},
        "spec": {"headGroupSpec": {"template": template(0)}, "workerGroupSpecs": groups, **spec},
    }


def ray_group(name: str = "a", **fields: Any) -> dict[str, Any]:
    return {"groupName": name, "template": template(1), **fields}


@pytest.mark.parametrize(
    ("group", "spec", "expected"),
    [
        ({"replicas": 8}, {}, CANNOT),
        ({"replicas": 4, "numOfHosts": 2}, {}, CANNOT),
        ({"replicas": 1, "minReplicas": 8}, {}, NOT_KNOWN),  # Kueue reads `replicas` alone
        ({"replicas": 8}, {"enableInTreeAutoscaling": True}, NOT_KNOWN),
    ],
)
def test_the_workers_of_ray_are_counted_as_kueue_counts_them(
    why: Asked, group: dict[str, Any], spec: dict[str, Any], expected: int
) -> None:
    queued = ray_cluster(ray_group(**group), **spec)
    status, _ = why(*NODES, cluster_queue(4), QUEUE, flavor(), manifest=queued)
    assert status == expected


def made_by(kind: str, group: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": f"{group}/v1",
        "kind": kind,
        "metadata": {"name": "train", "namespace": "ml", "labels": QUEUED},
        "spec": spec,
    }


@pytest.mark.parametrize(
    "labelled",
    [
        made_by("DaemonSet", "apps", template=template(4)),
        made_by("ReplicaSet", "apps", template=template(4)),
        made_by("Job", "batch.volcano.sh", tasks=[{"name": "main", "template": template(4)}]),
        made_by("CronJob", "batch", jobTemplate={"spec": {"template": template(4)}}),
    ],
)
def test_kueue_does_not_queue_every_kind_with_its_label(
    why: Asked, labelled: dict[str, Any]
) -> None:
    status, out = why(*NODES, cluster_queue(0), QUEUE, flavor(), manifest=labelled)
    assert status != CANNOT
    assert "queue" not in out.lower()


def test_kueue_queues_the_jobs_of_a_cron_job_by_the_label_of_their_template(why: Asked) -> None:
    made = {"metadata": {"labels": QUEUED}, "spec": {"template": template(4)}}
    labelled = made_by("CronJob", "batch", jobTemplate=made)
    del labelled["metadata"]["labels"]
    status, out = why(*NODES, cluster_queue(0), QUEUE, flavor(), manifest=labelled)
    assert (status, "has no quota of nvidia.com/gpu" in out) == (CANNOT, True)
    waiting = why(*NODES, cluster_queue(), QUEUE, flavor(), manifest=labelled)
    assert waiting[0] == NOT_KNOWN


def test_a_pod_is_told_of_its_own_template_alone(why: Asked) -> None:
    queued = ray_cluster(*(ray_group(f"g{n}", replicas=8) for n in range(20)))
    status, out = why(*NODES, cluster_queue(4), QUEUE, flavor(), manifest=queued)
    assert status == CANNOT
    head, *groups = out.split("ml/ray- ")[1:]
    assert "its 8 pods ask for 8" in head
    assert "admits all pods of the workload or none, and never these" in head
    for number, told in enumerate(groups):
        assert f"in spec.workerGroupSpecs.g{number}.template, its 8 pods ask for 8" in told
        assert told.count("no flavor of the ClusterQueue") == told.count(f".g{number}.template,")


def test_pods_of_one_object_are_judged_once(why: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    judged, built = Mock(wraps=check), Mock(wraps=new_builder)
    monkeypatch.setattr("cluster.why.queueing.queues.check", judged)
    monkeypatch.setattr("cluster.why.queueing.queues.new_builder", built)
    objects = [ray_cluster(ray_group("a"), ray_group("b")), job(labels=QUEUED)]
    manifest = {"apiVersion": "v1", "kind": "List", "items": objects}
    why(*NODES, cluster_queue(), QUEUE, flavor(), manifest=manifest)
    assert (judged.call_count, built.call_count) == (2, 1)

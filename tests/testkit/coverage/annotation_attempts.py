"""Ways to write, into a pod that exists, the annotations in which schedulers record GPUs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from tests.testkit.admission.registered_webhook import create
from tests.testkit.admission.reviews import container, gpus, pod
from tests.testkit.control_plane.client import Response
from tests.testkit.control_plane.plane import ControlPlane
from tests.testkit.end_to_end.steps import api_path

ALLOCATED = "hami.io/vgpu-devices-allocated"
OTHER_ACCOUNT = "system:serviceaccount:hami-system:hami-scheduler"
KAI_BINDER = "system:serviceaccount:kai-scheduler:binder"
KAI_CARD = "runai-gpu-group"
KUEUE = "system:serviceaccount:kueue-system:kueue-controller-manager"
KUEUE_MARKS: dict[str, Any] = {
    "labels": {"kueue.x-k8s.io/queue-name": "research", "kueue.x-k8s.io/managed": "true"},
    "finalizers": ["kueue.x-k8s.io/managed"],
}
STRATEGIC_MERGE = "application/strategic-merge-patch+json"


class Environment(Protocol):
    """A namespace in mode deny."""

    @property
    def plane(self) -> ControlPlane:
        """The control plane."""

    @property
    def namespace(self) -> str:
        """The name of the namespace."""


def annotate(
    plane: ControlPlane,
    namespace: str,
    value: str | None = "GPU-0",
    *,
    user: str = "",
    subresource: str = "",
) -> Response:
    """Create a pod if there is none, and write its annotation as `user`; None removes it."""
    create(plane, namespace, pod(container()))
    headers = {"Impersonate-User": user, "Impersonate-Group": "system:masters"} if user else {}
    path = api_path("Pod", namespace, "trainer", subresource)
    change = {"metadata": {"annotations": {ALLOCATED: value}}}
    return plane.request("PATCH", path, change, headers, STRATEGIC_MERGE)


def as_user(environment: Environment, user: str = "") -> Response:
    """Write the annotation as `user`, by default the administrator."""
    return annotate(environment.plane, environment.namespace, user=user)


def after_the_scheduler(environment: Environment, value: str | None) -> Response:
    """Write the annotation after a scheduler has written it."""
    assert as_user(environment, OTHER_ACCOUNT).status == 200
    return annotate(environment.plane, environment.namespace, value)


def change_metadata(environment: Environment, change: dict[str, Any], user: str = "") -> Response:
    """Change the metadata of the pod as `user`, by default the administrator."""
    headers = {"Impersonate-User": user, "Impersonate-Group": "system:masters"} if user else {}
    path = api_path("Pod", environment.namespace, "trainer")
    return environment.plane.request("PATCH", path, {"metadata": change}, headers, STRATEGIC_MERGE)


def after_the_binder(environment: Environment, change: dict[str, Any]) -> Response:
    """Change the metadata of a pod with a part of a card, which KAI's binder has labelled."""
    manifest = pod(container(), schedulerName="kai-scheduler")
    manifest["metadata"]["annotations"] = {"gpu-fraction": "0.9"}
    assert create(environment.plane, environment.namespace, manifest).status == 201
    label = {"labels": {KAI_CARD: "one"}}
    assert change_metadata(environment, label, KAI_BINDER).status == 200
    return change_metadata(environment, change)


def changed_by_a_user(
    environment: Environment, manifest: dict[str, Any], change: dict[str, Any]
) -> Response:
    """Create a pod and change its metadata."""
    assert create(environment.plane, environment.namespace, manifest).status == 201
    return change_metadata(environment, change)


def grouped_pod() -> dict[str, Any]:
    """A pod of KAI that is in a group."""
    manifest = pod(container(**gpus(limits=1)), schedulerName="kai-scheduler")
    manifest["metadata"]["annotations"] = {"pod-group-name": "pg-of-another-team"}
    return manifest


def leave_group(environment: Environment) -> Response:
    """Take a pod out of the group by which KAI counts it."""
    return changed_by_a_user(environment, grouped_pod(), {"annotations": {"pod-group-name": None}})


def change_quota(environment: Environment) -> Response:
    """Let another quota of koordinator pay for a pod."""
    label = "quota.scheduling.koordinator.sh/name"
    manifest = pod(container(**gpus(limits=1)), schedulerName="koord-scheduler")
    manifest["metadata"]["labels"] = {label: "vision"}
    return changed_by_a_user(environment, manifest, {"labels": {label: "speech"}})


def pose_as_reservation(environment: Environment) -> Response:
    """Give a pod that requests a GPU the label of KAI's own pods."""
    change = {"labels": {"app": "kai-resource-reservation"}}
    return changed_by_a_user(environment, pod(container(**gpus(limits=1))), change)


def raise_limit(environment: Environment) -> Response:
    """Raise the memory that TensorFusion's hypervisor grants a pod."""
    manifest = pod(container(), schedulerName="tensor-fusion-scheduler")
    limit = "tensor-fusion.ai/vram-limit"
    manifest["metadata"]["annotations"] = {"tensor-fusion.ai/vram-request": "8Gi", limit: "8Gi"}
    return changed_by_a_user(environment, manifest, {"annotations": {limit: "80Gi"}})


def change_application(environment: Environment) -> Response:
    """Let another application of YuniKorn pay for a pod."""
    manifest = pod(container(**gpus(limits=1)), schedulerName="yunikorn")
    manifest["metadata"]["labels"] = {"applicationId": "vision"}
    return changed_by_a_user(environment, manifest, {"labels": {"applicationId": "speech"}})


def queued_pod(*gates: str) -> dict[str, Any]:
    """A pod as Kueue has marked it; with its gate it still waits."""
    manifest = pod(container(**gpus(limits=1)), schedulingGates=[{"name": gate} for gate in gates])
    manifest["metadata"] |= KUEUE_MARKS
    return manifest


def leave_queue(
    environment: Environment, change: dict[str, Any], user: str = "", *gates: str
) -> Response:
    """Change a pod of Kueue as `user`; Kueue releases it afterwards."""
    plane, namespace = environment.plane, environment.namespace
    assert create(plane, namespace, queued_pod(*gates)).status == 201
    path = api_path("Pod", namespace, "trainer")
    headers = {"Impersonate-User": user, "Impersonate-Group": "system:masters"} if user else {}
    merge = "application/merge-patch+json"
    answer = plane.request("PATCH", path, change, headers, merge)
    as_kueue = {"Impersonate-User": KUEUE, "Impersonate-Group": "system:masters"}
    freed = plane.request("PATCH", path, {"metadata": {"finalizers": None}}, as_kueue, merge)
    assert freed.status == 200, freed.body
    return answer


NO_GATES = {"spec": {"schedulingGates": None}}
ADMISSION_GATE = "kueue.x-k8s.io/admission"


def job(environment: Environment) -> dict[str, Any]:
    """A reference to a Job as a controller. The Job exists, and Kubernetes leaves it to others."""
    template = {"spec": {**pod(container())["spec"], "restartPolicy": "Never"}}
    spec = {"suspend": True, "managedBy": "example.com/another", "template": template}
    manifest = {"metadata": {"name": "j"}, "spec": spec}
    path = f"/apis/batch/v1/namespaces/{environment.namespace}/jobs"
    uid = environment.plane.create(path, manifest)["metadata"]["uid"]
    return {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": uid, "controller": True}


def leave_job(environment: Environment) -> Response:
    """Take a pod of a Job in a queue away from its Job."""
    manifest = pod(container(**gpus(limits=1)))
    manifest["metadata"]["labels"] = {"kueue.x-k8s.io/podset": "main"}
    assert create(environment.plane, environment.namespace, manifest).status == 201
    owner = job(environment)
    job_controller = "system:serviceaccount:kube-system:job-controller"
    adopted = change_metadata(environment, {"ownerReferences": [owner]}, job_controller)
    assert adopted.status == 200, adopted.body
    removed = {"$patch": "delete", "uid": owner["uid"]}
    return change_metadata(environment, {"ownerReferences": [removed]})


def adopt(environment: Environment, user: str = "") -> Response:
    """Add a Job to the owners of a pod that requests a GPU."""
    manifest = pod(container(**gpus(limits=1)))
    assert create(environment.plane, environment.namespace, manifest).status == 201
    return change_metadata(environment, {"ownerReferences": [job(environment)]}, user)


def while_deleted(environment: Environment) -> Response:
    """Write the annotation into a pod that is being deleted; the pod can be released later."""
    plane, namespace = environment.plane, environment.namespace
    manifest = pod(container())
    manifest["metadata"]["finalizers"] = ["example.com/kept"]
    assert create(plane, namespace, manifest).status == 201
    path = api_path("Pod", namespace, "trainer")
    assert plane.request("DELETE", path).status == 200
    answer = annotate(plane, namespace)
    released = change_metadata(
        environment, {"$deleteFromPrimitiveList/finalizers": ["example.com/kept"]}
    )
    assert released.status == 200, released.body
    return answer


def bind(environment: Environment) -> Response:
    """Bind a pod to a node; the API server copies the annotations of a binding into the pod."""
    plane, namespace = environment.plane, environment.namespace
    assert create(plane, namespace, pod(container())).status == 201
    path = api_path("Pod", namespace, "trainer")
    binding: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "trainer", "annotations": {ALLOCATED: "GPU-0"}},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "gpu-node-1"},
    }
    answer = plane.request("POST", f"{path}/binding", binding)
    annotations = plane.request("GET", path).body["metadata"].get("annotations", {})
    assert ALLOCATED in annotations, "the API server has not copied the annotation"
    return answer


def through_status(environment: Environment) -> Response:
    """Write the annotation by a change of the pod's status."""
    answer = annotate(environment.plane, environment.namespace, subresource="status")
    assert ALLOCATED in answer.body["metadata"]["annotations"], "the API server has dropped it"
    return answer


ATTEMPTS: dict[str, Callable[[Environment], Response]] = {
    "update-scheduler-annotation": as_user,
    "update-changed-annotation": lambda e: after_the_scheduler(e, "GPU-1"),
    "update-removed-annotation": lambda e: after_the_scheduler(e, None),
    "update-removed-label": lambda e: after_the_binder(e, {"labels": {KAI_CARD: None}}),
    "update-lowered-fraction": lambda e: after_the_binder(
        e, {"annotations": {"gpu-fraction": "0.01"}}
    ),
    "update-group": leave_group,
    "update-quota-label": change_quota,
    "update-reservation-label": pose_as_reservation,
    "update-tensor-fusion": raise_limit,
    "update-application": change_application,
    "update-queue-gate": lambda e: leave_queue(e, NO_GATES, "", ADMISSION_GATE),
    "update-queue-label": lambda e: leave_queue(
        e, {"metadata": {"labels": {"kueue.x-k8s.io/managed": None}}}
    ),
    "update-queue-finalizer": lambda e: leave_queue(e, {"metadata": {"finalizers": None}}),
    "update-queue-gate-by-own-account": lambda e: leave_queue(
        e, NO_GATES, f"system:serviceaccount:{e.namespace}:default", ADMISSION_GATE
    ),
    "update-queue-gate-by-other-account": lambda e: leave_queue(
        e, NO_GATES, OTHER_ACCOUNT, ADMISSION_GATE
    ),
    "update-leaves-job": leave_job,
    "update-made-up-owner": adopt,
    "update-while-deleted": while_deleted,
    "update-by-own-account": lambda e: as_user(e, f"system:serviceaccount:{e.namespace}:default"),
    "update-by-other-account": lambda e: as_user(e, OTHER_ACCOUNT),
    "status-annotation": through_status,
    "binding-annotation": bind,
}

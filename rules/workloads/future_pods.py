"""The pods that a controller will create from a workload, as it will send them to the API server.

Only of workloads whose pods will be at least what their template says. In a built-in kind that is
so. So it is in the custom kinds of `FINAL_KINDS`: their controllers copy the template and add to it
(labels, variables, an init container), and take nothing away that a rule reports. The controllers
of other kinds merge the template with something else (KServe, Kubeflow's Trainer), fill in
parameters (Argo Workflows, Tekton), or hide GPUs that the template shows (the launcher of an
MPIJob). What Kubeflow's Trainer merges is known where its runtime is.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rules.base.json_values import Json
from rules.inventory.inventory import EMPTY_INVENTORY, Inventory
from rules.objects.container import POD_SPEC
from rules.objects.object_ref import BUILT_IN_GROUPS
from rules.objects.pod import Pod
from rules.profile.profile import Profile
from rules.workloads.discovery import find_subjects
from rules.workloads.kinds import is_train_job

# Volcano's Job gives its scheduler to pods whose template names none; its webhook writes this one
# into a Job without any (pkg/webhooks/admission/jobs/mutate/mutate_job.go).
_VOLCANO, _VOLCANO_SCHEDULER = "batch.volcano.sh", "volcano"
_SCHEDULER_FIELD = "schedulerName"

# Group -> kinds.
# kubeflow/training-operator pkg/controller.v1/common/pod.go, createNewPod
# ray-project/kuberay ray-operator/controllers/ray/common/pod.go, BuildPod
# kubernetes-sigs/jobset pkg/controllers/jobset_controller.go, constructJob
# kubernetes-sigs/lws pkg/controllers/leaderworkerset_controller.go and pod_controller.go
# volcano-sh/volcano pkg/controllers/job/job_controller_util.go, createJobPod
FINAL_KINDS = {
    _VOLCANO: frozenset({"Job"}),
    "jobset.x-k8s.io": frozenset({"JobSet"}),
    "kubeflow.org": frozenset({"JAXJob", "PaddleJob", "PyTorchJob", "TFJob", "XGBoostJob"}),
    "leaderworkerset.x-k8s.io": frozenset({"LeaderWorkerSet"}),
    "ray.io": frozenset({"RayCluster", "RayJob", "RayService"}),
}

# What stands in the names of pods after the name of the owner: for a hash or a time.
_NAME_INFIX_BY_KIND = {"Deployment": "-0", "CronJob": "-0"}


class FuturePod(NamedTuple):
    """A pod of a workload. `stable_path` is that of its spec in the workload."""

    manifest: Json
    stable_path: str


def has_final_pods(kind: str, group: str) -> bool:
    """Return whether pods of the workload will be at least what their template says."""
    if group in BUILT_IN_GROUPS:
        return kind != "PodTemplate"  # the program that creates the pods may correct them
    return kind in FINAL_KINDS.get(group, ())


def future_pods(
    workload: Json,
    profile: Profile,
    namespace: str | None,
    inventory: Inventory = EMPTY_INVENTORY,
) -> Iterator[FuturePod]:
    """The pods of a workload for which `has_final_pods` is true.

    Of a TrainJob these are the pods that are merged with its runtime, if `inventory` has that.
    """
    for subject in find_subjects(workload, profile, namespace, inventory=inventory):
        if not isinstance(subject, Pod):
            continue
        is_of_train_job = is_train_job(subject.object.kind, subject.object.group)
        if subject.layout.is_merged if is_of_train_job else subject.layout is POD_SPEC:
            yield FuturePod(_manifest(subject), subject.stable_path)


def _manifest(template: Pod) -> dict[str, Any]:
    owner = template.object
    between = _NAME_INFIX_BY_KIND.get(owner.kind, "") if owner.group in BUILT_IN_GROUPS else ""
    kept = ("annotations", "labels")
    metadata = {key: template.metadata[key] for key in kept if key in template.metadata}
    reference = {"kind": owner.kind, "name": owner.name, "controller": True}
    metadata |= {
        "generateName": f"{owner.name}{between}-",
        "namespace": owner.namespace,
        "ownerReferences": [reference],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": _spec(template)}


def _spec(template: Pod) -> Mapping[str, Any]:
    if template.object.group != _VOLCANO or template.spec.get(_SCHEDULER_FIELD):
        return template.spec
    scheduler = template.owner_spec.get(_SCHEDULER_FIELD) or _VOLCANO_SCHEDULER
    return {**template.spec, _SCHEDULER_FIELD: scheduler}
